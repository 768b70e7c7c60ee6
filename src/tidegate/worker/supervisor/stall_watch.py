"""Watches whether pool processes answer: one whose loop is blocked, or that somebody stopped, is killed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

log = logging.getLogger("tidegate.supervisor")

PING_SECONDS = 1.0


class Pingable(Protocol):
    """A pool process as it is seen from here."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def ping(self) -> None:
        """Ask whether it still answers."""

    def stalled_seconds(self) -> float:
        """Return for how long it has owed an answer."""
        ...

    def discount(self, seconds: float) -> None:
        """Do not count so many seconds against an answer it owes."""

    def kill(self, why: str) -> None:
        """Kill it."""


class StallWatch:
    """Asks every process again and again, and kills those that have not answered for too long.

    Time in which we ourselves stood still does not count: after the sleep of a machine, or a stop of all its
    processes, an answer may lie here unread, or the question may have gone out just before.

    Args:
        processes: Returns those that live.
        limit: Seconds an answer may take.
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
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            self.check()

    def check(self) -> None:
        """Ask everyone once, and kill who has not answered for longer than the limit."""
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
