"""Publishes the status of a running service: health checks, systemd, process title."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tidegate.worker.supervisor.health import Health, HealthSocket
from tidegate.worker.supervisor.systemd import SystemdNotifier
from tidegate.worker.title import set_title

TICK_SECONDS = 1.0


class StatusReporter:
    """Publishes the status of one service until it is stopped.

    Args:
        kind: `worker` or `scheduler`.
        name: The service's name.
        get_health: Returns the current health.
        is_progressing: Returns whether the service's work goes on. Otherwise the watchdog of systemd gets no
            message and restarts the service.
    """

    def __init__(
        self, kind: str, name: str, *, get_health: Callable[[], Health], is_progressing: Callable[[], bool]
    ) -> None:
        self._kind = kind
        self._get_health = get_health
        self._is_progressing = is_progressing
        self._socket = HealthSocket(kind, name, get_health)
        self._systemd = SystemdNotifier(os.environ)
        self._is_ready = False
        self._status = ""
        self._job: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to answer health checks and to send messages to systemd."""
        await self._socket.open()
        self._job = asyncio.create_task(self._run(), name="tidegate status")

    async def stop(self) -> None:
        """Stop. Safe to repeat."""
        job, self._job = self._job, None
        if job is not None:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
        await self._socket.close()

    def reloading(self) -> None:
        """Report that everything is restarting. Readiness is reported again once there is no problem."""
        self._is_ready = False
        self._systemd.reloading()

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._systemd.stopping()
        self._publish()

    async def _run(self) -> None:
        watched = self._systemd.watchdog_seconds
        while True:
            self._publish()
            await self._socket.recreate_if_removed()
            await asyncio.sleep(TICK_SECONDS if watched is None else min(TICK_SECONDS, watched / 4))

    def _publish(self) -> None:
        health = self._get_health()
        if health.status != self._status:
            self._status = health.status
            set_title(f"{self._kind} {health.name}: {health.status}")
            self._systemd.status(health.status)
        if not health.problems and not self._is_ready:
            self._is_ready = True
            self._systemd.ready()
        if self._is_progressing():
            self._systemd.alive()
