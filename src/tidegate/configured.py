"""A task function with options: what `using(…)` returns. It checks arguments and stores tasks."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from tidegate._bridge import run_sync
from tidegate.codec import CODEC
from tidegate.codec.signature import Signature
from tidegate.domain.spec import NO_LIMIT, TaskSpec
from tidegate.errors import ArgumentsError, OptionError, UsageError
from tidegate.handle import Handle, StoreSource
from tidegate.options import Options
from tidegate.readers import shown
from tidegate.store.rows import EnqueueResult, NewTask

P = ParamSpec("P")
R = TypeVar("R")
"""What the task function returns in the end."""


@dataclass(frozen=True, slots=True)
class PreparedTask:
    """A task whose arguments were checked, but which is not stored yet. Made by `f.prepare(…)`."""

    new_task: NewTask
    """What the store gets. Not part of the public API."""

    def __repr__(self) -> str:
        return f"PreparedTask({self.task_id!r}, {self.function!r})"

    @property
    def task_id(self) -> str:
        """The id under which it is stored, unless another task holds its key or unique name."""
        return self.new_task.id

    @property
    def function(self) -> str:
        """The name of its task function."""
        return self.new_task.function

    @property
    def queue(self) -> str:
        """The queue it goes to."""
        return self.new_task.queue


def new_task_of(prepared: PreparedTask) -> NewTask:
    """Return what the store gets of a prepared task.

    Raises:
        UsageError: It is no prepared task.
    """
    if not isinstance(prepared, PreparedTask):
        raise UsageError(
            f"{shown(prepared)} is no prepared task",
            fix="give app.enqueue_many what f.prepare(…) returned, or use f.enqueue_many([(1,), (2,)])",
        )
    return prepared.new_task


CallArguments = tuple[Any, ...] | Mapping[str, Any] | PreparedTask
"""The arguments of one task among many: positional ones, keyword ones, or a prepared task."""


class Enqueuer(StoreSource, Protocol):
    """Stores the tasks of a task function."""

    async def enqueue_prepared(self, task: NewTask, conn: Any = None) -> EnqueueResult:
        """Store one task; in the transaction open on `conn`, if one is given."""
        ...

    def enqueue_prepared_sync(self, task: NewTask, conn: Any) -> EnqueueResult:
        """Store one task in the transaction open on a connection that blocks."""
        ...

    async def enqueue_all(
        self, tasks: Iterable[NewTask] | AsyncIterable[NewTask], conn: Any = None
    ) -> Sequence[EnqueueResult]:
        """Store these tasks, all or none, and answer in their order."""
        ...

    def enqueue_all_sync(self, tasks: Iterable[NewTask], conn: Any = None) -> Sequence[EnqueueResult]:
        """As `enqueue_all`, from sync code."""
        ...

    def next_id(self) -> str:
        """Return a fresh task id."""
        ...


class ConfiguredTaskFunction(Generic[P, R]):
    """A task function with options. Made by `using`; may be kept and used many times."""

    __slots__ = ("_conn", "_enqueuer", "_options", "_signature", "_spec")

    def __init__(
        self, spec: TaskSpec, signature: Signature, enqueuer: Enqueuer, options: Options, conn: Any = None
    ) -> None:
        self._spec = spec
        self._signature = signature
        self._enqueuer = enqueuer
        self._options = options
        self._conn = conn

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a task with these arguments and options; see `TaskFunction.enqueue`.

        Raises:
            KeyConflictError: The key is taken by a task with other arguments.
        """
        return self._handle(await self._enqueuer.enqueue_prepared(self._new_task(args, kwargs), self._conn))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """As `enqueue`, from sync code."""
        if self._conn is None:
            return run_sync(self.enqueue(*args, **kwargs))
        return self._handle(self._enqueuer.enqueue_prepared_sync(self._new_task(args, kwargs), self._conn))

    async def enqueue_many(
        self, calls: Iterable[CallArguments] | AsyncIterable[CallArguments]
    ) -> list[Handle[R]]:
        """Store one task for each item with these options, all or none; see `TaskFunction.enqueue_many`.

        A prepared task keeps the options that it was prepared with.

        Raises:
            OptionError: The options hold a `key`, which can name one task only.
            ArgumentsError: The arguments of an item do not fit; the message names its place.
            UsageError: An item is none of the three forms, or was prepared by another function.
        """
        self._refuse_key()
        tasks = self._new_tasks_async(calls) if isinstance(calls, AsyncIterable) else self._new_tasks(calls)
        return [self._handle(answer) for answer in await self._enqueuer.enqueue_all(tasks, self._conn)]

    def enqueue_many_sync(self, calls: Iterable[CallArguments]) -> list[Handle[R]]:
        """As `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        self._refuse_key()
        answers = self._enqueuer.enqueue_all_sync(self._new_tasks(calls), self._conn)
        return [self._handle(answer) for answer in answers]

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Check these arguments and return the task without storing it.

        Raises:
            UsageError: The options hold a `conn`, which a task that is only prepared would lose.
        """
        if self._conn is not None:
            raise UsageError(
                "a task that is only prepared keeps no conn=",
                fix="prepare it without, and give conn= to enqueue_many",
            )
        return PreparedTask(self._new_task(args, kwargs))

    def _refuse_key(self) -> None:
        if self._options.key is not None:
            raise OptionError(
                f"key={shown(self._options.key)} with enqueue_many: one key names one task",
                fix='use unique="until_final", or prepare each task with a key of its own',
                option="key",
                value=self._options.key,
            )

    def _new_tasks(self, calls: Iterable[CallArguments]) -> Iterator[NewTask]:
        if isinstance(calls, str | bytes | Mapping) or not isinstance(calls, Iterable):
            raise UsageError(
                f"enqueue_many was given {shown(calls)}",
                fix="give a list with the arguments of one task in each item: [(1,), (2,)]",
            )
        return (self._new_task_of(index, call) for index, call in enumerate(calls))

    async def _new_tasks_async(self, calls: AsyncIterable[CallArguments]) -> AsyncIterator[NewTask]:
        index = 0
        async for call in calls:
            yield self._new_task_of(index, call)
            index += 1

    def _new_task_of(self, index: int, call: CallArguments) -> NewTask:
        if isinstance(call, PreparedTask):
            if call.function != self._spec.name:
                raise UsageError(
                    f"item {index} of enqueue_many is a task of {call.function}, not of {self._spec.name}",
                    fix="store tasks of several functions with app.enqueue_many",
                )
            return call.new_task
        try:
            if isinstance(call, tuple):
                return self._new_task(call, {})
            if isinstance(call, Mapping) and all(isinstance(name, str) for name in call):
                return self._new_task((), dict(call))
        except ArgumentsError as error:
            raise ArgumentsError(
                f"item {index} of enqueue_many: {error.message}", fix=error.fix, **error.facts, index=index
            ) from error
        raise UsageError(
            f"item {index} of enqueue_many is {shown(call)}",
            fix="give a tuple of positional arguments, a dict of keyword arguments, or f.prepare(…)",
        )

    def _new_task(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewTask:
        spec, options = self._spec, self._options
        data = self._signature.bind(args, kwargs)
        fingerprint = b""
        unique = None
        if options.key is not None or options.unique:
            fingerprint = sha256(spec.name.encode() + self._signature.fingerprint(data)).digest()
            unique = f"{spec.name}:{fingerprint.hex()}" if options.unique else None
        return NewTask(
            id=self._enqueuer.next_id(),
            function=spec.name,
            queue=options.queue or spec.queue,
            priority=spec.priority if options.priority is None else options.priority,
            args=data,
            codec_tag=CODEC,
            fingerprint=fingerprint,
            upstream=spec.upstream,
            tenant=options.tenant,
            key=options.key,
            key_seconds=options.key_seconds,
            unique=unique,
            unique_seconds=options.unique_seconds,
            delay_seconds=options.delay_seconds,
            run_at=options.run_at,
            total_timeout_seconds=options.total_timeout_seconds,
            deadline_seconds=_deadline_seconds(spec, options),
            deadline_at=options.deadline_at,
            timeout_seconds=options.timeout_seconds,
            max_attempts=options.max_attempts,
            labels=options.labels,
        )

    def _handle(self, answer: EnqueueResult) -> Handle[R]:
        return Handle(answer.task_id, self._enqueuer, self._signature.load_result, created=answer.created)


def _deadline_seconds(spec: TaskSpec, options: Options) -> float | None:
    """Return the seconds from the enqueue until the deadline; None for none, or for one that is a moment."""
    if options.deadline_at is not None:
        return None
    seconds = spec.deadline if options.deadline_seconds is None else options.deadline_seconds
    return None if seconds == NO_LIMIT else seconds
