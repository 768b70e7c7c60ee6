"""Runs the maintenance jobs in a separate process, which needs a database but no application."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time

from tidegate._version import __version__
from tidegate.alerts.settings import AlertSettings
from tidegate.domain.retention import Retention
from tidegate.store.connect import absolute_url, open_store
from tidegate.store.protocol import Store
from tidegate.worker import scratch, signals
from tidegate.worker.logs import set_up_logging
from tidegate.worker.maintenance.loop import MaintenanceLoop
from tidegate.worker.opening import open_with_retries
from tidegate.worker.settings import Timings
from tidegate.worker.supervisor.health import Health
from tidegate.worker.supervisor.status_reporter import StatusReporter
from tidegate.worker.supervisor.stop_request import StopRequest, close_or_exit
from tidegate.worker.supervisor.zombie_reaper import ZombieReaper

log = logging.getLogger("tidegate.supervisor")

HUNG_SECONDS = 120.0
"""A maintenance job whose round runs this long counts as hung."""


def run_scheduler(
    database_url: str,
    *,
    timings: Timings,
    retention: Retention,
    name: str | None = None,
    alerts: AlertSettings | None = None,
) -> int:
    """Run maintenance until SIGTERM or SIGINT; return the exit code.

    Args:
        database_url: The database.
        timings: Intervals.
        retention: How long final tasks are kept.
        name: A name for people; the host's name by default.
        alerts: The settings of alerts; None to evaluate none.

    Raises:
        ConfigError: The URL or the schema is wrong.
        StoreError: The store cannot be opened.
    """
    signals.reset_inherited_signals()
    set_up_logging()

    async def run_maintenance() -> int:
        return await Scheduler(
            database_url,
            open_store(database_url),
            timings,
            retention,
            name or socket.gethostname(),
            alerts=alerts,
        ).run()

    return asyncio.run(run_maintenance())


class Scheduler:
    """One process that runs maintenance.

    Args:
        database_url: The database, shown in logs and health checks.
        store: The store of that database; `run` opens it.
        timings: Intervals.
        retention: How long final tasks are kept.
        name: A name for people.
        alerts: The settings of alerts; None to evaluate none.
    """

    def __init__(
        self,
        database_url: str,
        store: Store,
        timings: Timings,
        retention: Retention,
        name: str,
        *,
        alerts: AlertSettings | None = None,
    ) -> None:
        self._database_url = database_url
        self._store = store
        self._timings = timings
        self._name = name
        rng = random.Random()
        self._stopping = StopRequest(rng)
        self._maintenance = MaintenanceLoop(
            store,
            timings,
            retention,
            rng=rng,
            clock=time.monotonic,
            on_retired=scratch.remove_for_lost_worker,
            alerts=alerts,
            kind="scheduler",
        )
        self._status_reporter = StatusReporter(
            "scheduler", name, get_health=self._get_health, is_progressing=self._is_progressing
        )

    async def run(self) -> int:
        """Run until a signal; return the exit code."""
        ZombieReaper(self._maintenance.own_pids).watch()
        signals.stop_when_shell_exits(self._stopping.request)
        signals.install_handlers(
            stop=self._stop, release=self._stop, reload=self._nothing_to_reload, forward=lambda number: None
        )
        if await self._stopping.run_unless_stopped(self._open()):
            self._maintenance.start()
            await self._status_reporter.start()
            log.info("scheduler %s runs maintenance for %s", self._name, self._database_url)
            await self._stopping.wait()
            self._status_reporter.stopping()
            await self._maintenance.stop()
            await self._status_reporter.stop()
        await close_or_exit(self._store, within=self._timings.stop_grace, code=0)
        log.info("scheduler %s has stopped", self._name)
        return 0

    async def _open(self) -> bool:
        await open_with_retries(self._store.open)
        return True

    def _stop(self, number: signal.Signals = signals.RELEASE) -> None:
        log.info("%s: stopping", number.name)
        self._stopping.request()

    def _nothing_to_reload(self) -> None:
        log.info("SIGHUP: a scheduler loads no application; restart it to apply new settings")

    def _get_health(self) -> Health:
        problems = [] if self._is_progressing() else ["a maintenance job hangs"]
        if self._stopping.is_requested:
            problems.append("it is stopping")
        return Health(
            kind="scheduler",
            name=self._name,
            pid=os.getpid(),
            database_url=absolute_url(self._database_url),
            version=__version__,
            status="stopping" if self._stopping.is_requested else "running maintenance",
            problems=problems,
        )

    def _is_progressing(self) -> bool:
        return self._maintenance.busy_seconds() < HUNG_SECONDS
