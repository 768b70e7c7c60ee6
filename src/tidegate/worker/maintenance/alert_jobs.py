"""The jobs of alerts: one evaluates, one sends, one makes the daily summary.

Supervisors, embedded workers, schedulers and `tidegate web` run them. Each process tries often. The store
lets one process make each pass, and gives each message to one process.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Collection

from tidegate.alerts.delivery import Delivery
from tidegate.alerts.evaluation import evaluate_if_due
from tidegate.alerts.settings import AlertSettings
from tidegate.domain.ids import IdMaker
from tidegate.store.protocol import Store
from tidegate.worker.maintenance.daily_summary import DailySummaryJob
from tidegate.worker.maintenance.job import MaintenanceJob

_TRIES_PER_PASS = 3.0
_PASSES_PER_PING = 4
"""The dead-man URL is called after every fourth pass: once a minute."""
_DELIVERY_SECONDS = 5.0
_SUMMARY_SECONDS = 60.0


class AlertJobs:
    """Evaluates alerts and sends messages until it is stopped.

    Args:
        store: An open store.
        settings: The rules and the sinks.
        kind: What this process is, for people: `worker`, `embedded worker`, `scheduler` or `web`.
        rng: For ids and jitter.
    """

    def __init__(self, store: Store, settings: AlertSettings, *, kind: str, rng: random.Random) -> None:
        self._store = store
        self._settings = settings
        self._evaluator = f"{kind} {os.getpid()} on {socket.gethostname()}"
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, rng.getrandbits)
        self._delivery = Delivery(store, settings, clock=time.time, rng=rng)
        self._is_ping_due = False
        self._daily_summary = DailySummaryJob(store, settings)
        self._send_job = MaintenanceJob("alert messages", _DELIVERY_SECONDS, self._send, rng=rng)
        self.jobs = (
            MaintenanceJob("alerts", settings.interval / _TRIES_PER_PASS, self._evaluate, rng=rng),
            self._send_job,
            MaintenanceJob("daily summary", _SUMMARY_SECONDS, self._summarise, rng=rng),
        )
        """The jobs, started and stopped by the owner of this object."""

    @property
    def own_pids(self) -> Collection[int]:
        """The process ids of the programs that command sinks run now. No other code may wait for them."""
        return self._delivery.commands.pids

    async def _evaluate(self) -> bool:
        done = await evaluate_if_due(
            self._store, self._settings, evaluator=self._evaluator, make_id=self._make_id
        )
        if done is not None:
            self._is_ping_due = self._is_ping_due or done.number % _PASSES_PER_PING == 0
            if self._is_ping_due or done.changes.opened or done.changes.ended:
                self._send_job.wake()
        return False

    async def _summarise(self) -> bool:
        at = self._settings.daily_summary
        if at is not None and await self._daily_summary.report_if_due(at):
            self._send_job.wake()
        return False

    async def _send(self) -> bool:
        if self._is_ping_due:
            self._is_ping_due = False
            await self._delivery.ping()
        return await self._delivery.send_due()
