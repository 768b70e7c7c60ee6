"""Time limits of running attempts: one timer for all of them, set for whoever is next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidegate.domain.outcome import Fence
from tidegate.worker.engine.task_run import TaskRun

log = logging.getLogger("tidegate.worker")
_NEVER = float("inf")


class TimeLimits:
    """Tells when an attempt has used up its time.

    Nearly all attempts end before their limit. A timer each would be made and cancelled for nothing, so
    there is one, for the earliest limit: when it goes off, the attempts that still run are looked through.

    Args:
        running: The attempts under way; one that is settled is no longer in it.
        on_time_limit: Told of an attempt whose time is up, once.
    """

    def __init__(self, running: Mapping[Fence, TaskRun], on_time_limit: Callable[[TaskRun], None]) -> None:
        self._running = running
        self._on_time_limit = on_time_limit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = _NEVER

    def watch(self, task_run: TaskRun) -> None:
        """Mind the limit of an attempt for as long as it runs."""
        if task_run.control.ends_at < self._next_at:
            self._set_timer(task_run.control.ends_at)

    def close(self) -> None:
        """Forget every limit."""
        self._set_timer(_NEVER)

    def _set_timer(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_at = moment
        self._timer = None if moment == _NEVER else self._loop.call_at(moment, self._check)

    def _check(self) -> None:
        now = max(self._loop.time(), self._next_at)  # a loop may call a little early
        minded = [task_run for task_run in self._running.values() if not task_run.has_hit_limit]
        due = [task_run for task_run in minded if task_run.control.ends_at <= now]
        self._set_timer(min((a.control.ends_at for a in minded if a.control.ends_at > now), default=_NEVER))
        for task_run in due:
            task_run.has_hit_limit = True
            try:
                self._on_time_limit(task_run)
            except Exception:  # whatever it is, the limits of the others hold all the same
                log.exception("the time limit of %s could not be kept", task_run.claimed.fence.task_id)
