"""The part of a task's context for steps: `ctx.step`, `ctx.step_sync` and `ctx.idempotency_key`."""

from __future__ import annotations

import asyncio
import functools
import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, TypeVarTuple, overload

from tidegate.context.run_control import RunControl, StopReason
from tidegate.context.stop import TaskStopped, TaskSuspended
from tidegate.domain.calls import RECORD_CALLS_LABEL, RECORD_CALLS_WORDS
from tidegate.errors import UsageError

if TYPE_CHECKING:  # the rooms behind them are imported by the first step
    from tidegate.domain.readers import Seconds
    from tidegate.steps import Cache, CacheScope, InDoubt, OnChange, RunSteps
    from tidegate.steps.cache import CacheOptions
    from tidegate.steps.execution import StepExecution
    from tidegate.steps.options import StepOptions
    from tidegate.steps.waits import Wait

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_WORK_CHECK_SECONDS = 0.5
"""How often a run that cannot end yet asks whether another task has done its work."""
TURNS = 10
"""Turns of the event loop that the rest of the function gets to begin another step, before the run ends."""
CHECK_SECONDS = 0.05
"""How often a wait checks whether the steps in flight are done, and a plain function whether to stop."""

_lock = threading.Lock()
"""Held while the steps of a run are made: a function may ask for them in several threads."""


class StepMethods:
    """Steps: pieces of a task whose results are kept, so that a re-run does not do them again."""

    _control: RunControl
    task_id: str
    run: int
    function: str
    upstream: str
    tenant: str
    labels: Mapping[str, str]

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], Awaitable[T]],
        /,
        *args: *Ts,
        key: str | None = None,
        in_doubt: InDoubt = "repeat",
        on_change: OnChange | None = None,
        timeout: Seconds | None = None,
        retry: int = 0,
        cache: Cache | None = None,
        cache_key: str | None = None,
        cache_version: str | None = None,
        cache_scope: CacheScope | None = None,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: str | None = None,
        in_doubt: InDoubt = "repeat",
        on_change: OnChange | None = None,
        timeout: Seconds | None = None,
        retry: int = 0,
        cache: Cache | None = None,
        cache_key: str | None = None,
        cache_version: str | None = None,
        cache_scope: CacheScope | None = None,
    ) -> T: ...

    async def step(
        self,
        name: str,
        fn: Callable[[*Ts], Any],
        /,
        *args: *Ts,
        key: str | None = None,
        in_doubt: InDoubt = "repeat",
        on_change: OnChange | None = None,
        timeout: Seconds | None = None,
        retry: int = 0,
        cache: Cache | None = None,
        cache_key: str | None = None,
        cache_version: str | None = None,
        cache_scope: CacheScope | None = None,
    ) -> Any:
        """Call a function once for this task, and return its result, in this run and in every later one.

        The result is stored before `step` returns. If the task runs again, after a crash, a deploy, a
        failure or a redrive, the step returns the stored result and does not call the function. Steps may
        run at the same time, for example under `asyncio.gather`.

        A step is the same as one of an earlier run if its name and arguments are equal. Equal steps of one
        run differ by their number. So pass a step nothing that changes from run to run, such as the
        time.

        If a run ends in the middle of a step, nobody knows whether the step was done: it is *in doubt*, and
        `tidegate doubts ls` lists it.

        Args:
            name: What the step does, 1 to 200 characters.
            fn: The function to call. A plain function is called in a thread.
            args: Its arguments. The arguments must be storable, like those of a task, unless there is a
                `key`.
            key: Identifies the step instead of its arguments, for example the number of an invoice. In one
                run, too, the step of a key is done once.
            in_doubt: What a later run does if the step is in doubt. `repeat` calls the function again, with
                the same idempotency key. `ask` makes the task a dead letter until a person has decided. A
                function gets the idempotency key and finds out what became of the step: it returns
                `StepDone(result)` if the step was done, and None if it was not.
            on_change: For a step with a `key` whose arguments differ from those of its recorded result:
                `rerun` does it again, `error` raises. None returns the recorded result.
            timeout: The longest that the function may take: seconds, a timedelta, or text such as `30s`.
                After that the step fails with TimeoutError, and is in doubt.
            retry: How often the function is called again in this run, after short pauses, if its failure is
                transient: at most 20. A refusal for want of capacity (429, overload) is left to the task,
                whose upstream then parks. A step in doubt is called again only as `in_doubt` allows.
            cache: Whether other tasks that call the same function with equal arguments get the result too:
                True for 24 hours, or for how long: seconds, a timedelta, or text such as `7d`. While one task
                does the work, the others are suspended. A result of more than 256 KiB is not shared.
            cache_key: A key that identifies the content in place of the arguments.
            cache_version: Part of what must be equal. Change it if your function gives other results than
                before.
            cache_scope: `tenant` (the default) shares results only among the tasks of one tenant, `all` among
                those of all tenants.

        Returns:
            The function's result, decoded from its stored form by the function's return annotation.

        Raises:
            TaskStopped: This run was asked to stop, or is no longer the task's current one.
            ArgumentsError: The arguments or the result cannot be stored.
            OptionError: An option is invalid.
            StepInDoubtError: The step is in doubt, and `in_doubt` is `ask`.
            StepRejectedError: A person decided that the step must not be done again.
            Exception: What the function raised.
        """
        from tidegate.steps import StepLost, StepRefused, do_step

        shared = _shared(cache, cache_key, cache_version, cache_scope)
        options = _options(name, key, in_doubt, on_change, timeout, retry, shared)
        execution, steps = self._begin_step(name, fn, args, options)
        try:
            with steps.waits.doing_step():
                call = functools.partial(fn, *args)
                return await do_step(
                    execution, steps, call, options, self._require_current, self._wait_for_work
                )
        except StepLost:
            raise TaskStopped(StopReason.LOST.value) from None
        except StepRefused:
            await self._stop_cancelling()

    def step_sync(
        self,
        name: str,
        fn: Callable[[*Ts], T],
        /,
        *args: *Ts,
        key: str | None = None,
        in_doubt: InDoubt = "repeat",
        on_change: OnChange | None = None,
        retry: int = 0,
        cache: Cache | None = None,
        cache_key: str | None = None,
        cache_version: str | None = None,
        cache_scope: CacheScope | None = None,
    ) -> T:
        """Do the same as `step`, from a plain function."""
        from tidegate.steps import StepLost, StepRefused, do_step_sync

        self._require_no_loop("ctx.step_sync", "use `await ctx.step(…)`")
        shared = _shared(cache, cache_key, cache_version, cache_scope)
        options = _options(name, key, in_doubt, on_change, None, retry, shared)
        execution, steps = self._begin_step(name, fn, args, options)
        try:
            with steps.waits.doing_step():
                call = functools.partial(fn, *args)
                result: T = do_step_sync(
                    execution, steps, call, options, self._require_current, self._wait_for_work_sync
                )
        except StepLost:
            raise TaskStopped(StopReason.LOST.value) from None
        except StepRefused:
            raise TaskStopped(StopReason.CANCEL.value) from None
        return result

    @property
    def idempotency_key(self) -> str:
        """Identifies the work for a provider. This key is the same in each run of this task.

        Inside a step it is the key of that step, otherwise the key of the task. Send it to a provider that
        does nothing twice for one key.
        """
        from tidegate.steps import current_step

        step = current_step()
        return self.task_id if step is None else step.idempotency_key

    def raise_if_cancelled(self) -> None:
        """Raise `TaskStopped` if this run was asked to stop.

        Raises:
            TaskStopped: It was. Let it pass.
        """
        if self._control.stop is not None:
            raise TaskStopped(self._control.stop.value)

    async def _wait_for_work(self, wait: Wait) -> None:
        """Wait a while for a task that does the same work, or suspend this task until then."""
        waits = self._steps().waits
        with waits.pausing_step(), waits.waiting(wait):
            await self._wait(wait, _WORK_CHECK_SECONDS)

    def _wait_for_work_sync(self, wait: Wait) -> None:
        waits = self._steps().waits
        with waits.pausing_step(), waits.waiting(wait):
            self._wait_sync(wait, _WORK_CHECK_SECONDS)

    @abstractmethod
    async def _wait(self, wait: Wait, at_most: float) -> None:
        """Return when a wait is over or after `at_most` seconds, or end the run for it."""

    @abstractmethod
    def _wait_sync(self, wait: Wait, at_most: float) -> None:
        """Do the same in a plain function."""

    async def _stop_cancelling(self) -> NoReturn:
        """End a run that only cancels provider jobs, once no other code of the run cancels one.

        Raises:
            TaskStopped: Always.
        """
        waits = self._steps().waits
        for _ in range(TURNS):
            await asyncio.sleep(0)
        while waits.steps()[0]:  # noqa: ASYNC110 - threads end steps too
            await asyncio.sleep(CHECK_SECONDS)
        raise TaskStopped(StopReason.CANCEL.value)

    def _begin_step(
        self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], options: StepOptions
    ) -> tuple[StepExecution, RunSteps]:
        from tidegate.steps import StepExecution

        self._require_current()
        steps = self._steps()
        return StepExecution(steps, name, fn, args, options), steps

    def _require_current(self) -> None:
        """Raise if no step may start any more: the run was asked to stop, suspended itself, or is over."""
        self.raise_if_cancelled()
        if self._control.suspension is not None:
            raise TaskSuspended(self._control.suspension.why)
        if self._control.is_over:
            message = "its run has ended"
            raise TaskStopped(message)
        if self._control.is_ending and not self._is_in_step():
            message = "its function has failed"
            raise TaskStopped(message)

    @staticmethod
    def _is_in_step() -> bool:
        from tidegate.steps import current_step

        return current_step() is not None

    def _require_no_loop(self, called: str, fix: str) -> None:
        """Raise if a call that waits for the store would block an event loop: perhaps that of the worker.

        Raises:
            UsageError: Called inside an event loop, in a run of a worker.
        """
        if self._control.step_port is None:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise UsageError(f"{called} was called inside an event loop, which it would block", fix=fix)

    def _steps(self) -> RunSteps:
        """Return the steps of this run; always the same object."""
        from tidegate.domain.outcome import Fence
        from tidegate.steps import NotRecorded, RunSteps

        with _lock:
            if self._control.steps is None:
                port = self._control.step_port or NotRecorded()
                self._control.steps = RunSteps(
                    Fence(self.task_id, self.run),
                    self.function,
                    port,
                    self.upstream,
                    self.tenant,
                    self._control.events,
                )
                self._control.steps.is_cancelling = self._control.is_cancelling
            return self._control.steps


def recorded_steps(run: StepMethods) -> RunSteps | None:
    """Return the steps of a run, for its transports; None in a plain call, whose steps are not kept."""
    return None if run._control.step_port is None else run._steps()  # noqa: SLF001 - not for task functions


def records_calls(run: StepMethods, default: bool) -> bool:
    """Return whether the calls of a run are recorded: as its task says, else its function, else `default`."""
    word = run.labels.get(RECORD_CALLS_LABEL)
    if word is not None:
        return word == RECORD_CALLS_WORDS[True]
    by_function = run._control.records_calls  # noqa: SLF001 - not for task functions
    return default if by_function is None else by_function


def _options(
    name: str,
    key: str | None,
    in_doubt: InDoubt,
    on_change: OnChange | None,
    timeout: Seconds | None,
    retry: int,
    cache: CacheOptions | None,
) -> StepOptions:
    from tidegate.steps import step_options

    return step_options(
        name, key=key, in_doubt=in_doubt, on_change=on_change, timeout=timeout, retry=retry, cache=cache
    )


def _shared(
    cache: Cache | None, key: str | None, version: str | None, scope: CacheScope | None
) -> CacheOptions | None:
    """Return how a step shares its results; without `cache` nothing is imported or compared."""
    if cache is None and key is None and version is None and scope is None:
        return None
    from tidegate.steps import cache_options

    return cache_options(cache, key=key, version=version, scope=scope)
