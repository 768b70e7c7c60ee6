"""The part of the store contract for retention: list, export and delete final tasks, and report sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from tidegate.domain.retention import Data, FinalTable
from tidegate.store.retention_rows import ExportedRow, FinalPosition, FinalTask, StoreSize


class Retention(Protocol):
    """Remove final tasks and their data. No method here changes a task that is not final."""

    async def list_final_tasks(
        self, table: FinalTable, *, older_than_seconds: float, after: FinalPosition | None = None, limit: int
    ) -> list[FinalTask]:
        """Return final tasks in the order in which they became final, the oldest first.

        Args:
            table: Finished tasks or dead letters.
            older_than_seconds: Only tasks that became final longer ago.
            after: Start after this task; None: at the oldest.
            limit: Most tasks to return.
        """

    async def list_tasks_with_parts(self, task_ids: Sequence[str], parts: Collection[Data]) -> frozenset[str]:
        """Return which of these tasks are finished and still have any of these parts."""

    async def export_tasks(self, task_ids: Sequence[str], data: Collection[Data]) -> list[ExportedRow]:
        """Return all rows of these kinds of data that belong to these tasks, from one snapshot."""

    async def delete_final_tasks(
        self, table: FinalTable, task_ids: Sequence[str], *, until_at: float
    ) -> list[str]:
        """Delete tasks with everything that belongs to them; return the ids of the deleted tasks.

        A task is left alone if it is not in this table any more, if it became final after `until_at` (because
        it was redriven), or if another process has locked its row.
        """

    async def delete_task_parts(self, task_ids: Sequence[str], parts: Collection[Data]) -> int:
        """Remove some of the data of finished tasks; return how many rows were removed. The tasks stay.

        Tasks that are not finished are left alone.
        """

    async def forget_tasks(self, task_ids: Sequence[str]) -> list[str]:
        """Delete final tasks with all data about them in any table; return the ids that are gone now.

        Tasks that are not final are left alone. The remains of tasks that are already deleted are removed.
        """

    async def forget_tenant(self, tenant: str) -> int:
        """Remove all data about a tenant besides its tasks; return how many rows were changed."""

    async def erase_deleted(self) -> str:
        """Rewrite the files of the tables, so that no bytes of deleted rows are left; return why not, or "".

        SQLite: writers wait until the file is rewritten. PostgreSQL: each table is locked meanwhile, and the
        role must own the tables. The server's own log keeps older bytes until it is recycled.
        """

    async def get_sizes(self) -> StoreSize:
        """Return the sizes of the tables, quickly even if they are large. Numbers may be estimates."""
