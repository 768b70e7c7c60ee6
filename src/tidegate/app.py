"""`Tidegate`: what users see of an application. How it works is in `core`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from tidegate._bridge import run_sync
from tidegate.bulk_enqueue import each
from tidegate.calls.keys import Key, KeyRing
from tidegate.calls.settings import CallTimes
from tidegate.calls.upstream import Upstream
from tidegate.codec.declaration import require_plain_function
from tidegate.config import load_config
from tidegate.configured import PreparedTask, new_task_of
from tidegate.context import Context
from tidegate.core import Core
from tidegate.domain.failure import Reason
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
from tidegate.errors import OptionError
from tidegate.hooks import Hooks
from tidegate.limits.options import UpstreamLimits, make_limits, rate_window
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
)
from tidegate.store.connect import check_url
from tidegate.task import (
    TaskDecorator,
    TaskFunction,
    choose_runs_in,
    function_name,
    retry_rules_option,
)
from tidegate.task_access import TaskAccess
from tidegate.worker.settings import Pool, Timings, pools_option, timings_option

if TYPE_CHECKING:
    from tidegate.admin import (
        Admin,  # a child process imports this module at each start, and never opens the store
    )
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

    _core: Core

    def __init__(
        self,
        url: str | None = None,
        *,
        pools: Sequence[Pool] | None = None,
        timings: Timings | None = None,
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
            modules=tuple(config.modules if modules is None else names_option("modules", modules)),
            limits=make_limits(retries_per_minute=retries, retry_window=window),
        )
        check_url(self.url)

    def __repr__(self) -> str:
        return f"<Tidegate {self.url}, {len(self._core.functions)} task functions>"

    @property
    def url(self) -> str:
        """The URL of its database."""
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
            "priority": priority_option("priority", priority),
            **self._core.upstream_settings(upstream),
            "rate_limit": None if rate_limit is None else rate_window(rate_limit),
            "timeout": _timeout_seconds(timeout, upstream),
            "total_timeout": _total_timeout_seconds(total_timeout, upstream),
            "deadline": NO_LIMIT if deadline is None else duration_deadline("deadline", deadline),
            "max_attempts": attempts_option("max_attempts", max_attempts),
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
            require_plain_function(function)
            where = choose_runs_in(function, runs_in, memory_limit=memory_limit is not None)
            spec = TaskSpec(name=name or function_name(function), runs_in=where, **settings)  # type: ignore[arg-type]
            return self._core.register(function, spec)

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
            times: The time limits of one call; None: the defaults of `CallTimes`, 600 s in all.
            keys: API keys that its calls share, the preferred first. Without any, each client has its own.
            limits: Those of `UpstreamLimits`. A limit that is left out does not apply.

        Raises:
            OptionError: A limit cannot work, or the name is declared with other ones.
        """
        made = Upstream(
            name_option("upstream", name),
            make_limits(**limits),
            provider=provider,
            times=times,
            keys=KeyRing(name, keys, self._core.config.environment or "") if keys else None,
            opened_store=self._core.opened_store,
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
        """Return the task function of that name; its part after the colon will do if it is the only one.

        Raises:
            UnknownFunctionError: None, or several.
        """
        return self._core.function(name)

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
        answers = await self._core.enqueue_all((new_task_of(task) async for task in each(tasks)), conn)
        return [answer.task_id for answer in answers]

    def enqueue_many_sync(self, tasks: Iterable[PreparedTask], *, conn: Any = None) -> list[str]:
        """As `enqueue_many`, from sync code. The iterable is read in the caller's thread."""
        answers = self._core.enqueue_all_sync((new_task_of(task) for task in tasks), conn)
        return [answer.task_id for answer in answers]

    @functools.cached_property
    def admin(self) -> Admin:
        """What operators do: tasks, queues, dead letters, upstreams, workers."""
        from tidegate.admin import Admin

        return Admin(self._core)

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

        core = self._core
        served = core.pools if pools is None else pools_option(pools)
        return EmbeddedWorker(core, served, timings or core.timings, may_restart=True)

    async def aclose(self) -> None:
        """Let go of the store. Safe to repeat; the next use opens it again."""
        await self._core.aclose()

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
