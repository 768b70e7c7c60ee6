"""Enqueues in the caller's own transaction (`using(conn=…)`), for an application on PostgreSQL.

The test's store is not that database, so it follows the transaction from outside. On SQLAlchemy tasks are
stored when the session or connection commits. On Django they are stored at once, because a `TestCase` never
commits, and dropped if their block was rolled back. asyncpg and psycopg report no events, so there tasks are
stored at once too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidegate.store.postgres.callers.recognise import recognise


class TaskSink(Protocol):
    """Stores and drops tasks at once."""

    def store(self) -> None:
        """Store the tasks."""
        ...

    def drop(self) -> None:
        """Drop the tasks again."""
        ...


TransactionCheck = Callable[[], bool]
"""Drops the tasks if their transaction was rolled back. Returns whether the transaction is over."""


def follow_transaction(conn: Any, tasks: TaskSink) -> TransactionCheck | None:
    """Store tasks if the transaction of a connection commits.

    Args:
        conn: The caller's connection or session.
        tasks: The tasks.

    Returns:
        What to call before the tasks are read; None if nothing has to be called.

    Raises:
        OptionError: The connection's library is not supported.
    """
    recognise(conn)
    library = _library(conn)
    if library == "sqlalchemy":
        _follow_sqlalchemy(_sync_part(conn), tasks)
        return None
    tasks.store()
    return _follow_django(conn, tasks) if library == "django" and conn.in_atomic_block else None


def _library(conn: Any) -> str:
    """Return the library of a connection, also of a proxy such as `django.db.connection`."""
    kinds = [kind.__module__.partition(".")[0] for kind in type(conn).__mro__]
    return next((kind for kind in kinds if kind in ("sqlalchemy", "django")), "")


def _follow_django(proxy: Any, tasks: TaskSink) -> TransactionCheck:
    # `django.db.connection` is another connection in each thread, and a drain is in another thread.
    conn = importlib.import_module("django.db").connections[proxy.alias]
    has_committed = False

    def committed() -> None:
        nonlocal has_committed
        has_committed = True

    conn.on_commit(committed)

    def has_ended() -> bool:
        if has_committed:
            return True
        if any(entry[1] is committed for entry in conn.run_on_commit):
            return False
        tasks.drop()  # Django removes the callbacks of a block that was rolled back
        return True

    return has_ended


def _sync_part(conn: Any) -> Any:
    """Return the sync session or connection of SQLAlchemy, also of a registry or an async one."""
    plain = conn() if callable(conn) else conn
    return getattr(plain, "sync_session", None) or getattr(plain, "sync_connection", None) or plain


def _follow_sqlalchemy(target: Any, tasks: TaskSink) -> None:
    following = _Following(tasks)
    event: Any = importlib.import_module("sqlalchemy.event")
    if hasattr(target, "get_bind"):
        outer = _transactions(target)
        event.listen(target, "after_commit", lambda _: following.commit())
        event.listen(
            target, "after_soft_rollback", lambda _, ended: following.roll_back() if ended in outer else None
        )
        return
    is_nested = target.in_nested_transaction()
    event.listen(target, "commit", lambda _: following.commit())
    event.listen(target, "rollback", lambda _: following.roll_back())
    if is_nested:
        event.listen(target, "rollback_savepoint", lambda *_: following.roll_back())


def _transactions(session: Any) -> Sequence[Any]:
    """Return the transactions that are open in a session, the innermost first."""
    found = []
    current = session.get_nested_transaction() or session.get_transaction()
    while current is not None:
        found.append(current)
        current = current.parent
    return found


class _Following:
    """Stores tasks at the first commit. A rollback before it, or of a block around it, drops them."""

    def __init__(self, tasks: TaskSink) -> None:
        self._tasks = tasks
        self._is_stored = False
        self._is_dropped = False

    def commit(self) -> None:
        if not self._is_stored and not self._is_dropped:
            self._is_stored = True
            self._tasks.store()

    def roll_back(self) -> None:
        if self._is_stored and not self._is_dropped:
            self._tasks.drop()
        self._is_dropped = True
