"""Read the whole store in one snapshot. No function here scans finished tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidegate.store.common import control, dead, gates, schedules, stats, totals, work_counts, workers
from tidegate.store.common.session import Session
from tidegate.store.live_workers import find_live_workers
from tidegate.store.overview_rows import MonitoringRow, OverviewRow, TopRow
from tidegate.store.rows import TaskFilter

MOST_SCHEDULES = 1_000
"""Schedules beyond this many, by name, have no metrics."""


class ReadOnce:
    """A session that runs equal reads only once, because several parts of an overview need the same rows.

    Args:
        db: A session in a snapshot.
    """

    def __init__(self, db: Session) -> None:
        self._db = db
        self._found: dict[tuple[Any, ...], Any] = {}
        self.at = db.at
        self.sql = db.sql
        self.id = db.id
        self.text = db.text
        self.array = db.array
        self.records = db.records
        self.run = db.run
        self.records = db.records

    async def now(self) -> float:
        """Return the time of the first call."""
        if ("now",) not in self._found:
            self._found["now",] = await self._db.now()
        now: float = self._found["now",]
        return now

    async def rows(self, statement: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Return all rows."""
        key = (statement, *values)
        if key not in self._found:
            self._found[key] = await self._db.rows(statement, *values)
        found: Sequence[Sequence[Any]] = self._found[key]
        return found

    async def row(self, statement: str, *values: Any) -> Sequence[Any] | None:
        """Return the first row; None if there is none."""
        return await self._db.row(statement, *values)

    async def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row; None if there is no row."""
        return await self._db.value(statement, *values)

    async def column(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the first column of all rows."""
        return await self._db.column(statement, *values)

    async def run_each(
        self, statement: str, rows: Iterable[Sequence[Any]], *values: Any
    ) -> Sequence[Sequence[Any]]:
        """Run a statement for each of these rows; return all rows it returns."""
        return await self._db.run_each(statement, rows, *values)


async def get_overview(db: Session) -> OverviewRow:
    """Return the queues, the upstreams and the workers."""
    return await _overview(ReadOnce(db))


async def get_top(db: Session, *, failures: int) -> TopRow:
    """Return the data of a live view, with at most `failures` of the newest dead letters."""
    once = ReadOnce(db)
    return TopRow(await _overview(once), await dead.list_dead_letters(once, TaskFilter(), limit=failures))


async def get_monitoring(db: Session) -> MonitoringRow:
    """Return the data from which metrics are computed."""
    once = ReadOnce(db)
    return MonitoringRow(
        await _overview(once),
        await gates.list_retry_budgets(once),
        await schedules.list_schedules(once, limit=MOST_SCHEDULES),
        await schedules.list_last_successes(once),
        await totals.get_totals(once),
        await work_counts.get_work(once),
        await once.value(once.sql("doubts")["count_all_open"]),
    )


async def _overview(db: ReadOnce) -> OverviewRow:
    now, every = await db.now(), await workers.list_workers(db)
    manifests: Mapping[str, Mapping[str, Any]] = await stats.load_manifests(db)
    unserved = find_live_workers(every, manifests, now).unserved
    return OverviewRow(
        now,
        await stats.get_queue_stats(db, unserved),
        await gates.list_upstreams(db),
        every,
        await control.list_pauses(db),
        await control.list_controls(db),
    )
