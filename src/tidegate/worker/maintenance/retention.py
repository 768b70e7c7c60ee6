"""Retention: finds final tasks whose time is over, and removes them or parts of them in small batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from tidegate.domain.retention import Data, FinalTable, Retention, ages_of, due_data
from tidegate.store.protocol import Store
from tidegate.store.retention_rows import FinalPosition, FinalTask

BATCH_TASKS = 250
"""Tasks read and removed at once. On SQLite a removal holds the write lock for some ten milliseconds."""
REREAD_SECONDS = 3_600.0
"""Time after which all final tasks are read again, for tasks that `db move` brought here."""


class RetentionSweep:
    """Walks through the final tasks, the oldest first, and removes what is due.

    Each age in the settings has its own walk, because tasks reach an age in the order in which they became
    final. So a walk reads each task once, also if a longer rule keeps it, and continues there the next time.

    Args:
        store: Holds the tasks.
        retention: How long they are kept.
        clock: Monotonic seconds.
        batch: Most tasks in one transaction.
    """

    def __init__(
        self,
        store: Store,
        retention: Retention,
        *,
        clock: Callable[[], float],
        batch: int = BATCH_TASKS,
    ) -> None:
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
        """Remove one batch; return how many rows or tasks it removed, or None if nothing is due any more."""
        if self._clock() - self._began_at > REREAD_SECONDS:
            self._restart()
        for table in FinalTable:
            for age in ages_of(self._retention, table):
                removed = await self._walk(table, age)
                if removed is not None:
                    return removed
        if self._must_reread:
            self._restart()
        return None

    def _restart(self) -> None:
        self._reached.clear()
        self._began_at = self._clock()
        self._must_reread = False

    async def _walk(self, table: FinalTable, age: float) -> int | None:
        """Read on until something was removed; return how much, or None at the end of the walk."""
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
        """Remove what is due, a transaction for the tasks and one for each set of parts; return how much."""
        removed = 0
        for data, group in groupby(sorted(due, key=lambda each: each[0]), key=lambda each: each[0]):
            tasks = [task for _, task in group]
            ids = [task.task_id for task in tasks]
            if Data.TASKS in data:
                until_at = max(task.at for task in tasks)
                gone = await self._store.delete_final_tasks(table, ids, until_at=until_at)
                self._must_reread |= len(gone) < len(ids)
                removed += len(gone)
            else:
                removed += await self._store.delete_task_parts(ids, data)
        return removed
