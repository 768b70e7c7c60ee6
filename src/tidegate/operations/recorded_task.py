"""Reads a task with its arguments and history from its store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.operations.tasks import read_dead_task, read_task
from tidegate.store.protocol import Store
from tidegate.store.rows import HistoryRow, TaskRow


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task as the store records it."""

    row: TaskRow
    args: bytes
    codec_tag: str
    history: Sequence[HistoryRow]

    @property
    def failed_runs(self) -> list[HistoryRow]:
        """The runs of the task that failed, in order."""
        return [entry for entry in self.history if entry.kind == "run" and entry.reason]

    @property
    def last_failed_run(self) -> HistoryRow | None:
        """The latest run that failed; None if no run failed."""
        return next(reversed(self.failed_runs), None)


async def read_recorded(store: Store, task_id: str, *, only_dead: bool = False) -> RecordedTask:
    """Return a task with its arguments and history.

    Args:
        store: Holds the task.
        task_id: The id of the task, or a short id.
        only_dead: Whether the task must be a dead letter.

    Raises:
        OptionError: The short id matches several tasks.
        TaskNotFoundError: No task has this id.
        WrongStateError: The task is not dead, but must be.
    """
    row = await (read_dead_task if only_dead else read_task)(store, task_id)
    args, codec_tag = await store.get_payload(row.id)
    return RecordedTask(row, args, codec_tag, await store.get_history(row.id))
