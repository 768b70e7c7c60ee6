"""`Tidegate`: wiring only. Configuration, the registry of task functions, and what is asked by id."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import threading
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from tidegate._bridge import run_sync
from tidegate.bulk_enqueue import BulkEnqueue, each
from tidegate.calls.keys import Key, KeyRing
from tidegate.calls.settings import CallTimes
from tidegate.calls.upstream import Upstream
from tidegate.codec import CODEC
from tidegate.codec.declaration import demand_plain_function
from tidegate.config import Config, load_config
from tidegate.configured import PreparedTask, new_task_of
from tidegate.context import Context
from tidegate.domain.failure import Reason
from tidegate.domain.ids import IdMaker
from tidegate.domain.spec import (
    NO_LIMIT,
    TIMEOUT_SECONDS,
    TIMEOUT_WITH_UPSTREAM_SECONDS,
    TOTAL_TIMEOUT_SECONDS,
    TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS,
    USUAL,
    Backoff,
    Exponential,
    OnCrash,
    Priority,
    Rule,
    TaskSpec,
    Usual,
    backoff_option,
)
from tidegate.errors import ConfigError, OptionError, UnknownFunctionError
from tidegate.hooks import Hooks
from tidegate.limits.options import UpstreamLimits, make_limits, rate_window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.options import priority_option
from tidegate.readers import (
    Seconds,
    Size,
    attempts_option,
    choice_option,
    duration_deadline,
    limit_option,
    name_option,
    names_option,
    seconds_option,
    shown,
    size_option,
    wrong,
)
from tidegate.store.connect import check_url, open_store
from tidegate.task import (
    TaskDecorator,
    TaskFunction,
    choose_runs_in,
    defined_at,
    function_name,
    retry_rules_option,
)
from tidegate.task_access import TaskAccess
from tidegate.task_watcher import TaskWatcher
from tidegate.unserved import UnservedTaskWarner
from tidegate.worker.settings import Pool, Timings, pools_option, timings_option

if TYPE_CHECKING:  # a child process imports this module at each start, and never opens the store
    from tidegate.store.protocol import Store
    from tidegate.store.rows import EnqueueResult, NewTask
    from tidegate.worker.embedded import EmbeddedWorker

P = ParamSpec("P")
R = TypeVar("R")


class Tidegate(Hooks, TaskAccess):
    """An application's door to its queue.

    Args:
        url: `sqlite:///path.db` or a path; None: `TIDEGATE_DATABASE_URL`, else `tidegate.toml`, else
            `.tidegate/tidegate.db`.
        pools: Worker pools; None: those of `tidegate.toml`, else one for everything.
        timings: Leases, beats and grace times; None: those of `tidegate.toml`, else the defaults.
        store: A store that is made already, for tests.
        modules: Other modules that declare task functions of this application, imported after its own by
            workers and commands; None: those of `tidegate.toml`.
        retries_per_minute: The retry budget of the whole system, with or without upstreams; None: that of
            `tidegate.toml`, else 600.
        retry_window: Time over which the retry budget holds; None: that of `tidegate.toml`, else 60 s.

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
        modules: Sequence[str] | None = None,
        retries_per_minute: float | None = None,
        retry_window: Seconds | None = None,
    ) -> None:
        super().__init__()
        self.config: Config = load_config()
        retries = self.config.retries_per_minute if retries_per_minute is None else retries_per_minute
        window = self.config.retry_window if retry_window is None else retry_window
        self._system_limits = make_limits(retries_per_minute=retries, retry_window=window)
        self.url = url or self.config.database_url
        self.modules = self.config.modules if modules is None else names_option("modules", modules)
        self.pools: tuple[Pool, ...] = self.config.pools if pools is None else pools_option(pools)
        self.timings = self.config.timings if timings is None else timings_option(timings)
        self.functions: dict[str, TaskFunction[Any, Any, Any]] = {}
        self.upstreams: dict[str, Upstream] = {}
        if store is not None:
            self.store = store
        else:
            check_url(self.url)
        self.unserved = UnservedTaskWarner(self.pools)
        self._opened_in_pid = 0
        self._lock, self._lock_pid = threading.Lock(), os.getpid()
        self._task_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, TaskWatcher] = WeakKeyDictionary()
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)

    def __repr__(self) -> str:
        return f"<Tidegate {self.url}, {len(self.functions)} task functions>"

    # --- declaring ---------------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, Awaitable[R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskFunction[P, R, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: Priority | str = Priority.NORMAL,
        upstream: Upstream | str | None = None,
        rate_limit: str | None = None,
        timeout: Seconds | Usual | None = USUAL,
        total_timeout: Seconds | Usual | None = USUAL,
        deadline: Seconds | None = None,
        max_attempts: int = 3,
        backoff: Backoff | Seconds | None = None,
        retry: Sequence[Rule | type[BaseException] | Reason | str] = (),
        on_unknown: str = "retry",
        on_crash: str = "retry",
        runs_in: str | None = None,
        memory_limit: Size | None = None,
        cancel_grace: Seconds | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: Priority | str = Priority.NORMAL,
        upstream: Upstream | str | None = None,
        rate_limit: str | None = None,
        timeout: Seconds | Usual | None = USUAL,
        total_timeout: Seconds | Usual | None = USUAL,
        deadline: Seconds | None = None,
        max_attempts: int = 3,
        backoff: Backoff | Seconds | None = None,
        retry: Sequence[Rule | type[BaseException] | Reason | str] = (),
        on_unknown: str = "retry",
        on_crash: str = "retry",
        runs_in: str | None = None,
        memory_limit: Size | None = None,
        cancel_grace: Seconds | None = None,
    ) -> Any:
        """Declare a task function, with or without settings.

        Args:
            function: The function, when used without settings.
            name: Its stable name in the store; `module:function` unless given.
            queue: Where its tasks go.
            priority: `interactive`, `normal` or `bulk`.
            upstream: The outside service it calls, if any: what `app.upstream(…)` returned, or its name.
            rate_limit: Runs started in a time, such as `50/min`, by all workers together.
            timeout: Time for one attempt; 300 s, or 15 min with an upstream, unless given. Seconds, a
                timedelta, or text such as `90s`, `15m`, `1h`; so are all durations here. `NO_LIMIT` must be
                written out.
            total_timeout: Time for the whole task from its first start, over all its runs; 30 min, or 1 h
                with an upstream, unless given. Time that the task waits for an upstream, parked or behind its
                gate, is not counted.
            deadline: Time for the whole task from each enqueue, which nothing stops; None: no such limit.
            max_attempts: Charged attempts before it is dead.
            backoff: `Exponential` (10 s doubled, 600 s at most, unless given), `Polynomial` or `Fixed`; a
                duration alone means `Fixed`.
            retry: Rules by `on(…)` and `discard(…)`; the first that matches counts. An exception class or a
                reason alone means `on(…)` it.
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
            **self._upstream_settings(upstream),
            "rate_limit": None if rate_limit is None else rate_window(rate_limit),
            "timeout": _timeout_seconds(timeout, upstream),
            "total_timeout": _total_timeout_seconds(total_timeout, upstream),
            "deadline": NO_LIMIT if deadline is None else duration_deadline("deadline", deadline),
            "max_attempts": attempts_option(max_attempts),
            "backoff": Exponential() if backoff is None else backoff_option("backoff", backoff),
            "rules": retry_rules_option(retry),
            "retry_unknown": choice_option("on_unknown", on_unknown, ("retry", "dead")) == "retry",
            "on_crash": OnCrash(choice_option("on_crash", on_crash, ("retry", "fail"))),
            "memory_limit": None if memory_limit is None else size_option("memory_limit", memory_limit),
            "cancel_grace": None if cancel_grace is None else seconds_option("cancel_grace", cancel_grace),
        }

        if name is not None:
            name_option("name", name)

        def declare(function: Callable[..., Any]) -> TaskFunction[Any, Any, Any]:
            demand_plain_function(function)
            where = choose_runs_in(function, runs_in, memory_limit=memory_limit is not None)
            spec = TaskSpec(name=name or function_name(function), runs_in=where, **settings)  # type: ignore[arg-type]
            return self._register(function, spec)

        return declare if function is None else declare(function)

    def upstream(
        self,
        name: str,
        *,
        provider: str = "",
        times: CallTimes | None = None,
        keys: Sequence[Key] = (),
        **limits: Unpack[UpstreamLimits],
    ) -> Upstream:
        """Declare an outside service that tasks call; give what is returned to `@app.task(upstream=…)`.

        Args:
            name: Its name in the store, the status and the command line.
            provider: Whose errors its errors are: `openai`, `anthropic`, `dashscope`…; empty: as named.
            times: How long one call through its transport may take; None: 60 s.
            keys: API keys that its calls share, the preferred first; none: clients have their own.
            limits: Those of `UpstreamLimits`; what is left out does not limit.

        Raises:
            OptionError: A limit cannot work, or the name is declared with other ones.
        """
        made = Upstream(
            name_option("upstream", name),
            make_limits(**limits),
            provider=provider,
            times=times,
            keys=KeyRing(name, keys, self.config.environment or "") if keys else None,
            opened_store=self.opened_store,
        )
        if (known := self.upstreams.get(name)) is not None and known.limits != made.limits:
            raise OptionError(
                f"upstream {shown(name)} is declared twice, with different limits", fix="declare it once"
            )
        return self.upstreams.setdefault(name, made)

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
            f"no task function is named {shown(name)}",
            fix=f"declared: {', '.join(sorted(self.functions)) or 'none'}",
        )

    def declared(self) -> list[LimitDeclaration]:
        """Return the limits this application declares, for the store."""
        limits = {name: function.spec.rate_limit for name, function in self.functions.items()}
        return [
            LimitDeclaration(GateKind.SYSTEM, "", self._system_limits),
            *(each for upstream in self.upstreams.values() for each in upstream.with_keys()),
            *(
                LimitDeclaration(GateKind.FUNCTION, name, Limits((limit,)))
                for name, limit in limits.items()
                if limit
            ),
        ]

    def _upstream_settings(self, upstream: Upstream | str | None) -> dict[str, str]:
        """Return the name and the provider of a task function's upstream.

        Raises:
            OptionError: No such upstream is declared.
        """
        if upstream is None:
            return {}
        name = upstream.name if isinstance(upstream, Upstream) else upstream
        if not isinstance(name, str):
            raise wrong("upstream", upstream, "give what app.upstream(…) returned, or its name")
        if name not in self.upstreams:
            raise OptionError(
                f"no upstream is named {shown(name)}",
                fix=f"declare it before: app.upstream({shown(name)}, …)",
            )
        return {"upstream": name, "provider": self.upstreams[name].calls.provider}

    def _register(self, function: Callable[..., Any], spec: TaskSpec) -> TaskFunction[Any, Any, Any]:
        name_option("name", spec.name)
        known = self.functions.get(spec.name)
        if known is not None and _definition_key(known.function) != _definition_key(
            function
        ):  # the same one again is a reload
            raise ConfigError(
                f"two task functions are named {spec.name}: {defined_at(known.function)} "
                f"and {defined_at(function)}",
                fix="give one of them another name=",
            )
        task_function: TaskFunction[Any, Any, Any] = TaskFunction(function, spec, self)
        self.functions[spec.name] = task_function
        return task_function

    @functools.cached_property
    def store(self) -> Store:
        """The store, made at its first use; `opened_store` also opens it."""
        return open_store(self.url)

    # --- storing -----------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """Return a fresh task id; ids of one process rise."""
        with self._process_lock():
            return self._make_id()

    def _process_lock(self) -> threading.Lock:
        """Return the lock of this process: in a forked child the parent's may be held for ever."""
        if self._lock_pid != os.getpid():
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        return self._lock

    async def opened_store(self) -> Store:
        """Return the store, opened in this process."""
        if self._opened_in_pid != os.getpid():
            await self.store.open()
            self._opened_in_pid = os.getpid()
        return self.store

    def task_watcher(self, store: Store) -> TaskWatcher:
        """Return the running loop's watcher of tasks."""
        loop = asyncio.get_running_loop()
        with self._process_lock():
            if loop not in self._task_watchers:
                self._task_watchers[loop] = TaskWatcher(store)
            return self._task_watchers[loop]

    async def enqueue_prepared(self, task: NewTask, conn: Any = None) -> EnqueueResult:
        """Store one prepared task; in the transaction open on `conn`, if one is given."""
        store = await self.opened_store()
        storing = store.enqueue([task]) if conn is None else store.enqueue_within(conn, [task])
        (enqueued,) = await storing
        await self.unserved.warn(store, [(task.queue, task.function)])
        return enqueued

    def enqueue_prepared_sync(self, task: NewTask, conn: Any) -> EnqueueResult:
        """Store one prepared task in the transaction open on a connection that blocks."""
        return self.store.enqueue_within_sync(conn, [task])[0]

    async def enqueue_many(
        self, tasks: Iterable[PreparedTask] | AsyncIterable[PreparedTask], *, conn: Any = None
    ) -> list[str]:
        """Store prepared tasks, all or none, and return their ids in order.

        Up to 5,000 are one transaction. More are read from the iterable and staged in parts of 5,000, so
        that neither they nor a lock are held for long, and become visible at once at the end. If the
        iterable raises, nothing is stored.

        Args:
            tasks: Made by `f.prepare(…)`, of one function or several; an iterator is read as it goes.
            conn: A connection or session of yours, as for `using(conn=…)`: all are part of the transaction
                that is open there, and are read before the first is sent.

        Raises:
            KeyConflictError: A key is taken by a task with other arguments. Nothing was stored.
            UsageError: An item is no prepared task.
        """
        answers = await self.enqueue_all((new_task_of(task) async for task in each(tasks)), conn)
        return [answer.task_id for answer in answers]

    def enqueue_many_sync(self, tasks: Iterable[PreparedTask], *, conn: Any = None) -> list[str]:
        """As `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        answers = self.enqueue_all_sync((new_task_of(task) for task in tasks), conn)
        return [answer.task_id for answer in answers]

    async def enqueue_all(
        self, tasks: Iterable[NewTask] | AsyncIterable[NewTask], conn: Any = None
    ) -> Sequence[EnqueueResult]:
        """Store these tasks, all or none, and answer in their order."""
        if conn is not None:
            store = await self.opened_store()
            return await store.enqueue_within(conn, [task async for task in each(tasks)])
        bulk_enqueue = await self._begin_bulk_enqueue()
        answers = await bulk_enqueue.store(tasks)
        await self.unserved.warn(self.store, bulk_enqueue.task_kinds)
        return answers

    def enqueue_all_sync(self, tasks: Iterable[NewTask], conn: Any = None) -> Sequence[EnqueueResult]:
        """As `enqueue_all`, from sync code."""
        if conn is not None:
            return self.store.enqueue_within_sync(conn, list(tasks))
        bulk_enqueue = run_sync(self._begin_bulk_enqueue())
        answers = bulk_enqueue.store_sync(tasks)
        run_sync(self.unserved.warn(self.store, bulk_enqueue.task_kinds))
        return answers

    async def _begin_bulk_enqueue(self) -> BulkEnqueue:
        return BulkEnqueue(await self.opened_store(), self.next_id())

    # --- running -----------------------------------------------------------------------------------------

    def worker(
        self, *, pools: Sequence[Pool] | None = None, timings: Timings | None = None
    ) -> EmbeddedWorker:
        """Return a worker that runs inside this process, to be entered with `async with`.

        For web processes, tests and notebooks. All its pools run in the loop that enters it; their leases are
        renewed from a thread, so that a blocked loop does not lose them. If a lease is lost all the same, the
        worker stops its tasks, writes nothing of them, and starts again under new ids.

        What it cannot do, and `tidegate worker` can:

        - It starts no processes. A `def` function runs in a thread of this process, `async def` with
          `runs_in="process"` in its loop. Nothing can kill them: one that does not stop keeps its slot.
        - Memory and GPU limits (`memory_limit`, `memory_soft_limit`, `vram_limit`, `gpus`), `processes` and
          `child_runs` of a pool have no effect, and `on_child_start` hooks are not run.
        - A crash, or a loop that is blocked for longer than `stall_limit`, takes all its tasks with it.
        - It does not replace itself: `ctx.replace_process` has no effect.

        Args:
            pools: The pools it serves; None: all pools of this application.
            timings: None: this application's.
        """
        from tidegate.worker.embedded import EmbeddedWorker

        served = self.pools if pools is None else pools_option(pools)
        return EmbeddedWorker(self, served, timings or self.timings, may_restart=True)

    def manifest(self) -> dict[str, Any]:
        """Return what this application declares, for those who cannot import it."""
        return {
            "functions": {
                name: {
                    "queue": function.spec.queue,
                    "upstream": function.spec.upstream,
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
        self._opened_in_pid = 0
        await self.store.close()

    def close(self) -> None:
        """As `aclose`, from sync code."""
        run_sync(self.aclose())


def _timeout_seconds(configured: Seconds | Usual | None, upstream: Upstream | str | None) -> float:
    if configured is not USUAL:
        return limit_option("timeout", configured)
    return TIMEOUT_SECONDS if upstream is None else TIMEOUT_WITH_UPSTREAM_SECONDS


def _total_timeout_seconds(configured: Seconds | Usual | None, upstream: Upstream | str | None) -> float:
    if configured is not USUAL:
        return limit_option("total_timeout", configured)
    return TOTAL_TIMEOUT_SECONDS if upstream is None else TOTAL_TIMEOUT_WITH_UPSTREAM_SECONDS


def _definition_key(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__code__.co_filename, function.__qualname__
