"""Kills pool processes that do not answer: their event loop is blocked, or a signal stopped them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger("tidegate.supervisor")

PING_SECONDS = 1.0


class Pingable(Protocol):
    """The parts of a pool process that this module uses."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def ping(self) -> None:
        """Send a ping, which it must answer."""

    def stalled_seconds(self) -> float:
        """Return for how many seconds the process has not answered."""
        ...

    def discount(self, seconds: float) -> None:
        """Subtract these seconds from the time for which the process has not answered."""

    def kill(self, why: str) -> None:
        """Kill the process."""


class StallWatch:
    """Pings every process again and again, and kills those that have not answered for too long.

    Time in which the supervisor itself did not run is not counted. After the machine slept or all processes
    were stopped, an answer may still be unread, or the ping may have been sent just before that.

    Args:
        processes: Returns the living processes.
        limit: Seconds that an answer may take.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        processes: Callable[[], Iterable[Pingable]],
        *,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._processes = processes
        self._limit = limit
        self._clock = clock
        self._interval = min(PING_SECONDS, limit / 4)
        self._checked_at = clock()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            self.check()

    def check(self) -> None:
        """Ping every process once, and kill those that have not answered for longer than the limit."""
        now = self._clock()
        overslept = now - self._checked_at - self._interval
        self._checked_at = now
        for process in self._processes():
            if overslept > self._interval:
                process.discount(overslept)
            process.ping()
            stalled = process.stalled_seconds()
            if stalled > self._limit:
                log.error("process %d has not answered for %.0f s; it is killed", process.pid, stalled)
                process.kill(f"did not answer for {stalled:.0f} s (stall limit)")
