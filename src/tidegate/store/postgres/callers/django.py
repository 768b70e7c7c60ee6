"""Connections of Django: `django.db.connection` and the others of `django.db.connections`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.errors import OptionError
from tidegate.store.postgres.callers.caller import Caller, no_transaction


class DjangoCaller(Caller):
    """A database connection of Django."""

    style = "format"
    blocks = True

    def require_transaction(self) -> None:
        """Raise `OptionError` unless an atomic block is open or autocommit is off."""
        if self.conn.vendor != "postgresql":
            raise OptionError(
                f"conn= is a connection to {self.conn.vendor}",
                fix="pass one to the database of the tasks",
                option="conn",
            )
        if not self.conn.in_atomic_block and self.conn.get_autocommit():
            raise no_transaction("with transaction.atomic():")

    async def fetch(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Run a statement; return its rows."""
        with self.conn.cursor() as cursor:
            cursor.execute(statement, values)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
            return rows

    async def run(self, statement: str) -> None:
        """Run a statement without rows."""
        with self.conn.cursor() as cursor:
            cursor.execute(statement)

    def on_commit(self, notify: Callable[[], None]) -> None:
        """Call `notify` after the outermost atomic block has committed."""
        if self.conn.in_atomic_block:
            self.conn.on_commit(notify)
