"""A declared task function: its settings, its signature, and how to enqueue it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from tidegate.codec.signature import Signature
from tidegate.configured import CallArguments, ConfiguredTaskFunction, Enqueuer, PreparedTask
from tidegate.context import Context
from tidegate.domain.spec import TaskSpec
from tidegate.handle import Handle
from tidegate.map_handle import MapHandle
from tidegate.options import EnqueueOptions, MapSettings, read_options

P = ParamSpec("P")
C = TypeVar("C")
"""What a plain call returns: the value, or a coroutine of it."""
R = TypeVar("R")
"""What the body returns in the end."""


_IN_OTHER_QUEUES = {
    **dict.fromkeys(("delay", "send", "submit", "defer", "kiq"), "enqueue_sync(…), or await enqueue(…)"),
    **dict.fromkeys(("apply_async", "send_with_options", "configure", "s", "si"), "using(…).enqueue_sync(…)"),
    "aenqueue": "await enqueue(…)",
}
"""What other queues call the methods of a task function, and what to write here."""


class TaskFunction(Generic[P, C, R]):
    """A declared task function, made by `@app.task`.

    A call runs the function directly; `enqueue` stores a task.
    """

    def __init__(self, function: Callable[..., Any], spec: TaskSpec, enqueuer: Enqueuer) -> None:
        self.function = function
        self.spec = spec
        self.is_async = inspect.iscoroutinefunction(function)
        self._enqueuer = enqueuer
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<task function {self.spec.name}>"

    if not TYPE_CHECKING:  # type checkers would take every attribute for valid

        def __getattr__(self, name: str) -> Any:
            hint = f" → write {_IN_OTHER_QUEUES[name]}" if name in _IN_OTHER_QUEUES else ""
            raise AttributeError(f"a task function has no attribute {name!r}{hint}", name=name, obj=self)

    @cached_property
    def signature(self) -> Signature:
        """Parameters and return annotation, read at first use: annotations may name what comes later.

        Raises:
            ConfigError: An annotation cannot be resolved.
        """
        return Signature.of(self.function, injected=Context)

    @cached_property
    def _without_options(self) -> ConfiguredTaskFunction[P, R]:
        """This function without options."""
        return self.using()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        """Call the function directly, without a queue.

        If no context is given, the function gets a detached one: never cancelled, no limits.
        """
        name = self.signature.context
        if name is None or name in kwargs or any(isinstance(arg, Context) for arg in args):
            here: C = self.function(*args, **kwargs)
            return here
        positional, named = self.signature.with_context(args, kwargs, Context.detached())
        result: C = self.function(*positional, **named)
        return result

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Store a task with these arguments; when this returns, it is committed.

        Raises:
            ArgumentsError: The arguments do not fit the signature, or one cannot be stored.
            StoreError: Not stored, or (StoreUnavailableError) possibly stored: try again.
        """
        return await self._without_options.enqueue(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Same as `enqueue`, from sync code."""
        return self._without_options.enqueue_sync(*args, **kwargs)

    async def enqueue_many(
        self, calls: Iterable[CallArguments] | AsyncIterable[CallArguments]
    ) -> list[Handle[R]]:
        """Store one task for each item, all or none; return their handles in order.

        Up to 5,000 tasks are one transaction. More than 5,000 tasks are read from the iterable in parts of
        5,000, and become visible all at once at the end. If the iterable raises, nothing is stored.

        Args:
            calls: The arguments of one task in each item: a tuple of positional arguments, a dict of keyword
                arguments, or a task that `f.prepare(…)` returned.

        Raises:
            ArgumentsError: The arguments of an item do not fit. The message names the item's index.
            UsageError: An item has none of these forms, or was prepared by another function.

        Example:
            >>> await greet.enqueue_many([("Ada",), {"name": "Alan"}])  # doctest: +SKIP
        """
        return await self._without_options.enqueue_many(calls)

    def enqueue_many_sync(self, calls: Iterable[CallArguments]) -> list[Handle[R]]:
        """Same as `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        return self._without_options.enqueue_many_sync(calls)

    async def map(
        self, items: Iterable[Any] | AsyncIterable[Any], **settings: Unpack[MapSettings]
    ) -> MapHandle[R]:
        """Store one task for each item as one map, with progress, results and a callback at the end.

        The items may come from a generator or an async generator of any length: they are read in parts of
        5,000 and become visible together at the end. If it raises, nothing is stored. Each item is retried
        alone.

        Args:
            items: The argument of one task in each item. For several arguments: `f.prepare(…)`.
            settings: Those of `MapSettings`.

        Raises:
            ArgumentsError: An item does not fit. The message names its index.
            KeyConflictError: The key is taken by a map with other items.

        Example:
            >>> await resize.map(paths, name="nightly", on_complete=report)  # doctest: +SKIP
        """
        return await self._without_options.map(items, **settings)

    def map_sync(self, items: Iterable[Any], **settings: Unpack[MapSettings]) -> MapHandle[R]:
        """Same as `map`, from sync code. The iterable is read in the caller's thread."""
        return self._without_options.map_sync(items, **settings)

    def map_handle(self, map_id: str) -> MapHandle[R]:
        """Return a handle on a stored map of this function; its results are decoded by its annotation."""
        return MapHandle(map_id, self._enqueuer, self.signature.load_result)

    def handle(self, task_id: str) -> Handle[R]:
        """Return a handle on a stored task of this function; `result()` decodes by its annotation."""
        return Handle(task_id, self._enqueuer, self.signature.load_result)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask:
        """Check these arguments and return the task without storing it, for `enqueue_many`."""
        return self._without_options.prepare(*args, **kwargs)

    def using(self, *, conn: Any = None, **options: Unpack[EnqueueOptions]) -> ConfiguredTaskFunction[P, R]:
        """Return this function with options for the enqueues that follow.

        Args:
            conn: A connection or session of yours, on PostgreSQL: the task is part of the transaction that
                is open there, and exists once that is committed. asyncpg, psycopg, SQLAlchemy (async ones
                with `enqueue`, others with `enqueue_sync`) and `django.db.connection`.
            options: Those of `EnqueueOptions`.

        Raises:
            OptionError: There is no such option, or a value is invalid.
        """
        return ConfiguredTaskFunction(self.spec, self.signature, self._enqueuer, read_options(options), conn)


class TaskDecorator:
    """The type of `@app.task(…)` with settings; never made."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    def __call__(self, function: Any, /) -> Any:
        """Declare the function."""
        raise TypeError("TaskDecorator describes a type; use @app.task")


def defined_at(function: Callable[..., Any]) -> str:
    """Return where a function is defined: `app.py:12`."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
