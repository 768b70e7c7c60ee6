"""What others see of a running service: its answer to `health`, systemd's view of it, its title."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tidegate.worker.supervisor.health import Health, HealthDoor
from tidegate.worker.supervisor.systemd import Systemd
from tidegate.worker.title import set_title

TICK_SECONDS = 1.0


class Presence:
    """Shows one service to the outside until it is stopped.

    Args:
        kind: `worker` or `scheduler`.
        name: The service's name.
        look: Returns its health now.
        moving: Whether its work goes on; if not, the watchdog is left to bite.
    """

    def __init__(
        self, kind: str, name: str, *, look: Callable[[], Health], moving: Callable[[], bool]
    ) -> None:
        self._kind = kind
        self._look = look
        self._moving = moving
        self._door = HealthDoor(kind, name, look)
        self._systemd = Systemd(os.environ)
        self._is_ready = False
        self._status = ""
        self._job: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer and to tell."""
        await self._door.open()
        self._job = asyncio.create_task(self._run(), name="tidegate presence")

    async def stop(self) -> None:
        """End it. Safe to repeat."""
        job, self._job = self._job, None
        if job is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        await self._door.close()

    def reloading(self) -> None:
        """Tell that everything starts anew; it is ready again when the service has no problem any more."""
        self._is_ready = False
        self._systemd.reloading()

    def stopping(self) -> None:
        """Tell that the service ends."""
        self._systemd.stopping()
        self._show()

    async def _run(self) -> None:
        watched = self._systemd.watchdog_seconds
        while True:
            self._show()
            await self._door.mend()
            await asyncio.sleep(TICK_SECONDS if watched is None else min(TICK_SECONDS, watched / 4))

    def _show(self) -> None:
        health = self._look()
        if health.status != self._status:
            self._status = health.status
            set_title(f"{self._kind} {health.name}: {health.status}")
            self._systemd.status(health.status)
        if not health.problems and not self._is_ready:
            self._is_ready = True
            self._systemd.ready()
        if self._moving():
            self._systemd.alive()
