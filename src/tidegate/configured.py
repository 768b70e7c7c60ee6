"""A task function with options: what `using(…)` returns. This object checks arguments and stores tasks."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from tidegate.codec import CODEC
from tidegate.codec.signature import Signature
from tidegate.domain.readers import shown
from tidegate.domain.spec import NO_LIMIT, TaskSpec
from tidegate.errors import ArgumentsError, OptionError, UsageError
from tidegate.handle import Handle, StoreSource
from tidegate.map_handle import MapHandle
from tidegate.options import MapSettings, read_map_settings, require_no_cycle
from tidegate.store.map_rows import MapRow, NewMap
from tidegate.store.rows import EnqueueResult, NewTask
from tidegate.threads.bridge import run_sync

P = ParamSpec("P")
R = TypeVar("R")
"""The type of the function's result, awaited if it is a coroutine."""


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
        """The name of the task function."""
        return self.new_task.function

    @property
    def queue(self) -> str:
        """The queue it goes to."""
        return self.new_task.queue


def new_task_of(prepared: PreparedTask) -> NewTask:
    """Return what the store gets of a prepared task.

    Raises:
        UsageError: The value is not a prepared task.
    """
    if not isinstance(prepared, PreparedTask):
        raise UsageError(
            f"{shown(prepared)} is not a prepared task",
            fix="give app.enqueue_many what f.prepare(…) returned, or use f.enqueue_many([(1,), (2,)])",
        )
    return prepared.new_task


CallArguments = tuple[Any, ...] | Mapping[str, Any] | PreparedTask
"""The arguments of one task among many: positional arguments, keyword arguments, or a prepared task."""


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
        """Same as `enqueue_all`, from sync code."""
        ...

    async def enqueue_map(
        self,
        new: NewMap,
        tasks: Iterable[NewTask] | AsyncIterable[NewTask],
        fingerprint_of: Callable[[bytes], bytes],
    ) -> MapRow:
        """Store a map with these items, or return the map that has its key."""
        ...

    def enqueue_map_sync(
        self, new: NewMap, tasks: Iterable[NewTask], fingerprint_of: Callable[[bytes], bytes]
    ) -> MapRow:
        """Same as `enqueue_map`, from sync code."""
        ...

    def next_id(self) -> str:
        """Return a fresh task id."""
        ...


class ConfiguredTaskFunction(Generic[P, R]):
    """A task function with options. Made by `using`; may be kept and used many times."""

    __slots__ = ("_conn", "_enqueuer", "_fields", "_has_name", "_signature", "_spec")

    def __init__(
        self,
        spec: TaskSpec,
        signature: Signature,
        enqueuer: Enqueuer,
        options: Mapping[str, Any],
        conn: Any = None,
    ) -> None:
        """Make it from the values that `read_options` returned."""
        self._spec = spec
        self._signature = signature
        self._enqueuer = enqueuer
        self._conn = conn
        self._fields: dict[str, Any] = {
            "function": spec.name,
            "codec_tag": CODEC,
            "queue": spec.queue,
            "priority": spec.priority,
            "upstream": spec.upstream,
            "deadline_seconds": spec.deadline,
            "on_final": spec.on_final,
            **options,
        }
        require_no_cycle(spec.name, self._fields["on_final"])
        if "deadline_at" in options or self._fields["deadline_seconds"] == NO_LIMIT:
            self._fields["deadline_seconds"] = None
        self._has_name = "key" in options or "unique_seconds" in options

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a task with these arguments and options; see `TaskFunction.enqueue`.

        Raises:
            KeyConflictError: The key is taken by a task with other arguments.
        """
        return self._handle(await self._enqueuer.enqueue_prepared(self._new_task(args, kwargs), self._conn))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Same as `enqueue`, from sync code."""
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
            ArgumentsError: The arguments of an item do not fit. The message names the item's index.
            UsageError: An item has none of the three forms, or was prepared by another function.
        """
        self._refuse_key()
        tasks = self._new_tasks_async(calls) if isinstance(calls, AsyncIterable) else self._new_tasks(calls)
        return [self._handle(answer) for answer in await self._enqueuer.enqueue_all(tasks, self._conn)]

    def enqueue_many_sync(self, calls: Iterable[CallArguments]) -> list[Handle[R]]:
        """Same as `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
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

    async def map(
        self, items: Iterable[Any] | AsyncIterable[Any], **settings: Unpack[MapSettings]
    ) -> MapHandle[R]:
        """Store one task with these options for each item; see `TaskFunction.map`.

        Raises:
            OptionError: The options hold a `key`, `unique` or `conn`, or a setting is invalid.
        """
        new = self._new_map(settings)
        tasks = self._items_async(items) if isinstance(items, AsyncIterable) else self._items(items)
        stored = await self._enqueuer.enqueue_map(new, tasks, self._signature.fingerprint)
        return self._map_handle(stored.id, created=stored.id == new.id)

    def map_sync(self, items: Iterable[Any], **settings: Unpack[MapSettings]) -> MapHandle[R]:
        """Same as `map`, from sync code."""
        new = self._new_map(settings)
        stored = self._enqueuer.enqueue_map_sync(new, self._items(items), self._signature.fingerprint)
        return self._map_handle(stored.id, created=stored.id == new.id)

    def _map_handle(self, map_id: str, *, created: bool) -> MapHandle[R]:
        return MapHandle(map_id, self._enqueuer, self._signature.load_result, created=created)

    def _new_map(self, settings: MapSettings) -> NewMap:
        given = {
            "key": self._fields.get("key"),
            "unique": "unique_seconds" in self._fields,
            "after": self._fields.get("after"),
            "conn": self._conn,
        }
        for option, value in given.items():
            if value:
                raise OptionError(
                    f"using({option}=…) with map: it is for single tasks",
                    fix='a key of the whole map: f.map(items, key="…")',
                    option=option,
                    value=value,
                )
        fields = read_map_settings(settings)
        return NewMap(
            id=self._enqueuer.next_id(),
            function=self._spec.name,
            items=0,
            tenant=self._fields.get("tenant", ""),
            **fields,
        )

    def _items(self, items: Iterable[Any]) -> Iterator[NewTask]:
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise UsageError(
                f"map was given {shown(items)}",
                fix="give a list or an iterator: each item is the argument of one task",
            )
        return (self._item(index, item) for index, item in enumerate(items))

    async def _items_async(self, items: AsyncIterable[Any]) -> AsyncIterator[NewTask]:
        index = 0
        async for item in items:
            yield self._item(index, item)
            index += 1

    def _item(self, index: int, item: Any) -> NewTask:
        """Return the task of an item, which is its only argument unless it was prepared."""
        if isinstance(item, PreparedTask):
            task = self._new_task_of(index, item)
            if task.key is not None or task.unique is not None:
                raise UsageError(
                    f"item {index} of map was prepared with a key or unique=", fix="prepare it without"
                )
            return task
        try:
            return self._new_task((item,), {})
        except ArgumentsError as error:
            raise ArgumentsError(
                f"item {index} of map: {error.message}", fix=error.fix, **error.facts, index=index
            ) from error

    def _refuse_key(self) -> None:
        key = self._fields.get("key")
        if key is not None:
            raise OptionError(
                f"key={shown(key)} with enqueue_many: one key names one task",
                fix='use unique="until_final", or prepare each task with a key of its own',
                option="key",
                value=key,
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
        data = self._signature.bind(args, kwargs)
        if not self._has_name:
            return NewTask(id=self._enqueuer.next_id(), args=data, **self._fields)
        function = self._spec.name
        fingerprint = sha256(function.encode() + self._signature.fingerprint(data)).digest()
        unique = f"{function}:{fingerprint.hex()}" if "unique_seconds" in self._fields else None
        if after := self._fields.get("after"):
            waits = " ".join([*sorted(after), self._fields.get("on_parent_failure", "")])
            fingerprint = sha256(fingerprint + waits.encode()).digest()
        return NewTask(
            id=self._enqueuer.next_id(),
            args=data,
            fingerprint=fingerprint,
            unique=unique,
            **self._fields,
        )

    def _handle(self, answer: EnqueueResult) -> Handle[R]:
        return Handle(answer.task_id, self._enqueuer, self._signature.load_result, created=answer.created)
