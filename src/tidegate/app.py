"""`Tidegate`: wiring only. Configuration, the registry of task functions, and what is asked by id."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import threading
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from tidegate._bridge import run_sync
from tidegate.codec import CODEC
from tidegate.config import Config, load_config
from tidegate.context import Context
from tidegate.domain.ids import IdMaker
from tidegate.domain.spec import Backoff, Exponential, OnCrash, Priority, Rule, TaskSpec
from tidegate.errors import ConfigError, OptionError, StoreError, UnknownFunctionError
from tidegate.handle import Handle
from tidegate.options import (
    Seconds,
    attempts_option,
    limit_option,
    name_option,
    priority_option,
    seconds_option,
    size_option,
)
from tidegate.store.connect import check_url, open_store
from tidegate.task import TaskFunction, function_name, place_to_run
from tidegate.watch import TaskWatch
from tidegate.worker.settings import Pool, Timings

if TYPE_CHECKING:  # a child process imports this module at each start, and never opens the store
    from tidegate.policy.classify import Classifier
    from tidegate.store.protocol import Store
    from tidegate.store.rows import CancelAnswer, Enqueued, HistoryEntry, NewTask, TaskRow
    from tidegate.worker.embedded import EmbeddedWorker

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[[], Awaitable[None] | None]

STAGE_TASKS = 5_000
"""Tasks in one transaction of an enqueue; larger ones are staged in parts of this size."""


class Tidegate:
    """An application's door to its queue.

    Args:
        url: `sqlite:///path.db` or a path; None: `TIDEGATE_DATABASE_URL`, else `tidegate.toml`, else
            `.tidegate/tidegate.db`.
        pools: Worker pools; None: those of `tidegate.toml`, else one for everything.
        timings: Leases, beats and grace times; None: those of `tidegate.toml`, else the defaults.
        store: A store that is made already, for tests.

    Example:
        >>> app = Tidegate("sqlite:///queue.db")
        >>> @app.task(queue="mail", max_attempts=5)
        ... async def greet(name: str) -> str:
        ...     return f"hello {name}"

    Raises:
        ConfigError: The URL or a file's setting cannot work.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        pools: Sequence[Pool] | None = None,
        timings: Timings | None = None,
        store: Store | None = None,
    ) -> None:
        self.config: Config = load_config()
        self.url = url or self.config.database_url
        self.pools: tuple[Pool, ...] = tuple(pools) if pools is not None else self.config.pools
        self.timings = timings or self.config.timings
        self.functions: dict[str, TaskFunction[Any, Any, Any]] = {}
        self.start_hooks: list[Hook] = []
        self.stop_hooks: list[Hook] = []
        self.child_start_hooks: list[Hook] = []
        self.classifiers: list[Classifier] = []
        if store is not None:
            self.store = store
        else:
            check_url(self.url)
        self._opened_in = 0
        self._lock, self._lock_of = threading.Lock(), os.getpid()
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, TaskWatch] = WeakKeyDictionary()
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)

    def __repr__(self) -> str:
        return f"<Tidegate {self.url}, {len(self.functions)} task functions>"

    # --- declaring ---------------------------------------------------------------------------------------

    @overload
    def task(
        self, body: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def task(self, body: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(self, body: Callable[P, Awaitable[R]], /) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def task(self, body: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: Priority | str = Priority.NORMAL,
        upstream: str = "",
        timeout: Seconds | None = 300.0,
        deadline: Seconds | None = 1800.0,
        max_attempts: int = 3,
        backoff: Backoff | None = None,
        retry: Sequence[Rule] = (),
        on_unknown: str = "retry",
        on_crash: str = "retry",
        runs_in: str | None = None,
        memory_limit: int | str | None = None,
        cancel_grace: Seconds | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        body: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: Priority | str = Priority.NORMAL,
        upstream: str = "",
        timeout: Seconds | None = 300.0,
        deadline: Seconds | None = 1800.0,
        max_attempts: int = 3,
        backoff: Backoff | None = None,
        retry: Sequence[Rule] = (),
        on_unknown: str = "retry",
        on_crash: str = "retry",
        runs_in: str | None = None,
        memory_limit: int | str | None = None,
        cancel_grace: Seconds | None = None,
    ) -> Any:
        """Declare a task function, with or without settings.

        Args:
            body: The function, when used without settings.
            name: Its stable name in the store; `module:function` unless given.
            queue: Where its tasks go.
            priority: `interactive`, `normal` or `bulk`.
            upstream: The outside service it calls, if any.
            timeout: Time for one attempt; `NO_LIMIT` must be written out.
            deadline: Time for the whole task from its first start, parks left out.
            max_attempts: Charged attempts before it is dead.
            backoff: `Exponential` (10 s doubled, 600 s at most, unless given), `Polynomial` or `Fixed`.
            retry: Rules by `on(…)` and `discard(…)`; the first that matches counts.
            on_unknown: `retry` or `dead`, for failures of unknown meaning.
            on_crash: `retry`, or `fail`: dead at the first crash of its process.
            runs_in: `loop` (for `async def`, the default), `process` (the default for `def`: a warm child
                process, which can be killed) or `thread` (which cannot).
            memory_limit: Bytes, or text such as `2GiB`, that its child process may hold.
            cancel_grace: Seconds after which a cancelled body is closed by force; None: at its time limit.

        Raises:
            OptionError: A setting cannot work.
            ConfigError: The function cannot be a task function, or its name is taken.
        """
        settings = {
            "queue": name_option("queue", queue),
            "priority": priority_option(priority),
            "upstream": name_option("upstream", upstream) if upstream else "",
            "timeout": limit_option("timeout", timeout),
            "deadline": limit_option("deadline", deadline),
            "max_attempts": attempts_option(max_attempts),
            "backoff": backoff or Exponential(),
            "rules": tuple(retry),
            "retry_unknown": _choice("on_unknown", on_unknown, ("retry", "dead")) == "retry",
            "on_crash": OnCrash(_choice("on_crash", on_crash, ("retry", "fail"))),
            "memory_limit": None if memory_limit is None else size_option("memory_limit", memory_limit),
            "cancel_grace": None if cancel_grace is None else seconds_option("cancel_grace", cancel_grace),
        }

        def declare(function: Callable[..., Any]) -> TaskFunction[Any, Any, Any]:
            where = place_to_run(function, runs_in, memory_limit=memory_limit is not None)
            spec = TaskSpec(name=name or function_name(function), runs_in=where, **settings)  # type: ignore[arg-type]
            return self._declare(function, spec)

        return declare if body is None else declare(body)

    def on_start(self, hook: Hook) -> Hook:
        """Register what runs in each worker process's loop before its first task: open clients here."""
        self.start_hooks.append(hook)
        return hook

    def on_child_start(self, hook: Hook) -> Hook:
        """Register what runs once in each child process before its first task: load models here."""
        self.child_start_hooks.append(hook)
        return hook

    def on_stop(self, hook: Hook) -> Hook:
        """Register what runs in the same loop after the last task, in reverse order."""
        self.stop_hooks.append(hook)
        return hook

    def classifier(self, judge: Classifier) -> Classifier:
        """Register a judgement of exceptions, asked after the rules of `retry=` and before Tidegate's own.

        Args:
            judge: Takes the exception a body raised; returns a `Failure`, or None to leave it to the next.
                One that raises is passed over.
        """
        self.classifiers.append(judge)
        return judge

    def function(self, name: str) -> TaskFunction[Any, Any, Any]:
        """Return the task function of that name; its part after the colon will do if it is the only one.

        Raises:
            UnknownFunctionError: None, or several.
        """
        if name in self.functions:
            return self.functions[name]
        matches = [full for full in self.functions if full.rpartition(":")[2] == name]
        if len(matches) == 1:
            return self.functions[matches[0]]
        raise UnknownFunctionError(
            f"no task function is named {name!r}",
            fix=f"declared: {', '.join(sorted(self.functions)) or 'none'}",
        )

    def _declare(self, body: Callable[..., Any], spec: TaskSpec) -> TaskFunction[Any, Any, Any]:
        name_option("name", spec.name)
        known = self.functions.get(spec.name)
        if known is not None and _origin(known.body) != _origin(body):  # the same one again is a reload
            raise ConfigError(
                f"two task functions are named {spec.name}", fix="give one of them another name="
            )
        function: TaskFunction[Any, Any, Any] = TaskFunction(body, spec, self)
        self.functions[spec.name] = function
        return function

    @functools.cached_property
    def store(self) -> Store:
        """The store, made at its first use; `opened_store` also opens it."""
        return open_store(self.url)

    # --- storing -----------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """Return a fresh task id; ids of one process rise."""
        with self._own_lock():
            return self._make_id()

    def _own_lock(self) -> threading.Lock:
        """Return the lock of this process: in a forked child the parent's may be held for ever."""
        if self._lock_of != os.getpid():
            self._lock, self._lock_of = threading.Lock(), os.getpid()
        return self._lock

    async def opened_store(self) -> Store:
        """Return the store, opened in this process."""
        if self._opened_in != os.getpid():
            await self.store.open()
            self._opened_in = os.getpid()
        return self.store

    def task_watch(self, store: Store) -> TaskWatch:
        """Return the running loop's watcher of tasks."""
        loop = asyncio.get_running_loop()
        with self._own_lock():
            if loop not in self._watches:
                self._watches[loop] = TaskWatch(store)
            return self._watches[loop]

    async def enqueue_prepared(self, task: NewTask) -> Enqueued:
        """Store one prepared task."""
        return (await (await self.opened_store()).enqueue([task]))[0]

    async def enqueue_many(self, tasks: Iterable[NewTask] | AsyncIterable[NewTask]) -> list[str]:
        """Store prepared tasks, all or none, and return their ids in order.

        Up to 5,000 are one transaction. More are read from the iterable and staged in parts of 5,000, so
        that neither they nor a lock are held for long, and become visible at once at the end. If the
        iterable raises, nothing is stored.

        Args:
            tasks: Made by `f.prepare(…)`; an iterator is read as it goes.

        Raises:
            KeyConflictError: A key is taken by a task with other arguments. Nothing was stored.
        """
        many = await self._begin_many()
        try:
            async for task in _each(tasks):
                if many.is_full:
                    await many.stage()
                many.add(task)
            return await many.commit()
        except BaseException:
            await many.drop()
            raise

    def enqueue_many_sync(self, tasks: Iterable[NewTask]) -> list[str]:
        """As `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        many = run_sync(self._begin_many())
        try:
            for task in tasks:
                if many.is_full:
                    run_sync(many.stage())
                many.add(task)
            return run_sync(many.commit())
        except BaseException:
            run_sync(many.drop())
            raise

    async def _begin_many(self) -> _Many:
        return _Many(await self.opened_store(), self.next_id())

    # --- asking by id ------------------------------------------------------------------------------------

    def handle(self, task_id: str) -> Handle[Any]:
        """Return a handle on a task by its id; what only an annotation restores comes as plain JSON."""
        from tidegate.codec import Shape, load_result

        return Handle(task_id, self, functools.partial(load_result, Shape()))

    async def status(self, task_id: str) -> TaskRow:
        """As `Handle.status`, by id."""
        return await self.handle(task_id).status()

    async def result(self, task_id: str, timeout: float | None = None) -> Any:
        """As `Handle.result`, by id."""
        return await self.handle(task_id).result(timeout)

    async def cancel(self, task_id: str, why: str = "", *, force: bool = False) -> CancelAnswer:
        """As `Handle.cancel`, by id."""
        return await self.handle(task_id).cancel(why, force=force)

    async def history(self, task_id: str) -> list[HistoryEntry]:
        """As `Handle.history`, by id."""
        return await self.handle(task_id).history()

    def status_sync(self, task_id: str) -> TaskRow:
        """As `status`, from sync code."""
        return self.handle(task_id).status_sync()

    def result_sync(self, task_id: str, timeout: float | None = None) -> Any:
        """As `result`, from sync code; the timeout must be given."""
        return self.handle(task_id).result_sync(timeout)

    def cancel_sync(self, task_id: str, why: str = "", *, force: bool = False) -> CancelAnswer:
        """As `cancel`, from sync code."""
        return self.handle(task_id).cancel_sync(why, force=force)

    def history_sync(self, task_id: str) -> list[HistoryEntry]:
        """As `history`, from sync code."""
        return self.handle(task_id).history_sync()

    # --- running -----------------------------------------------------------------------------------------

    def worker(self, pool: Pool | None = None, *, timings: Timings | None = None) -> EmbeddedWorker:
        """Return a worker for this process, to be entered with `async with`.

        For web processes, tests and notebooks. It beats from a thread of its own, so a blocked loop does
        not lose the lease, but it cannot kill a body that will not stop: `tidegate worker` can. Where the
        lease is lost all the same, it stops its bodies, writes nothing of them, and begins anew.

        Args:
            pool: What it serves; None: the first pool of this application.
            timings: None: this application's.
        """
        from tidegate.worker.embedded import EmbeddedWorker

        return EmbeddedWorker(self, pool or self.pools[0], timings or self.timings, begins_anew=True)

    def manifest(self) -> dict[str, Any]:
        """Return what this application declares, for those who cannot import it."""
        return {
            "functions": {
                name: {
                    "queue": function.spec.queue,
                    "priority": function.spec.priority.word,
                    "timeout": function.spec.timeout if function.spec.timeout < float("inf") else None,
                    "max_attempts": function.spec.max_attempts,
                    "signature": function.signature.text,
                }
                for name, function in sorted(self.functions.items())
            },
            "codec": CODEC,
        }

    async def aclose(self) -> None:
        """Let go of the store. Safe to repeat; the next use opens it again."""
        self._opened_in = 0
        await self.store.close()

    def close(self) -> None:
        """As `aclose`, from sync code."""
        run_sync(self.aclose())


class _Many:
    """An enqueue of many under way: one transaction if one part is all, else staged part by part."""

    def __init__(self, store: Store, stage_id: str) -> None:
        self._store = store
        self._stage_id = stage_id
        self._ids: list[str] = []
        self._part: list[NewTask] = []
        self._is_staged = False

    @property
    def is_full(self) -> bool:
        """Whether the present part must be staged before another task is added."""
        return len(self._part) == STAGE_TASKS

    def add(self, task: NewTask) -> None:
        """Take one more task."""
        self._part.append(task)
        self._ids.append(task.id)

    async def stage(self) -> None:
        """Store the present part where nothing can see it yet, and begin another."""
        self._is_staged = True
        await self._store.stage(self._stage_id, self._part)
        self._part = []

    async def commit(self) -> list[str]:
        """Make everything visible at once; return the ids in order."""
        if not self._is_staged:
            answers = await self._store.enqueue(self._part) if self._part else []
            return [answer.task_id for answer in answers]
        await self.stage()
        held = await self._store.commit_stage(self._stage_id)
        self._is_staged = False
        with contextlib.suppress(StoreError):  # they are stored and visible; a steward moves what is left
            while await self._store.unstage():
                pass
        return [held.get(task_id, task_id) for task_id in self._ids] if held else self._ids

    async def drop(self) -> None:
        """Forget what was staged; while the store is away, it is swept after a day."""
        if self._is_staged:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._store.drop_stage(self._stage_id))


class TaskDecorator:
    """The type of `@app.task(…)` with settings; never made."""

    @overload
    def __call__(
        self, body: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def __call__(self, body: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def __call__(self, body: Callable[P, Awaitable[R]], /) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def __call__(self, body: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    def __call__(self, body: Any, /) -> Any:
        """Declare the function."""
        raise TypeError("TaskDecorator describes a type; use @app.task")


def _origin(body: Callable[..., Any]) -> tuple[str, str]:
    return body.__code__.co_filename, body.__qualname__


async def _each(tasks: Iterable[NewTask] | AsyncIterable[NewTask]) -> Any:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
    else:
        for task in tasks:
            yield task


def _choice(option: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise OptionError(f"{option}={value!r}", fix=f"use one of {', '.join(choices)}")
    return value
