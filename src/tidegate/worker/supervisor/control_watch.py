"""Applies the orders to one worker: reads them once a second, passes them on, reports what was applied.

The watch also records which version of the code each process has loaded.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from tidegate.store.controls import (
    ALL_WORKERS,
    APPLIED,
    STARTED,
    ControlKind,
    ControlReport,
    ControlRow,
    WantedSettings,
    wanted_settings,
)
from tidegate.store.protocol import Store
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.supervisor.pool_process import PoolProcess

log = logging.getLogger("tidegate.supervisor")

CHECK_SECONDS = 1.0
"""Time between two reads: one small query for each worker."""


class ControlWatch:
    """Keeps the settings of one worker's processes as people requested them.

    Args:
        store: Holds the requested settings.
        name: The worker's name.
        host: Its host.
        processes: Returns the worker's living processes.
        reload: Restarts every process. Takes the reason, and a function to call with the outcome.
        rng: For jitter.
    """

    def __init__(
        self,
        store: Store,
        *,
        name: str,
        host: str,
        processes: Callable[[], Sequence[PoolProcess]],
        reload: Callable[[str, Callable[[str], None]], None],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._name = name
        self._reporter = f"{name}@{host}"
        self._processes = processes
        self._reload = reload
        self._pause = BackoffDelay(rng)
        self._rows: tuple[ControlRow, ...] = ()
        self._reloads: dict[str, int] = {}
        """The versions of the reload rows that this worker has carried out, by name."""
        self._reported: dict[str, tuple[ControlRow, ...]] = {}
        """The settings that each process has applied, by worker id, as the store records them."""
        self._slots: dict[str, int] = {}
        """The slots of each process, by worker id, as the store records them."""
        self._codes: dict[str, str] = {}
        """The version of the code of each process, by worker id, as the store records it."""
        self._answers: list[ControlReport] = []
        """Reports of reloads that are not stored yet."""

    async def start(self) -> None:
        """Read the requested settings before the first process starts.

        The start itself carries out earlier reloads.
        """
        self._rows = tuple(await self._store.list_controls())
        self._reloads = {row.name: row.version for row in self._reload_rows()}
        for row in self._rows:
            if row.kind is ControlKind.QUIET and row.name == self._name and row.value == 1:
                log.warning(
                    "this worker is quiet, as %s asked: it claims nothing until `tidegate worker resume %s`",
                    row.changed_by,
                    self._name,
                )

    def wanted(self, process: PoolProcess) -> WantedSettings:
        """Return the settings requested for a process."""
        return wanted_settings(
            self._rows, worker=self._name, worker_id=process.worker_id, pool=process.pool.name
        )

    async def run(self) -> None:
        """Apply changes until cancelled."""
        while True:
            try:
                await self.check()
                self._pause.reset()
                await asyncio.sleep(CHECK_SECONDS)
            except Exception as error:  # the worker continues with the settings that it knows
                pause = self._pause.next()
                report.will_retry("reading the orders to this worker", error, pause)
                await asyncio.sleep(pause)

    async def check(self) -> None:
        """Read the orders, apply new ones, and report what was applied."""
        self._rows = tuple(await self._store.list_controls())
        for row in self._reload_rows():
            if row.version > self._reloads.get(row.name, 0):
                self._reloads[row.name] = row.version
                self._start_reload(row)
        for process in self._processes():
            if (wanted := self.wanted(process)) != process.wanted:
                log.info(
                    "pool %s: process %d: %s at once%s, as requested",
                    process.pool.name,
                    process.pid,
                    wanted.concurrency or process.pool.concurrency,
                    ", quiet" if wanted.is_quiet else "",
                )
                process.set(wanted)
        await self._report()

    async def _report(self) -> None:
        living = {process.worker_id: process for process in self._processes() if process.is_registered}
        self._reported = {each: rows for each, rows in self._reported.items() if each in living}
        self._slots = {each: slots for each, slots in self._slots.items() if each in living}
        self._codes = {each: code for each, code in self._codes.items() if each in living}
        for worker_id, process in living.items():
            if process.code and worker_id not in self._codes:
                await self._store.set_worker_code(worker_id, process.code)
                self._codes[worker_id] = process.code
            if self._slots.setdefault(worker_id, process.pool.slots) != process.slots:
                await self._store.set_worker_slots(worker_id, process.slots)
                self._slots[worker_id] = process.slots
            rows = process.wanted.rows
            if not process.has_confirmed or self._reported.get(worker_id, ()) == rows:
                continue
            await self._store.report_controls(
                [ControlReport(row.kind, row.name, worker_id, row.version, APPLIED) for row in rows]
            )
            self._reported[worker_id] = rows
        if answers := self._answers[:]:
            await self._store.report_controls(list({each.name: each for each in answers}.values()))
            del self._answers[: len(answers)]

    def _reload_rows(self) -> list[ControlRow]:
        names = (self._name, ALL_WORKERS)
        return [row for row in self._rows if row.kind is ControlKind.RELOAD and row.name in names]

    def _start_reload(self, row: ControlRow) -> None:
        def answer(text: str) -> None:
            self._answers.append(ControlReport(row.kind, row.name, self._reporter, row.version, text))

        answer(STARTED)
        self._reload(f"a reload that {row.changed_by} asked for", answer)
