"""The points at which a worker can be killed: store statements, and moments of calls to the provider."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import apsw
import asyncpg

_WATCHING = "PRAGMA data_version"
"""What a worker on SQLite runs all the time to notice the commits of others."""
_NAME_LENGTH = 90


class KillPoints:
    """Counts points, and kills the process at one of them.

    Args:
        kill_at: The point, from 1; None only counts.
        on_kill: Called with the name of the point just before the kill.
    """

    def __init__(self, kill_at: int | None, on_kill: Callable[[str], None]) -> None:
        self.count = 0
        self.is_armed = False
        self._kill_at = kill_at
        self._on_kill = on_kill
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Count a point. If it is the one, this does not return."""
        if not self.is_armed:
            return
        with self._lock:  # no other thread gets further than its next point
            self.count += 1
            if self.count == self._kill_at:
                self._on_kill(name)
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60.0)

    def watch_sqlite(self) -> None:
        """Make a point of each begin and end of a statement on SQLite."""

        def hook(connection: apsw.Connection) -> None:
            connection.trace_v2(apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE, reach)

        def reach(event: dict[str, Any]) -> None:
            sql = " ".join(event["sql"].split())
            if not event.get("trigger") and not sql.startswith(_WATCHING):
                when = "before" if event["code"] == apsw.SQLITE_TRACE_STMT else "after"
                self.reach(f"{when} {sql[:_NAME_LENGTH]}")

        apsw.connection_hooks.append(hook)

    def watch_postgres(self) -> None:
        """Make a point of each moment before a statement is sent to PostgreSQL, and after it is answered."""
        for method in ("fetch", "fetchrow", "fetchval", "execute", "executemany", "copy_records_to_table"):
            setattr(asyncpg.Connection, method, self._watched(getattr(asyncpg.Connection, method)))

    def _watched(self, method: Any) -> Any:
        @functools.wraps(method)
        async def watched(connection: Any, statement: str, *values: Any, **options: Any) -> Any:
            name = " ".join(statement.split())[:_NAME_LENGTH]
            self.reach(f"before {name}")
            answer = await method(connection, statement, *values, **options)
            self.reach(f"after {name}")
            return answer

        return watched
