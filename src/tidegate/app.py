"""`Tidegate`: what users see of an application. How it works is in `application.core`."""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, overload

from tidegate.application.core import Core
from tidegate.application.task_schedule import ScheduleDecorator, ScheduleSettings, read_schedule
from tidegate.calls.keys import Key, KeyRing
from tidegate.calls.settings import RECORD_MAX_BYTES, CallTimes, admission_option, recording_option
from tidegate.calls.upstream import Upstream
from tidegate.codec.declaration import require_plain_function
from tidegate.config import load_config
from tidegate.configured import PreparedTask, new_task_of
from tidegate.context import Context
from tidegate.domain.readers import (
    Seconds,
    Size,
    name_option,
    names_option,
    shown,
)
from tidegate.domain.retention import Retention, retention_option
from tidegate.domain.spec import (
    TaskSpec,
)
from tidegate.errors import OptionError
from tidegate.hooks import Hooks
from tidegate.limits.options import UpstreamLimits, make_limits
from tidegate.options import require_no_cycle
from tidegate.store.connect import check_url
from tidegate.task import TaskDecorator, TaskFunction
from tidegate.task_access import TaskAccess
from tidegate.task_settings import TaskSettings, choose_runs_in, function_name, read_settings
from tidegate.threads.bridge import run_sync
from tidegate.worker.settings import Pool, Timings, pools_option, timings_option

if TYPE_CHECKING:
    from tidegate.admin import (
        Admin,  # a child process imports this module at each start, and never opens the store
    )
    from tidegate.worker.embedded import EmbeddedWorker

P = ParamSpec("P")
R = TypeVar("R")


class Tidegate(Hooks, TaskAccess):
    """A Tidegate application: declares task functions and upstreams, and enqueues tasks.

    Args:
        url: `sqlite:///path.db` or a path; None: `TIDEGATE_DATABASE_URL`, else `tidegate.toml`, else
            `.tidegate/tidegate.db`.
        pools: Worker pools. None: the pools in `tidegate.toml`, else one pool for every queue.
        timings: Leases, heartbeats and grace times. None: the values in `tidegate.toml`, else the defaults.
        retention: How long final tasks are kept. None: the values in `tidegate.toml`, else the defaults.
        modules: Other modules that declare task functions of this application. Workers and commands import
            them after the application's own module. None: the list in `tidegate.toml`.
        retries_per_minute: The retry budget of the whole system; it also counts tasks without an upstream.
            None: the value in `tidegate.toml`, else 600.
        retry_window: Time over which the retry budget holds. None: the value in `tidegate.toml`, else 60 s.

    Example:
        >>> app = Tidegate("sqlite:///queue.db")
        >>> @app.task(queue="mail", max_attempts=5)
        ... async def greet(name: str) -> str:
        ...     return f"hello {name}"

    Raises:
        ConfigError: The URL, or a setting in `tidegate.toml`, is invalid.
    """

    _core: Core

    def __init__(
        self,
        url: str | None = None,
        *,
        pools: Sequence[Pool] | None = None,
        timings: Timings | None = None,
        retention: Retention | None = None,
        modules: Sequence[str] | None = None,
        retries_per_minute: float | None = None,
        retry_window: Seconds | None = None,
    ) -> None:
        config = load_config()
        retries = config.retries_per_minute if retries_per_minute is None else retries_per_minute
        window = config.retry_window if retry_window is None else retry_window
        self._core = Core(
            url or config.database_url,
            config,
            pools=config.pools if pools is None else pools_option(pools),
            timings=config.timings if timings is None else timings_option(timings),
            retention=config.retention if retention is None else retention_option(retention),
            modules=tuple(config.modules if modules is None else names_option("modules", modules)),
            limits=make_limits(retries_per_minute=retries, retry_window=window),
            made_in=_calling_module(),
        )
        check_url(self.url)

    def __repr__(self) -> str:
        return f"<Tidegate {self.url}, {len(self._core.functions)} task functions>"

    @property
    def url(self) -> str:
        """The URL of the application's database."""
        return self._core.url

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
    def task(self, /, **settings: Unpack[TaskSettings]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, /, **settings: Unpack[TaskSettings]) -> Any:
        """Declare a task function, with or without settings.

        Args:
            function: The function, when used without settings.
            settings: Those of `TaskSettings`.

        Raises:
            OptionError: There is no such setting, or a value is invalid.
            ConfigError: The function cannot be a task function, or its name is taken.
        """
        fields = read_settings(settings) | self._core.upstream_settings(settings.get("upstream"))
        has_memory_limit = settings.get("memory_limit") is not None

        def declare(function: Callable[..., Any]) -> TaskFunction[Any, Any, Any]:
            require_plain_function(function)
            runs_in = choose_runs_in(function, settings.get("runs_in"), memory_limit=has_memory_limit)
            name = settings.get("name") or function_name(function)
            require_no_cycle(name, fields.get("on_final"))
            return self._core.register(function, TaskSpec(name=name, runs_in=runs_in, **fields))

        return declare if function is None else declare(function)

    def schedule(self, when: str, /, **settings: Unpack[ScheduleSettings]) -> ScheduleDecorator:
        """Enqueue a task of a task function on a schedule. Write it above `@app.task`.

        Any worker and any `tidegate scheduler` fires the ticks; each tick has one task. A schedule that the
        code no longer declares stops.

        Args:
            when: Cron, such as `0 7 * * 1-5`, a word such as `@daily`, or an interval, such as `every 30s`.
            settings: Those of `ScheduleSettings`.

        Raises:
            OptionError: There is no such setting, or a value is invalid.
            ArgumentsError: `args` does not fit the function.
            ConfigError: Another schedule has the name.

        Example:
            >>> app = Tidegate("sqlite:///queue.db")
            >>> @app.schedule("0 7 * * 1-5", timezone="Europe/Berlin", args=("board",))
            ... @app.task
            ... async def send_report(team: str) -> None: ...
        """
        return ScheduleDecorator(
            lambda function: self._core.add_schedule(read_schedule(function, when, settings))
        )

    def upstream(
        self,
        name: str,
        *,
        provider: str = "",
        times: CallTimes | None = None,
        keys: Sequence[Key] = (),
        record: bool = False,
        record_max_bytes: Size = RECORD_MAX_BYTES,
        in_doubt: Literal["repeat", "ask"] = "repeat",
        admission: Literal["max_tokens", "actual"] | None = None,
        **limits: Unpack[UpstreamLimits],
    ) -> Upstream:
        """Declare an outside service that tasks call; pass the returned value to `@app.task(upstream=…)`.

        Args:
            name: Its name in the store, in status output and on the command line.
            provider: The provider whose error formats it uses, such as `openai`, `anthropic` or `dashscope`;
                empty: the provider that `name` starts with.
            times: The time limits of one call. None: the defaults of `CallTimes`, 600 s in total.
            keys: API keys that its calls share, the preferred one first. Without keys, clients use their own.
            record: Whether each response to a call in a task is kept with the task. A later run that makes
                the same call gets the kept response, and nothing is sent or paid again.
            record_max_bytes: A larger response is not kept: bytes, or text such as `4MiB`; at most 16 MiB.
            in_doubt: For recorded calls: what a later run does with a call that may have been processed.
                `repeat` makes it again, with the same idempotency key. `ask` makes the task a dead letter
                until a person has decided.
            admission: How the provider counts tokens against its limits when a call begins: with its
                `max_tokens`, or with what calls really use. None: as the provider is known to count.
            limits: The limits of `UpstreamLimits`. A limit that is left out does not apply.

        Raises:
            OptionError: An option is invalid, or the name is already declared with other limits.
        """
        made = Upstream(
            name_option("upstream", name),
            make_limits(**limits),
            provider=provider,
            times=times,
            recording=recording_option(record, record_max_bytes, in_doubt),
            admission=admission_option(admission),
            keys=KeyRing(name, keys, self._core.config.environment or "") if keys else None,
            opened_store=self._core.opened_store,
            events=self._core.events,
        )
        if (known := self._core.upstreams.get(name)) is not None and known.limits != made.limits:
            raise OptionError(
                f"upstream {shown(name)} is declared twice, with different limits",
                fix="declare it once",
                option="upstream",
                value=name,
            )
        return self._core.upstreams.setdefault(name, made)

    def function(self, name: str) -> TaskFunction[Any, Any, Any]:
        """Return the task function of that name. The part after the colon is enough if it is unambiguous.

        Raises:
            UnknownFunctionError: No function has this name, or several end in it.
        """
        return self._core.function(name)

    async def enqueue_many(
        self, tasks: Iterable[PreparedTask] | AsyncIterable[PreparedTask], *, conn: Any = None
    ) -> list[str]:
        """Store prepared tasks, all or none, and return their ids in order.

        Up to 5,000 tasks are one transaction. More tasks are staged in parts of 5,000, so that memory use
        stays small and no lock is held for long. All of them become visible together at the end. If the
        iterable raises, nothing is stored.

        Args:
            tasks: Tasks made by `f.prepare(…)`, of one function or several. An iterator is read step by step.
            conn: Your own connection or session, as for `using(conn=…)`. All tasks join its open transaction,
                and all are read before the first is sent.

        Raises:
            KeyConflictError: A key is taken by a task with other arguments. Nothing was stored.
            UsageError: An item is not a prepared task.
        """
        if isinstance(tasks, AsyncIterable):
            answers = await self._core.enqueue_all((new_task_of(task) async for task in tasks), conn)
        else:
            answers = await self._core.enqueue_all((new_task_of(task) for task in tasks), conn)
        return [answer.task_id for answer in answers]

    def enqueue_many_sync(self, tasks: Iterable[PreparedTask], *, conn: Any = None) -> list[str]:
        """Same as `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        answers = self._core.enqueue_all_sync((new_task_of(task) for task in tasks), conn)
        return [answer.task_id for answer in answers]

    async def send_event(
        self,
        name: str,
        data: Any = None,
        *,
        tenant: str = "",
        key: str | None = None,
        keep: Seconds = "7d",
    ) -> int:
        """Send an event to the tasks that wait for it by `ctx.wait_event`; return how many waited.

        Each task that waits for the name gets the event, and so does each task that begins to wait for it
        while it is kept. Put what identifies your case into the name, such as `order:123:paid`.

        Args:
            name: Its name, 1 to 200 characters.
            data: What the tasks get: any value that can be stored, up to 1 MiB.
            tenant: The tenant whose tasks get it. Empty: tasks without a tenant.
            key: Makes the call safe to repeat: while an event is kept, another with the same name and key
                changes nothing. Use the id that the sender of a webhook gives it.
            keep: How long it is kept: seconds, a timedelta, or text such as `30d`; at most 366 days.

        Raises:
            OptionError: An option is invalid.
            ArgumentsError: The data cannot be stored.
        """
        from tidegate.operations.send_event import send_event

        store = await self._core.opened_store()
        return await send_event(store, name, data, tenant=tenant, key=key, keep=keep)

    def send_event_sync(
        self,
        name: str,
        data: Any = None,
        *,
        tenant: str = "",
        key: str | None = None,
        keep: Seconds = "7d",
    ) -> int:
        """Same as `send_event`, from sync code."""
        return run_sync(self.send_event(name, data, tenant=tenant, key=key, keep=keep))

    @functools.cached_property
    def admin(self) -> Admin:
        """Operators' methods for tasks, queues, dead letters, upstreams and workers."""
        from tidegate.admin import Admin

        return Admin(self._core)

    # --- running -----------------------------------------------------------------------------------------

    def worker(
        self, *, pools: Sequence[Pool] | None = None, timings: Timings | None = None
    ) -> EmbeddedWorker:
        """Return a worker that runs inside this process. Start it with `async with`.

        Use it in web processes, tests and notebooks. All its pools run in the event loop that starts it. A
        thread renews their leases, so that a blocked loop does not lose them; it also runs maintenance:
        schedules, redrives, retention and the alerts of `tidegate.toml`. If a lease is lost anyway, the
        worker stops its tasks, writes no results for them, and starts again under new ids.

        Differences from `tidegate worker`:

        - It starts no processes. A `def` function runs in a thread of this process. An `async def` function
          runs in the event loop, also with `runs_in="process"`. Nothing can kill a function: it keeps its
          slot until it returns.
        - Memory and GPU limits (`memory_limit`, `memory_soft_limit`, `vram_limit`, `gpus`), `processes` and
          `child_runs` of a pool have no effect, and `on_child_start` hooks are not run.
        - A crash, or a loop that is blocked for longer than `stall_limit`, ends all its tasks.
        - It does not replace itself: `ctx.replace_process` has no effect.

        Args:
            pools: The pools it serves; None: all pools of this application.
            timings: Leases, heartbeats and grace times. None: this application's timings.
        """
        from tidegate.worker.embedded import EmbeddedWorker

        core = self._core
        served = core.pools if pools is None else pools_option(pools)
        return EmbeddedWorker(
            core, served, timings or core.timings, may_restart=True, alerts=core.config.alerts
        )

    async def aclose(self) -> None:
        """Close the store. Safe to repeat; the next use opens the store again."""
        await self._core.aclose()

    def close(self) -> None:
        """Same as `aclose`, from sync code."""
        run_sync(self.aclose())


def _calling_module() -> str:
    """Return the name of the module that makes an application."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to the caller
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))
