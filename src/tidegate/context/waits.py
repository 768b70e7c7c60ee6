"""The part of a task's context for long waits: `ctx.sleep` and `ctx.sleep_sync`."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NoReturn

from tidegate.context.run_control import SuspensionRequest
from tidegate.context.steps import StepMethods
from tidegate.context.stop import TaskSuspended
from tidegate.domain.readers import LONGEST_WAIT_SECONDS, Seconds, seconds_option
from tidegate.domain.text import format_duration

if TYPE_CHECKING:
    from tidegate.steps.waits import RunWaits

SUSPEND_SECONDS = 5.0
"""A run ends for a wait of at least this long. For a shorter one, ending it and starting it again would cost
more than the slot does."""

_SLEEP = "sleep"
_CHECK_SECONDS = 0.05
"""How often a wait checks whether the steps in flight are done, and a plain function whether to stop."""
_TURNS = 10
"""Turns of the event loop that the rest of the function gets to begin another step, before the run ends."""
_ROUNDING_SECONDS = 0.001
"""A wait with less than this left is over."""


class WaitMethods(StepMethods):
    """Long waits: the task gives its slot back, and runs again when the wait is over."""

    async def sleep(self, duration: Seconds, *, key: str | None = None) -> None:
        """Wait for this long without using a slot of the worker, also over restarts and deploys.

        The first time, `sleep` records when it will be over. If that is 5 seconds away or more, the run ends
        there and the task is `suspended`. When the time has come, the task runs again from its beginning:
        its recorded steps return their results, the sleep returns at once, and the function goes on. Nothing
        is charged for the run that ended. Its `finally` blocks run.

        While a step is in flight, the run goes on until the step is done. Work outside of steps is cut off.

        Args:
            duration: How long: seconds, a timedelta, or text such as `2h`; at most 366 days.
            key: Tells this sleep from the others of the task. Without one they are told apart by their
                number, in the order in which the function comes to them.

        Raises:
            TaskSuspended: The run ends for now. Let it pass.
            TaskStopped: The run was asked to stop.
            OptionError: `duration` is invalid.
        """
        seconds = _duration(duration)
        if self._sleeps_in_process():
            await asyncio.sleep(seconds)
            return

        async def wake_at() -> float:
            return self._store_now() + seconds

        ends_at = self._run_clock_at(await self.step(_SLEEP, wake_at, key=key or _SLEEP))
        why = f"sleeps {format_duration(seconds)}"
        await self._wait(ends_at, why)

    def sleep_sync(self, duration: Seconds, *, key: str | None = None) -> None:
        """Do the same as `sleep`, from a plain function."""
        seconds = _duration(duration)
        if self._sleeps_in_process():
            time.sleep(seconds)
            return
        wakes_at = self.step_sync(_SLEEP, lambda: self._store_now() + seconds, key=key or _SLEEP)
        self._wait_sync(self._run_clock_at(wakes_at), f"sleeps {format_duration(seconds)}")

    def _sleeps_in_process(self) -> bool:
        """Whether a sleep keeps its slot: in a plain call, and inside a step, which must not be cut off."""
        from tidegate.steps import current_step

        self.raise_if_cancelled()
        return self._control.store_offset is None or current_step() is not None

    async def _wait(self, ends_at: float, why: str) -> None:
        """Return when a wait is over. If that takes long, end the run as soon as no step is in flight.

        Args:
            ends_at: When it is over, by the clock of the run.
            why: What it waits for, for people.

        Raises:
            TaskSuspended: The run ends for now.
        """
        from tidegate.steps.waits import Wait

        waits = self._steps().waits
        with waits.waiting(Wait(ends_at, why)):
            while (left := self._left(ends_at)) > 0:
                if left < SUSPEND_SECONDS:
                    await asyncio.sleep(left)
                    return
                begun_before = waits.steps()[1]
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                if waits.steps() == (0, begun_before):
                    self._suspend(waits)
                await asyncio.sleep(_CHECK_SECONDS)

    def _wait_sync(self, ends_at: float, why: str) -> None:
        from tidegate.steps.waits import Wait

        waits = self._steps().waits
        with waits.waiting(Wait(ends_at, why)):
            while (left := self._left(ends_at)) > 0:
                self.raise_if_cancelled()
                if left >= SUSPEND_SECONDS and waits.steps()[0] == 0:
                    self._suspend(waits)
                time.sleep(min(left, _CHECK_SECONDS))

    def _suspend(self, waits: RunWaits) -> NoReturn:
        """End the run until the first of its waits is over."""
        self.raise_if_cancelled()
        first = waits.first()
        delay = None if first.ends_at is None else self._left(first.ends_at)
        self._control.suspension = SuspensionRequest(delay, first.why)
        raise TaskSuspended(first.why)

    def _left(self, ends_at: float) -> float:
        left = ends_at - self._control.clock()
        return left if left > _ROUNDING_SECONDS else 0.0

    def _store_now(self) -> float:
        """Return the time of the store, as far as this process knows it: never later than it is."""
        return self._control.clock() + (self._control.store_offset or 0.0)

    def _run_clock_at(self, moment: float) -> float:
        """Return a moment of the store by the clock of the run."""
        return moment - (self._control.store_offset or 0.0)


def _duration(duration: Seconds) -> float:
    return seconds_option("duration", duration, most=LONGEST_WAIT_SECONDS)
