"""The lease of this process as its engine knows it. No task starts while the lease does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Lease:
    """Until when the lease of this process holds; without end until `renew` is called. For one event loop.

    Args:
        clock: The event loop's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._good_until = float("inf")
        self._renewed = asyncio.Event()

    def renew(self, good_until: float) -> None:
        """Set the moment until which the lease holds."""
        self._good_until = good_until
        self._renewed.set()

    def is_held(self) -> bool:
        """Return whether the lease holds now."""
        return self._clock() < self._good_until

    async def wait_until_held(self) -> None:
        """Return once the lease holds: at once, or when it is renewed."""
        while not self.is_held():
            self._renewed.clear()
            await self._renewed.wait()
