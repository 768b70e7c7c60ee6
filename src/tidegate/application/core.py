"""What Tidegate's own rooms use of an application: its store, its declarations, its hooks. Not public.

`core_of(app)` leads here from an application.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tidegate.application.bulk_enqueue import BulkEnqueue, each
from tidegate.application.manifest import make_manifest
from tidegate.application.map_enqueue import MapEnqueue
from tidegate.application.replacement import Replacement
from tidegate.application.sending import Sending, TaskSender
from tidegate.application.task_schedule import TaskSchedule
from tidegate.application.unserved import UnservedTaskWarner
from tidegate.calls.upstream import Upstream
from tidegate.config import Config
from tidegate.domain.ids import IdMaker
from tidegate.domain.modules import module_name
from tidegate.domain.readers import name_option, shown, wrong
from tidegate.domain.retention import Retention
from tidegate.domain.spec import TaskSpec
from tidegate.errors import ConfigError, OptionError, UnknownFunctionError, UsageError
from tidegate.hooks import HookLists, Hooks
from tidegate.internals import core_of
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.monitor.otel.start import is_used, start
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.schedule.declared import DeclaredSchedule, ScheduleSet
from tidegate.store.connect import open_store
from tidegate.store.rows import EnqueueResult
from tidegate.task import TaskFunction, defined_at
from tidegate.threads.bridge import run_sync
from tidegate.worker.settings import Pool, Timings

if TYPE_CHECKING:  # a child process imports this module at each start, and never opens the store
    from tidegate.store.map_rows import MapRow, NewMap
    from tidegate.store.protocol import Store
    from tidegate.store.rows import NewTask


class Core(HookLists):
    """The internals of one application. Task functions store their tasks by it.

    Args:
        url: Of the database.
        config: What `tidegate.toml` and the environment say.
        pools: Worker pools.
        timings: Leases, heartbeats and grace times.
        retention: How long final tasks are kept.
        modules: Other modules that declare task functions of the application.
        limits: The retry budget of the whole system.
        made_in: The name of the module that made the application.
    """

    def __init__(
        self,
        url: str,
        config: Config,
        *,
        pools: tuple[Pool, ...],
        timings: Timings,
        retention: Retention,
        modules: tuple[str, ...],
        limits: Limits,
        made_in: str = "",
    ) -> None:
        super().__init__()
        self._made_in = made_in
        self.url = url
        self.config = config
        self.links = config.links
        self.pools = pools
        self.timings = timings
        self.retention = retention
        self.modules = modules
        self.functions: dict[str, TaskFunction[Any, Any, Any]] = {}
        self.upstreams: dict[str, Upstream] = {}
        self.schedules: dict[str, TaskSchedule] = {}
        self.unserved = UnservedTaskWarner(pools)
        self._system_limits = limits
        self._sender = TaskSender(self.events)
        self._opened_in_pid = 0
        self._replacements: list[Replacement] = []
        self._lock, self._lock_pid = threading.Lock(), os.getpid()
        self._task_watchers: WeakKeyDictionary[asyncio.AbstractEventLoop, TaskWatcher] = WeakKeyDictionary()
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)

    # --- declaring ---------------------------------------------------------------------------------------

    def function(self, name: str) -> TaskFunction[Any, Any, Any]:
        """Return the task function of that name. The part after the colon is enough if it is unambiguous.

        Raises:
            UnknownFunctionError: None, or several.
        """
        if name in self.functions:
            return self.functions[name]
        matches = [function for full, function in self.functions.items() if full.rpartition(":")[2] == name]
        if len(matches) == 1:
            return matches[0]
        raise UnknownFunctionError(
            f"no task function is named {shown(name)}",
            fix=f"declared: {', '.join(sorted(self.functions)) or 'none'}",
            function=name,
        )

    def declared(self) -> list[LimitDeclaration]:
        """Return the limits this application declares, for the store."""
        return [
            LimitDeclaration(GateKind.SYSTEM, "", self._system_limits),
            *(each for upstream in self.upstreams.values() for each in upstream.with_keys()),
            *(
                LimitDeclaration(GateKind.FUNCTION, name, Limits((function.spec.rate_limit,)))
                for name, function in self.functions.items()
                if function.spec.rate_limit
            ),
        ]

    def upstream_settings(self, upstream: Upstream | str | None) -> dict[str, str]:
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
                option="upstream",
                value=name,
            )
        return {"upstream": name, "provider": self.upstreams[name].calls.provider}

    def register(self, function: Callable[..., Any], spec: TaskSpec) -> TaskFunction[Any, Any, Any]:
        """Make a task function of a function and keep it by its name.

        Raises:
            OptionError: The name cannot work.
            ConfigError: The name is taken by another function.
        """
        name_option("name", spec.name)
        known = self.functions.get(spec.name)  # the same function again is a reload of its module
        if known is not None and _definition_key(known.function) != _definition_key(function):
            raise ConfigError(
                f"two task functions are named {spec.name}: {defined_at(known.function)} "
                f"and {defined_at(function)}",
                fix="give one of them another name=",
                function=spec.name,
            )
        task_function: TaskFunction[Any, Any, Any] = TaskFunction(function, spec, self)
        self.functions[spec.name] = task_function
        return task_function

    def add_schedule(self, schedule: TaskSchedule) -> None:
        """Keep a declared schedule by its name.

        Raises:
            ConfigError: Another function's schedule has the name, or the same function has it twice.
        """
        known = self.schedules.get(schedule.name)
        if known is not None and (
            known.function is schedule.function
            or _definition_key(known.function.function) != _definition_key(schedule.function.function)
        ):
            raise ConfigError(
                f"two schedules are named {schedule.name}",
                fix='give each another name: @app.schedule("0 7 * * *", name="…")',
                function=schedule.function.spec.name,
            )
        self.schedules[schedule.name] = schedule

    def declared_schedules(self) -> list[DeclaredSchedule]:
        """Return the declared schedules by name, ready to be stored.

        Raises:
            ArgumentsError: The arguments of a schedule do not fit its function.
        """
        return [schedule.declared() for _, schedule in sorted(self.schedules.items())]

    def reference(self) -> str:
        """Return `module:attribute`, the name by which workers import the application, as far as known here.

        The application is looked for in the module that made it. Without such an attribute, it is `app`.
        """
        attributes = dict(vars(sys.modules.get(self._made_in, sys)))
        names = [
            name
            for name, value in attributes.items()
            if issubclass(type(value), Hooks) and core_of(value) is self
        ]
        try:
            module = module_name(self._made_in)
        except ConfigError:  # a program without a file
            module = self._made_in
        return f"{module}:{names[0] if names else 'app'}"

    def schedule_set(self) -> ScheduleSet:
        """Return the schedules that this application declares.

        Raises:
            ArgumentsError: The arguments of a schedule do not fit its function.
        """
        return ScheduleSet(self.reference(), tuple(self.declared_schedules()))

    def manifest(self) -> dict[str, Any]:
        """Return what this application declares, for processes that cannot import it."""
        return make_manifest(self.functions, self.declared_schedules())

    @functools.cached_property
    def store(self) -> Store:
        """The store, made at its first use; `opened_store` also opens it."""
        return open_store(self.url)

    @contextmanager
    def replaced_store(self, store: Store, url: str) -> Iterator[None]:
        """Use another store inside the block. For tests: nothing may wait for a task when the block ends.

        Raises:
            UsageError: Another thread or asyncio task is inside such a block: its tasks would be stored here.
        """
        names = ("store", "url", "unserved", "_opened_in_pid", "_task_watchers")
        with self._process_lock():
            mine = Replacement({name: vars(self)[name] for name in names if name in vars(self)})
            if self._replacements and not mine.is_within(self._replacements[-1]):
                raise UsageError(
                    "another test uses this application at the same time",
                    fix="run its tests one after the other, or in processes: pytest -n 4",
                )
            self._replacements.append(mine)
            vars(self).update(
                store=store,
                url=url,
                unserved=UnservedTaskWarner(self.pools),
                _opened_in_pid=0,
                _task_watchers=WeakKeyDictionary(),
            )
        try:
            yield
        finally:
            with self._process_lock():
                at = self._replacements.index(mine)
                if at + 1 < len(self._replacements):  # a block that began later goes on
                    self._replacements[at + 1].before = mine.before
                else:
                    del vars(self)["store"]
                    vars(self).update(mine.before)
                del self._replacements[at]

    # --- storing -----------------------------------------------------------------------------------------

    def next_id(self) -> str:
        """Return a fresh task id; ids of one process rise."""
        with self._process_lock():
            return self._make_id()

    def _process_lock(self) -> threading.Lock:
        """Return the lock of this process; a forked child might wait for its parent's lock for ever."""
        if self._lock_pid != os.getpid():
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        return self._lock

    async def opened_store(self) -> Store:
        """Return the store, opened in this process."""
        if self._opened_in_pid != os.getpid():
            await self.store.open()
            self._opened_in_pid = os.getpid()
        self.observe()
        return self.store

    def observe(self) -> None:
        """Have OpenTelemetry subscribe to the events, if it is used here. Safe to repeat.

        Raises:
            ConfigError: OpenTelemetry is to be used always, but is not installed.
        """
        if self._sender.tracer is None and is_used(self.config.telemetry.opentelemetry):
            with self._process_lock():
                if self._sender.tracer is None:
                    self._sender.tracer = start(self.events, self.config.telemetry)

    def task_watcher(self, store: Store) -> TaskWatcher:
        """Return the running loop's watcher of tasks."""
        loop = asyncio.get_running_loop()
        with self._process_lock():
            if loop not in self._task_watchers:
                self._task_watchers[loop] = TaskWatcher(store)
            return self._task_watchers[loop]

    async def enqueue_prepared(self, task: NewTask, conn: Any = None) -> EnqueueResult:
        """Store one prepared task; in the transaction open on `conn`, if one is given."""
        return await self.enqueue_in(await self.opened_store(), task, conn)

    async def enqueue_in(self, store: Store, task: NewTask, conn: Any = None) -> EnqueueResult:
        """Store one prepared task in an open store, which need not be the application's own."""
        self.observe()
        with self._sender.sending(task) as sending:
            tasks = [sending.traced(task)]
            answers = await (store.enqueue(tasks) if conn is None else store.enqueue_within(conn, tasks))
        self._sender.stored(sending, answers)
        kind = (task.queue, task.function)
        if not self.unserved.has_checked(kind):
            await self.unserved.warn(store, [kind])
        return answers[0]

    def enqueue_prepared_sync(self, task: NewTask, conn: Any) -> EnqueueResult:
        """Store one prepared task in the transaction open on a connection that blocks."""
        self.observe()
        with self._sender.sending(task) as sending:
            answers = self.store.enqueue_within_sync(conn, [sending.traced(task)])
        self._sender.stored(sending, answers)
        return answers[0]

    async def enqueue_all(
        self, tasks: Iterable[NewTask] | AsyncIterable[NewTask], conn: Any = None
    ) -> Sequence[EnqueueResult]:
        """Store these tasks, all or none, and answer in their order."""
        store = await self.opened_store()
        with self._sender.sending() as sending:
            traced = sending.each_traced(tasks)
            if conn is not None:
                answers = await store.enqueue_within(conn, [task async for task in each(traced)])
            else:
                bulk_enqueue = BulkEnqueue(store, self.next_id())
                answers = await bulk_enqueue.store(traced)
        self._sender.stored(sending, answers)
        if conn is None:
            await self.unserved.warn(store, sending.sent)
        return answers

    def enqueue_all_sync(self, tasks: Iterable[NewTask], conn: Any = None) -> Sequence[EnqueueResult]:
        """Same as `enqueue_all`, from sync code."""
        store = self.store if conn is not None else run_sync(self.opened_store())
        self.observe()
        with self._sender.sending() as sending:
            traced = sending.all_traced(tasks)
            if conn is not None:
                answers = store.enqueue_within_sync(conn, list(traced))
            else:
                answers = BulkEnqueue(store, self.next_id()).store_sync(traced)
        self._sender.stored(sending, answers)
        if conn is None:
            run_sync(self.unserved.warn(store, sending.sent))
        return answers

    async def enqueue_map(
        self,
        new: NewMap,
        tasks: Iterable[NewTask] | AsyncIterable[NewTask],
        fingerprint_of: Callable[[bytes], bytes],
    ) -> MapRow:
        """Store a map with these items, or return the map that has its key."""
        store = await self.opened_store()
        existing = None if new.key is None else await store.find_map(new.tenant, new.key)
        with self._sender.sending() as sending:
            map_enqueue = MapEnqueue(store, new, fingerprint_of, existing)
            stored = await map_enqueue.store(sending.each_traced(tasks))
        await self._after_map(store, new, stored, sending)
        return stored

    def enqueue_map_sync(
        self, new: NewMap, tasks: Iterable[NewTask], fingerprint_of: Callable[[bytes], bytes]
    ) -> MapRow:
        """Same as `enqueue_map`, from sync code."""
        store = run_sync(self.opened_store())
        existing = None if new.key is None else run_sync(store.find_map(new.tenant, new.key))
        with self._sender.sending() as sending:
            map_enqueue = MapEnqueue(store, new, fingerprint_of, existing)
            stored = map_enqueue.store_sync(sending.all_traced(tasks))
        run_sync(self._after_map(store, new, stored, sending))
        return stored

    async def _after_map(self, store: Store, new: NewMap, stored: MapRow, sending: Sending) -> None:
        if stored.id == new.id:
            self._sender.stored(sending, [EnqueueResult(task.id, created=True) for task in sending.tasks])
            await self.unserved.warn(store, sending.sent)

    async def aclose(self) -> None:
        """Close the store. Safe to repeat; the next use opens the store again."""
        self._opened_in_pid = 0
        await self.store.close()


def _definition_key(function: Callable[..., Any]) -> tuple[str, str]:
    return function.__code__.co_filename, function.__qualname__
