"""Retention: finds final tasks that are kept no longer, and removes them or parts of them in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby

from tidegate.domain.retention import Data, FinalTable, Retention, ages_of, due_data
from tidegate.errors import ArchiveError, ConfigError
from tidegate.store.archive import archive_of
from tidegate.store.archive.lines import NewRow
from tidegate.store.protocol import Store
from tidegate.store.retention_rows import ExportedRow, FinalPosition, FinalTask
from tidegate.store.task_tables import TASK_TABLES

log = logging.getLogger("tidegate.maintenance")

BATCH_TASKS = 250
"""Tasks read and removed at once. On SQLite a removal holds the write lock for about ten milliseconds."""
ARCHIVED_TASKS = 100
"""Tasks whose rows are in memory at once while they are archived."""
REREAD_SECONDS = 3_600.0
"""Time after which all final tasks are read again, to find tasks that `db move` brought here."""


class RetentionSweep:
    """Reads the final tasks, the oldest first, and removes what is due.

    Each age in the settings has its own walk over the tasks: tasks reach an age in the order in which they
    became final. A walk reads each task once, even if a longer rule keeps it, and continues after it the next
    time.

    Args:
        store: Holds the tasks.
        retention: How long final tasks are kept.
        clock: Monotonic seconds.
        batch: The most tasks in one transaction.
    """

    def __init__(
        self,
        store: Store,
        retention: Retention,
        *,
        clock: Callable[[], float],
        batch: int = BATCH_TASKS,
    ) -> None:
        self._archive = archive_of(retention)
        self._store = store
        self._retention = retention
        self._clock = clock
        self._batch = batch
        self._reached: dict[tuple[FinalTable, float], FinalPosition] = {}
        """Where each walk continues."""
        self._began_at = clock()
        self._must_reread = False
        """Whether some tasks could not be removed, because another process had locked them."""

    async def run_once(self) -> int | None:
        """Remove one batch; return how many rows or tasks it removed, or None if nothing is due any more.

        If the archive cannot be written, nothing is removed, and None is returned.
        """
        try:
            return await self._run_once()
        except (ArchiveError, ConfigError) as error:
            log.error("retention removes nothing: %s", error)
            return None

    async def _run_once(self) -> int | None:
        if self._clock() - self._began_at > REREAD_SECONDS:
            self._restart()
        for table in FinalTable:
            for age in ages_of(self._retention, table):
                removed = await self._walk(table, age)
                if removed is not None:
                    return removed
        if self._must_reread:
            self._restart()
        if self._archive is not None:
            today = datetime.fromtimestamp(await self._store.now(), UTC).date()
            await asyncio.to_thread(self._archive.join, today)
        return None

    def _restart(self) -> None:
        self._reached.clear()
        self._began_at = self._clock()
        self._must_reread = False

    async def _walk(self, table: FinalTable, age: float) -> int | None:
        """Read on until data was removed; return how many rows or tasks, or None at the end of the walk."""
        walk = (table, age)
        while page := await self._store.list_final_tasks(
            table, older_than_seconds=age, after=self._reached.get(walk), limit=self._batch
        ):
            due = [(data, task) for task in page if (data := self._due(task))]
            removed = await self._remove(table, due) if due else None
            self._reached[walk] = page[-1].position
            if removed is not None:
                return removed
        return None

    def _due(self, task: FinalTask) -> tuple[Data, ...]:
        due = due_data(
            self._retention, task.state, task.queue, task.age_seconds, is_redriven=task.is_redriven
        )
        return tuple(sorted(due))

    async def _remove(self, table: FinalTable, due: Sequence[tuple[tuple[Data, ...], FinalTask]]) -> int:
        """Remove what is due: one transaction for the tasks, one for each set of parts. Return how many."""
        removed = 0
        for data, group in groupby(sorted(due, key=lambda each: each[0]), key=lambda each: each[0]):
            tasks = [task for _, task in group]
            for start in range(0, len(tasks), ARCHIVED_TASKS if self._archive else len(tasks)):
                some = tasks[start : start + ARCHIVED_TASKS] if self._archive else tasks
                removed += await self._archive_and_delete(table, data, some)
        return removed

    async def _archive_and_delete(
        self, table: FinalTable, data: tuple[Data, ...], tasks: Sequence[FinalTask]
    ) -> int:
        """Delete tasks or parts of them, after writing them to the archive; return how many were deleted."""
        if self._archive is None:
            return await self._delete(table, data, tasks)
        with contextlib.ExitStack() as stack:
            # Another process may be rewriting the archive, so the wait for it must not block the loop.
            await asyncio.to_thread(stack.enter_context, self._archive.writing())
            rows = await self._store.export_tasks([task.task_id for task in tasks], data)
            if rows:
                await asyncio.to_thread(self._archive.write, _by_data(rows, tasks), await self._store.now())
            return await self._delete(table, data, tasks)

    async def _delete(self, table: FinalTable, data: tuple[Data, ...], tasks: Sequence[FinalTask]) -> int:
        ids = [task.task_id for task in tasks]
        if Data.TASKS not in data:
            return await self._store.delete_task_parts(ids, data)
        gone = await self._store.delete_final_tasks(table, ids, until_at=max(task.at for task in tasks))
        self._must_reread |= len(gone) < len(ids)
        return len(gone)


def _by_data(rows: Sequence[ExportedRow], tasks: Sequence[FinalTask]) -> dict[Data, list[NewRow]]:
    """Return exported rows by their kind of data, each with its tenant."""
    tenants = {task.task_id: task.tenant for task in tasks}
    kinds = {table.name: table.data for table in TASK_TABLES}
    found: dict[Data, list[NewRow]] = {}
    for row in rows:
        found.setdefault(kinds[row.table], []).append(NewRow(tenants[row.task_id], row))
    return found
