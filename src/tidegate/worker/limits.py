"""Time limits of running attempts: one timer for all of them, set for whoever is next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from tidegate.domain.outcome import Fence
from tidegate.worker.attempt import Attempt

log = logging.getLogger("tidegate.worker")
_NEVER = float("inf")


class TimeLimits:
    """Tells when an attempt has used up its time.

    Nearly all attempts end before their limit. A timer each would be made and cancelled for nothing, so
    there is one, for the earliest limit: when it goes off, the attempts that still run are looked through.

    Args:
        running: The attempts under way; one that is settled is no longer in it.
        time_up: Told of an attempt whose time is up, once.
    """

    def __init__(self, running: Mapping[Fence, Attempt], time_up: Callable[[Attempt], None]) -> None:
        self._running = running
        self._time_up = time_up
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = _NEVER

    def watch(self, attempt: Attempt) -> None:
        """Mind the limit of an attempt for as long as it runs."""
        if attempt.control.ends_at < self._next_at:
            self._set(attempt.control.ends_at)

    def close(self) -> None:
        """Forget every limit."""
        self._set(_NEVER)

    def _set(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_at = moment
        self._timer = None if moment == _NEVER else self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        now = max(self._loop.time(), self._next_at)  # a loop may call a little early
        minded = [attempt for attempt in self._running.values() if not attempt.is_time_up]
        due = [attempt for attempt in minded if attempt.control.ends_at <= now]
        self._set(min((a.control.ends_at for a in minded if a.control.ends_at > now), default=_NEVER))
        for attempt in due:
            attempt.is_time_up = True
            try:
                self._time_up(attempt)
            except Exception:  # whatever it is, the limits of the others hold all the same
                log.exception("the time limit of %s could not be kept", attempt.claimed.fence.task_id)
