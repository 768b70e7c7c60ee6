"""Notices that an upstream answers none of this process's calls, long before they reach their time limits."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from tidegate.calls.results import run_in_background

SILENT_SECONDS = 60.0
"""The least time without any answer that is reported."""
TIMES_P99 = 3.0
"""The time without any answer is also at least this many times the 99th percentile of recent answers."""
LEAST_ANSWERS = 20
"""With fewer answers the usual time is unknown, and only its own time limit ends a call."""
ANSWERS_KEPT = 200
CHECKS_AGAIN = 4
"""After a report, the next check follows after the least time divided by this."""


class SilenceWatch:
    """Watches the calls of one upstream that this process has in flight. All threads may use it.

    Args:
        report: Reports that no call was answered, and for how many seconds.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, report: Callable[[float], Coroutine[Any, Any, None]], *, clock: Callable[[], float]
    ) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: dict[int, float] = {}
        """When each call that has no answer was sent, oldest first."""
        self._took: deque[float] = deque(maxlen=ANSWERS_KEPT)
        self._answered_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.least_seconds = SILENT_SECONDS
        """The least time without any answer that is reported."""

    def begin(self, call: int) -> None:
        """Watch a call that is sent now, from the running event loop."""
        with self._lock:
            self._sent[call] = self._clock()
            if self._timer is None or self._loop is None or self._loop.is_closed():
                self._loop = asyncio.get_running_loop()
                self._timer = self._loop.call_later(self.least_seconds, self._check)

    def end(self, call: int, *, is_answer: bool) -> None:
        """Stop watching a call: its response began (`is_answer`), or it ended without one."""
        with self._lock:
            sent_at = self._sent.pop(call, None)
            if is_answer and sent_at is not None:
                self._answered_at = self._clock()
                self._took.append(self._answered_at - sent_at)

    def _check(self) -> None:
        """Report when no call was answered for too long; check again while calls are in flight."""
        with self._lock:
            self._timer = None
            if not self._sent or self._loop is None:
                return
            silent = self._clock() - max(self._answered_at, next(iter(self._sent.values())))
            limit = self._limit_seconds()
            is_due = limit is not None and silent >= limit
            left = self.least_seconds if limit is None else limit - silent
            again = self.least_seconds / CHECKS_AGAIN if is_due else left
            self._timer = self._loop.call_later(again, self._check)
        if is_due:
            run_in_background(self._report(silent))

    def _limit_seconds(self) -> float | None:
        """Return the seconds without an answer after which to report; None after too few answers."""
        if len(self._took) < LEAST_ANSWERS:
            return None
        p99 = sorted(self._took)[math.ceil(0.99 * len(self._took)) - 1]
        return max(self.least_seconds, TIMES_P99 * p99)
