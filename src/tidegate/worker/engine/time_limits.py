"""The time limits of all running tasks, watched by one timer that is set for the earliest limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidegate.domain.outcome import Fence
from tidegate.worker.engine.task_run import TaskRun

log = logging.getLogger("tidegate.worker")
_NEVER = float("inf")


class TimeLimits:
    """Reports when a run has used up its time.

    Nearly all runs end before their limit, so a timer for each would be wasted work. The only timer is set
    for the earliest limit. When it fires, all runs in progress are checked.

    Args:
        running: The runs in progress; finished runs are removed by the executor.
        on_time_limit: Called once with a run whose time is up.
    """

    def __init__(self, running: Mapping[Fence, TaskRun], on_time_limit: Callable[[TaskRun], None]) -> None:
        self._running = running
        self._on_time_limit = on_time_limit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = _NEVER

    def watch(self, task_run: TaskRun) -> None:
        """Watch the time limit of a run until it ends."""
        if task_run.control.ends_at < self._next_at:
            self._set_timer(task_run.control.ends_at)

    def close(self) -> None:
        """Stop watching."""
        self._set_timer(_NEVER)

    def _set_timer(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_at = moment
        self._timer = None if moment == _NEVER else self._loop.call_at(moment, self._check)

    def _check(self) -> None:
        now = max(self._loop.time(), self._next_at)  # the loop may call this a little early
        watched = [task_run for task_run in self._running.values() if not task_run.has_hit_limit]
        due = [task_run for task_run in watched if task_run.control.ends_at <= now]
        later = (task_run.control.ends_at for task_run in watched if task_run.control.ends_at > now)
        self._set_timer(min(later, default=_NEVER))
        for task_run in due:
            task_run.has_hit_limit = True
            try:
                self._on_time_limit(task_run)
            except Exception:  # an error with one run must not disable the limits of the others
                log.exception("the time limit of %s could not be enforced", task_run.claimed.fence.task_id)
