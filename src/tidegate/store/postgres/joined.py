"""Storing a task inside a transaction of the caller's, on the caller's connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tidegate._bridge import run_sync
from tidegate.errors import ConfigError, UsageError
from tidegate.store.postgres.callers import AsyncCaller, Caller, SyncCaller, recognise
from tidegate.store.postgres.enqueue import answer_of, demand, values_of
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.rows import Enqueued, NewTask

_IDENTITY = load("identity")["identity"]

_NOT_THERE = ("3F000", "42883", "42P01")
"""No such schema, function, table: no store of this version is there."""
_FORBIDDEN = "42501"


class Joined:
    """Enqueues on connections that callers bring.

    Args:
        schema: Of the store's tables.
        identify: Asks the store's own database which one it is.
        committed: Called after a commit, where the caller's library tells.
    """

    def __init__(
        self, schema: str, identify: Callable[[], Awaitable[str]], committed: Callable[[], None]
    ) -> None:
        self._schema = schema
        self._identify = identify
        self._committed = committed
        self._home: str | None = None

    async def enqueue(self, conn: Any, task: NewTask) -> Enqueued:
        """Store a task in the transaction that is open on an async connection.

        Raises:
            KeyConflictError: The key is taken by a task with other arguments. Nothing was stored.
            OptionError: The connection is of no use for this.
            ConfigError: It leads to another database, or its role may not enqueue.
        """
        caller = recognise(conn)
        if not isinstance(caller, AsyncCaller):
            raise UsageError("conn= blocks, and enqueue is awaited", fix="use enqueue_sync with it")
        caller.demand_transaction()
        if self._home is None:
            self._home = await self._identify()
        with _explaining():
            holder, answer = await caller.send(self._schema, self._values(task))
        return self._done(caller, task, holder, answer)

    def enqueue_sync(self, conn: Any, task: NewTask) -> Enqueued:
        """As `enqueue`, on a connection that blocks."""
        caller = recognise(conn)
        if not isinstance(caller, SyncCaller):
            raise UsageError("conn= is awaited, and enqueue_sync is not", fix="await enqueue with it")
        caller.demand_transaction()
        if self._home is None:
            with ThreadPoolExecutor(
                1
            ) as elsewhere:  # a loop may be running here, as under SQLAlchemy's run_sync
                self._home = elsewhere.submit(run_sync, _asked(self._identify)).result()
        with _explaining():
            holder, answer = caller.send(self._schema, self._values(task))
        return self._done(caller, task, holder, answer)

    def _values(self, task: NewTask) -> Sequence[Any]:
        demand([task])
        return (self._home, None, *values_of(task))

    def _done(self, caller: Caller, task: NewTask, holder: str | None, answer: str) -> Enqueued:
        if answer == "elsewhere":
            raise ConfigError(
                "conn= is connected to another database than the application's",
                fix="pass a connection to the database of TIDEGATE_DATABASE_URL, or correct that URL",
            )
        enqueued = answer_of(task, holder, answer)
        caller.on_commit(self._committed)
        return enqueued


async def identity(db: Session) -> str:
    """Return which database this is."""
    found: str = await db.value(_IDENTITY)
    return found


async def _asked(identify: Callable[[], Awaitable[str]]) -> str:
    return await identify()


@contextmanager
def _explaining() -> Iterator[None]:
    """Say what errors of the caller's library mean; those that mean nothing to us pass as they are."""
    try:
        yield
    except Exception as error:
        state = _sqlstate(error)
        if state in _NOT_THERE:
            raise ConfigError(
                "conn= is connected to a database without the application's tables",
                fix="pass a connection to the application's database; there, run `tidegate db upgrade`",
            ) from error
        if state == _FORBIDDEN:
            raise ConfigError(
                f"the role of conn= may not enqueue: {error}",
                fix="make it a member of the worker's role; see `tidegate db roles`",
            ) from error
        raise


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the SQLSTATE of an error, wrapped by SQLAlchemy or Django or not."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
