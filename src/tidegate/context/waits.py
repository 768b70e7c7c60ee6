"""The part of a task's context for long waits: `ctx.sleep`, `ctx.wait_event` and `ctx.gather`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from tidegate.context.run_control import StopReason, SuspensionRequest
from tidegate.context.steps import CHECK_SECONDS, TURNS, StepMethods
from tidegate.context.stop import TaskStopped, TaskSuspended
from tidegate.domain.final_result import OtherTask
from tidegate.domain.readers import LONGEST_WAIT_SECONDS, Seconds, seconds_option, short_text_option
from tidegate.domain.step import KEY_LENGTH
from tidegate.domain.text import format_duration
from tidegate.errors import EventTimeoutError, UsageError

if TYPE_CHECKING:  # imported by the first wait
    from tidegate.context.children import Children
    from tidegate.steps.waits import RunWaits, Wait
    from tidegate.store.event_rows import EventWait, WaitAnswer

T = TypeVar("T")

SUSPEND_SECONDS = 5.0
"""A run ends for a wait of at least this long. For a shorter one, ending it and starting it again would cost
more than the slot does."""

_SLEEP = "sleep"
_EVENT_CHECK_SECONDS = 1.0
"""How often a run that cannot end yet asks for its event."""
_CHILD_CHECK_SECONDS = 1.0
"""How often a run that cannot end yet checks whether the tasks that it waits for have ended."""
_ROUNDING_SECONDS = 0.001
"""A wait with less than this left is over."""


class WaitMethods(StepMethods):
    """Long waits: the task gives its slot back, and runs again when the wait is over."""

    tenant: str

    async def sleep(self, duration: Seconds, *, key: str | None = None) -> None:
        """Wait for this long without using a slot of the worker, also over restarts and deploys.

        The first time, `sleep` records when it will be over. If that is 5 seconds away or more, the run ends
        there and the task is `suspended`. When the time has come, the task runs again from its beginning:
        its recorded steps return their results, the sleep returns at once, and the function goes on. Nothing
        is charged for the run that ended. Its `finally` blocks run.

        While a step is in flight, the run goes on until the step is done. Work outside of steps is cut off.

        Args:
            duration: How long: seconds, a timedelta, or text such as `2h`; at most 366 days. Less than 0
                counts as 0.
            key: Names this sleep: a sleep with the same key is the same sleep. Without one, the sleeps of a
                task are distinguished by their number, in the order in which the function comes to them.

        Raises:
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            OptionError: `duration` is invalid.
        """
        from tidegate.steps.waits import Wait

        seconds = _duration(duration)
        if self._sleeps_in_process():
            await asyncio.sleep(seconds)
            return

        async def wake_at() -> float:
            return self._store_now() + seconds

        ends_at = self._run_clock_at(await self.step(_SLEEP, wake_at, key=key))
        with self._steps().waits.waiting(Wait(ends_at, f"sleeps {format_duration(seconds)}")) as wait:
            await self._wait(wait)

    def sleep_sync(self, duration: Seconds, *, key: str | None = None) -> None:
        """Do the same as `sleep`, from a plain function."""
        from tidegate.steps.waits import Wait

        self._require_no_loop("ctx.sleep_sync", "use `await ctx.sleep(…)`")
        seconds = _duration(duration)
        if self._sleeps_in_process():
            time.sleep(seconds)
            return
        wakes_at = self.step_sync(_SLEEP, lambda: self._store_now() + seconds, key=key)
        why = f"sleeps {format_duration(seconds)}"
        with self._steps().waits.waiting(Wait(self._run_clock_at(wakes_at), why)) as wait:
            self._wait_sync(wait)

    async def wait_event(self, name: str, *, timeout: Seconds | None = None, key: str | None = None) -> Any:
        """Wait for an event without using a slot of the worker, and return what was sent with it.

        `app.send_event`, the command line and the HTTP API send events. An event may come before the task
        waits for it: it is kept for 7 days, unless its sender chose otherwise. Every task of the tenant that
        waits for the name gets it, each task once. So put what identifies your case into the name, such as
        `order:123:paid`. What a wait has got is recorded: a later run of the task gets the same.

        While nothing has come, the task is `suspended`, as in a `sleep`.

        Args:
            name: The event's name, 1 to 200 characters.
            timeout: The longest wait, from its first begin: seconds, a timedelta, or text such as `2d`.
            key: Names this wait: a wait for this name with the same key is the same wait. Without one, the
                waits of a task for a name are distinguished by their number, in the order in which the
                function comes to them.

        Raises:
            EventTimeoutError: The event did not come in time.
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            UsageError: Called inside a step or outside a worker.
            OptionError: An option is invalid.
        """
        from tidegate.steps import answered
        from tidegate.steps.waits import Wait
        from tidegate.store.event_rows import WaitStatus

        wait, waits = self._event_wait(name, timeout, key), self._steps().waits
        why = f"waits for event {name}"
        while True:
            asking = self._steps().port.wait_for_event(wait)
            answer = await answered(asking)
            if answer.status is not WaitStatus.OPEN:
                return self._received(wait, answer)
            with waits.waiting(Wait(self._ends_in(answer.left_seconds), why, wait.key)) as mine:
                await self._wait(mine, _EVENT_CHECK_SECONDS)

    def wait_event_sync(self, name: str, *, timeout: Seconds | None = None, key: str | None = None) -> Any:
        """Do the same as `wait_event`, from a plain function."""
        from tidegate.steps.waits import Wait
        from tidegate.store.event_rows import WaitStatus

        self._require_no_loop("ctx.wait_event_sync", "use `await ctx.wait_event(…)`")
        wait, waits = self._event_wait(name, timeout, key), self._steps().waits
        why = f"waits for event {name}"
        while True:
            answer = self._steps().port.wait_for_event(wait).result()
            if answer.status is not WaitStatus.OPEN:
                return self._received(wait, answer)
            with waits.waiting(Wait(self._ends_in(answer.left_seconds), why, wait.key)) as mine:
                self._wait_sync(mine, _EVENT_CHECK_SECONDS)

    @overload
    async def gather(
        self, handles: Iterable[OtherTask[T]], *, return_exceptions: Literal[False] = False
    ) -> list[T]: ...

    @overload
    async def gather(
        self, handles: Iterable[OtherTask[T]], *, return_exceptions: bool
    ) -> list[T | Exception]: ...

    async def gather(
        self, handles: Iterable[OtherTask[Any]], *, return_exceptions: bool = False
    ) -> list[Any]:
        """Wait for other tasks without using a slot of the worker; return their results in the given order.

        While any of those tasks can still run, this task is `suspended`. The task wakes within about a second
        after the last awaited task has ended. If this task runs again, it reads their results again, so they
        must be kept that long. Enqueue them with a `key`: otherwise each run of this task enqueues new ones.

        Args:
            handles: The tasks.
            return_exceptions: Whether the errors of failed tasks are returned in place of their results.
                Otherwise the first one is raised, after all tasks have ended.

        Raises:
            TaskFailedError: A task is dead.
            TaskCancelledError: A task was cancelled.
            TaskNotFoundError: There is no such task.
            DataRemovedError: Retention removed the result of a task.
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            UsageError: Called inside a step or outside a worker.
        """
        children = self._children(handles)
        while children.pending:
            self.raise_if_cancelled()
            for child in children.pending:
                await children.check(child)
            if children.pending:
                wait = children.wait()
                with self._steps().waits.waiting(wait):
                    await self._wait(wait, _CHILD_CHECK_SECONDS)
        return children.values(return_exceptions=return_exceptions)

    @overload
    def gather_sync(
        self, handles: Iterable[OtherTask[T]], *, return_exceptions: Literal[False] = False
    ) -> list[T]: ...

    @overload
    def gather_sync(
        self, handles: Iterable[OtherTask[T]], *, return_exceptions: bool
    ) -> list[T | Exception]: ...

    def gather_sync(self, handles: Iterable[OtherTask[Any]], *, return_exceptions: bool = False) -> list[Any]:
        """Do the same as `gather`, from a plain function."""
        from tidegate.threads.bridge import run_sync

        children = self._children(handles)
        while children.pending:
            self.raise_if_cancelled()
            for child in children.pending:
                run_sync(children.check(child))
            if children.pending:
                wait = children.wait()
                with self._steps().waits.waiting(wait):
                    self._wait_sync(wait, _CHILD_CHECK_SECONDS)
        return children.values(return_exceptions=return_exceptions)

    def _children(self, handles: Iterable[OtherTask[Any]]) -> Children:
        from tidegate.context.children import Children
        from tidegate.steps import current_step

        self.raise_if_cancelled()
        if self._control.store_offset is None:
            raise UsageError("ctx.gather was called outside a worker", fix="await handle.result() there")
        if current_step() is not None:
            raise UsageError("ctx.gather was called inside a step", fix="gather between the steps")
        children = Children(_task_handles(handles))
        if self.task_id in children.pending:
            raise UsageError("ctx.gather was called with the task itself", fix="pass other tasks only")
        return children

    def _event_wait(self, name: str, timeout: Seconds | None, key: str | None) -> EventWait:
        from tidegate.steps import current_step
        from tidegate.store.event_rows import EventWait

        self.raise_if_cancelled()
        short_text_option("name", name, most=KEY_LENGTH)
        if key is not None:
            short_text_option("key", key, most=KEY_LENGTH)
        if current_step() is not None:
            raise UsageError("ctx.wait_event was called inside a step", fix="wait between the steps")
        seconds = None if timeout is None else seconds_option("timeout", timeout, most=LONGEST_WAIT_SECONDS)
        steps = self._steps()
        identity = steps.identify(f"event {name}", (key or "").encode(), has_key=key is not None)
        return EventWait(steps.fence, identity, name, self.tenant, seconds)

    def _received(self, wait: EventWait, answer: WaitAnswer) -> Any:
        from tidegate.codec import Shape
        from tidegate.store.event_rows import WaitStatus

        if answer.status is WaitStatus.FENCED:
            raise TaskStopped(StopReason.LOST.value)
        if answer.status is WaitStatus.TIMED_OUT:
            raise EventTimeoutError(
                f"event {wait.name} was not sent in time",
                fix="send it with app.send_event, or give a longer timeout=",
                step=wait.name,
                event=wait.name,
            )
        return Shape().decode(answer.data, path=f"the data of event {wait.name}")

    def _sleeps_in_process(self) -> bool:
        """Whether a sleep keeps its slot: in a plain call, and inside a step, which must not be cut off."""
        from tidegate.steps import current_step

        self.raise_if_cancelled()
        return self._control.store_offset is None or current_step() is not None

    async def _wait(self, wait: Wait, at_most: float = math.inf) -> None:
        """Return when a wait is over. If that takes long, end the run as soon as no step is in flight.

        Args:
            wait: One of the waits of this run.
            at_most: Return after this many seconds, even if the wait is not over.

        Raises:
            TaskSuspended: The run ends for now.
        """
        waits = self._steps().waits
        if self._control.is_cancelling:
            await self._stop_cancelling()
        until = self._control.clock() + at_most
        while (left := min(self._left(wait.ends_at), self._left(until))) > 0:
            if self._left(wait.ends_at) < SUSPEND_SECONDS:
                await asyncio.sleep(left)
                return
            begun_before = waits.steps()[1]
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if waits.steps() == (0, begun_before):
                self._suspend(waits)
            await asyncio.sleep(CHECK_SECONDS)

    def _wait_sync(self, wait: Wait, at_most: float = math.inf) -> None:
        waits = self._steps().waits
        until = self._control.clock() + at_most
        while (left := min(self._left(wait.ends_at), self._left(until))) > 0:
            self.raise_if_cancelled()
            if self._control.is_cancelling:
                raise TaskStopped(StopReason.CANCEL.value)
            if self._left(wait.ends_at) >= SUSPEND_SECONDS and waits.steps()[0] == 0:
                self._suspend(waits)
            time.sleep(min(left, CHECK_SECONDS))

    def _suspend(self, waits: RunWaits) -> NoReturn:
        """End the run until the first of its waits is over."""
        self.raise_if_cancelled()
        first = waits.first()
        delay = None if first.ends_at is None else self._left(first.ends_at)
        self._control.suspension = SuspensionRequest(
            delay, first.why, waits.keys(), waits.child_ids(), waits.cached()
        )
        raise TaskSuspended(first.why)

    def _ends_in(self, seconds: float | None) -> float | None:
        return None if seconds is None else self._control.clock() + seconds

    def _left(self, ends_at: float | None) -> float:
        if ends_at is None:
            return math.inf
        left = ends_at - self._control.clock()
        return left if left > _ROUNDING_SECONDS else 0.0

    def _store_now(self) -> float:
        """Return the time of the store, as far as this process knows it: never later than it is."""
        return self._control.clock() + (self._control.store_offset or 0.0)

    def _run_clock_at(self, moment: float) -> float:
        """Return a moment of the store by the clock of the run."""
        return moment - (self._control.store_offset or 0.0)


def _task_handles(handles: Iterable[OtherTask[Any]]) -> list[OtherTask[Any]]:
    """Return the handles as a list.

    Raises:
        UsageError: These are no handles of tasks.
    """
    given = list(handles) if isinstance(handles, Iterable) else None
    wrong = [handles] if given is None else [handle for handle in given if not hasattr(handle, "_ended")]
    if given is None or wrong:
        raise UsageError(
            f"ctx.gather takes a list of handles of tasks, and got a {type(wrong[0]).__name__}",
            fix="pass a list of what `await f.enqueue(…)` returned; app.handle(id) makes a handle of an id",
        )
    return given


def _duration(duration: Seconds) -> float:
    """Return the seconds of a sleep. One until a moment that has passed is over, as it is in a later run."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, (int, float)) and duration < 0:
        return 0.0
    return seconds_option("duration", duration, most=LONGEST_WAIT_SECONDS)
