"""Store tasks inside the caller's transaction, on the caller's connection."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from typing import Any, TypeVar

import msgspec

from tidegate.errors import ConfigError, KeyConflictError, UsageError
from tidegate.store.common.new_tasks import require_no_parents
from tidegate.store.postgres.callers import Caller, recognise
from tidegate.store.postgres.enqueue import (
    enqueue_values,
    hooks_by_id,
    name_lock_order,
    parse_enqueue_result,
    require_storable,
)
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import in_schema, load
from tidegate.store.rows import EnqueueResult, NewTask
from tidegate.threads.bridge import run_sync

T = TypeVar("T")

_SQL = load("enqueue_within")
_HOOKS = load("final_hooks")
_IDENTITY = load("identity")["identity"]

_PART_TASKS = 1_000
_PART_BYTES = 16 * 1_048_576
"""Most tasks, and most bytes of arguments, in one statement. Every driver accepts this size."""

_NOT_THERE = ("3F000", "42883", "42P01")
"""No such schema, function or table: the database has no store of this version."""
_FORBIDDEN = "42501"


class TransactionEnqueuer:
    """Enqueues on connections that callers pass.

    Args:
        schema: The schema of the store's tables.
        identify: Returns the identity of the store's own database.
        committed: Called after a commit, if the caller's library reports it.
    """

    def __init__(
        self, schema: str, identify: Callable[[], Awaitable[str]], committed: Callable[[], None]
    ) -> None:
        self._schema = schema
        self._identify = identify
        self._committed = committed
        self._database_id: str | None = None

    async def enqueue(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store tasks in the transaction open on an async connection; return one result per task, in order.

        Raises:
            KeyConflictError: A task with other arguments holds a key. Nothing was stored.
            OptionError: This kind of connection is not supported.
            ConfigError: The connection leads to another database, or its role may not enqueue.
        """
        caller = recognise(conn)
        if caller.blocks:
            raise UsageError("conn= blocks, and this enqueue is awaited", fix="use the _sync method with it")
        caller.require_transaction()
        if self._database_id is None:
            self._database_id = await self._identify()
        return await self._store(caller, tasks)

    def enqueue_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Do what `enqueue` does, on a blocking connection."""
        caller = recognise(conn)
        if not caller.blocks:
            raise UsageError("conn= is async, and this enqueue is not", fix="await the method without _sync")
        caller.require_transaction()
        if self._database_id is None:
            # An event loop may be running here, as under SQLAlchemy's run_sync.
            with ThreadPoolExecutor(1) as elsewhere:
                self._database_id = elsewhere.submit(run_sync, _awaited(self._identify)).result()
        return _run_blocking(self._store(caller, tasks))

    async def _store(self, caller: Caller, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        for task in tasks:
            require_storable([task])
            require_no_parents([task])
        with _translate_errors():
            if len(tasks) == 1:
                stored = [await self._enqueue_one(caller, tasks[0])]
            elif any(task.key is not None for task in tasks):
                stored = await self._all_or_none(caller, tasks)
            else:
                stored = await self._enqueue_many(caller, tasks)
            if hooks := hooks_by_id(tasks):
                statement = in_schema(_HOOKS[f"set_{caller.style}"], self._schema)
                await caller.fetch(statement, (msgspec.json.encode(hooks).decode(),))
        caller.on_commit(self._committed)
        return stored

    async def _enqueue_one(self, caller: Caller, task: NewTask) -> EnqueueResult:
        statement = in_schema(_SQL[f"one_{caller.style}"], self._schema)
        ((holder, answer),) = await caller.fetch(statement, (self._database_id, None, *enqueue_values(task)))
        return _interpret(task, holder, answer)

    async def _all_or_none(self, caller: Caller, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store tasks under a savepoint: a key conflict leaves the caller's transaction unchanged."""
        await caller.run(_SQL["savepoint"])
        try:
            stored = await self._enqueue_many(caller, tasks)
        except (KeyConflictError, ConfigError):
            await caller.run(_SQL["undo"])
            await caller.run(_SQL["release"])
            raise
        await caller.run(_SQL["release"])
        return stored

    async def _enqueue_many(self, caller: Caller, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        given = f"{_SQL[f'given_{caller.style}']}\n{_SQL['many']}"
        statement = in_schema(given, self._schema)
        positions = name_lock_order(tasks)
        rows: list[Sequence[Any]] = []
        for part in _parts([tasks[position] for position in positions]):
            rows += await caller.fetch(statement, (self._database_id, _as_json(part)))
        answers = dict(zip(positions, rows, strict=True))
        return [_interpret(task, *answers[position]) for position, task in enumerate(tasks)]


async def identity(db: PostgresSession) -> str:
    """Return the identity of this database."""
    found: str = await db.value(_IDENTITY)
    return found


def _interpret(task: NewTask, holder: str | None, answer: str) -> EnqueueResult:
    if answer == "elsewhere":
        raise ConfigError(
            "conn= is connected to another database than the application's",
            fix="pass a connection to the database of TIDEGATE_DATABASE_URL, or correct that URL",
        )
    return parse_enqueue_result(task, holder, answer)


def _parts(tasks: Sequence[NewTask]) -> Iterator[Sequence[NewTask]]:
    """Yield tasks in parts, one part per statement."""
    begin, size = 0, 0
    for position, task in enumerate(tasks):
        size += len(task.args)
        if position > begin and (size > _PART_BYTES or position - begin == _PART_TASKS):
            yield tasks[begin:position]
            begin, size = position, len(task.args)
    if tasks:
        yield tasks[begin:]


def _as_json(tasks: Sequence[NewTask]) -> str:
    """Return the parameter of the statement for many tasks."""
    return msgspec.json.encode([_to_dict(task) for task in tasks]).decode()


def _to_dict(task: NewTask) -> dict[str, Any]:
    return {
        "id": task.id,
        "function": task.function,
        "queue": task.queue,
        "priority": int(task.priority),
        "upstream": task.upstream,
        "tenant": task.tenant,
        "codec_tag": task.codec_tag,
        "args": b64encode(task.args).decode(),
        "fingerprint": b64encode(task.fingerprint).decode(),
        "key_name": task.key,
        "key_seconds": task.key_seconds,
        "unique_name": task.unique,
        "unique_seconds": task.unique_seconds,
        "delay_seconds": task.delay_seconds,
        "run_at": task.run_at,
        "deadline_seconds": task.deadline_seconds,
        "timeout_seconds": task.timeout_seconds,
        "max_attempts": task.max_attempts,
        "labels": dict(task.labels) or None,
        "total_timeout_seconds": _number(task.total_timeout_seconds),
        "deadline_at": task.deadline_at,
    }


def _number(value: float | None) -> float | str | None:
    """Return a number for JSON; infinity becomes a word that PostgreSQL reads."""
    return "Infinity" if value == inf else value


def _run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends, as on a blocking connection."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("a blocking connection was awaited")


async def _awaited(identify: Callable[[], Awaitable[str]]) -> str:
    return await identify()


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert errors of the caller's library that Tidegate can explain; others pass unchanged."""
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
    """Return the SQLSTATE of an error, also if SQLAlchemy or Django wrapped it."""
    while error is not None:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if isinstance(state, str):
            return state
        error = getattr(error, "orig", None) or error.__cause__
    return None
