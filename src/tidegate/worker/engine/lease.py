"""This process's lease, as its engine knows it: nothing begins while it does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Lease:
    """Until when this process is believed alive. Holds until told otherwise; belongs to one event loop.

    Args:
        clock: Of the loop, by which moments are told.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._good_until = float("inf")
        self._renewed = asyncio.Event()

    def renew(self, good_until: float) -> None:
        """Take the lease to hold until that moment."""
        self._good_until = good_until
        self._renewed.set()

    def is_held(self) -> bool:
        """Return whether it holds now."""
        return self._clock() < self._good_until

    async def wait_until_held(self) -> None:
        """Return once it holds: at once, or when it is renewed."""
        while not self.is_held():
            self._renewed.clear()
            await self._renewed.wait()
