"""The part of the store contract for tasks that wait for other tasks, their parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidegate.store.parent_rows import AdmittedChildren, EndedParents, ParentRow


class Parents(Protocol):
    """`enqueue` holds a task with `after`; maintenance admits it. A finish does nothing for such tasks."""

    async def find_ended_parents(self, after: str | None, limit: int) -> EndedParents:
        """Look at `limit` parents that some task waits for, starting after an id; return those that ended."""

    async def admit(self, succeeded: Sequence[str], failed: Sequence[str]) -> AdmittedChildren:
        """Remove parents that ended, and make tasks ready that wait for none any more. Safe to repeat."""

    async def admit_left_behind(self, limit: int = 500) -> int:
        """Make held tasks ready that wait for no task any more; return how many."""

    async def remove_parents(self, task_ids: Sequence[str]) -> None:
        """Forget what these tasks wait for; they are final."""

    async def list_parents(self, task_id: str, limit: int = 100) -> list[ParentRow]:
        """Return the tasks that a task waits for, with their states."""
