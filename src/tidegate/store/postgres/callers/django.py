"""`django.db.connection`, or another one of `django.db.connections`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.errors import OptionError
from tidegate.store.postgres.callers.caller import Answer, SyncCaller, no_transaction
from tidegate.store.postgres.statements import in_schema, load

_FORMAT = load("joined")["format"]


class DjangoCaller(SyncCaller):
    """A database connection of Django."""

    def demand_transaction(self) -> None:
        """Return if an atomic block is open, or Django does not commit by itself."""
        if self.conn.vendor != "postgresql":
            raise OptionError(
                f"conn= is a connection to {self.conn.vendor}", fix="pass one to the database of the tasks"
            )
        if not self.conn.in_atomic_block and self.conn.get_autocommit():
            raise no_transaction("with transaction.atomic():")

    def send(self, schema: str, values: Sequence[Any]) -> Answer:
        """Run the statement; return its only row."""
        with self.conn.cursor() as cursor:
            cursor.execute(in_schema(_FORMAT, schema), values)
            holder, answer = cursor.fetchone()
        return holder, answer

    def on_commit(self, tell: Callable[[], None]) -> None:
        """Have `tell` called after the outermost atomic block has committed."""
        if self.conn.in_atomic_block:
            self.conn.on_commit(tell)
