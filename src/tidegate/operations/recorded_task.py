"""A task with its arguments and history, as its store has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.operations.tasks import read_dead_task, read_task
from tidegate.store.protocol import Store
from tidegate.store.rows import HistoryRow, TaskRow


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task as its store has it."""

    row: TaskRow
    args: bytes
    codec_tag: str
    history: Sequence[HistoryRow]

    @property
    def failed_runs(self) -> list[HistoryRow]:
        """Its runs that failed, in order."""
        return [entry for entry in self.history if entry.kind == "run" and entry.reason]

    @property
    def last_failed_run(self) -> HistoryRow | None:
        """The latest run that failed; None if none did."""
        return next(reversed(self.failed_runs), None)


async def read_recorded(store: Store, task_id: str, *, only_dead: bool = False) -> RecordedTask:
    """Return a task with its arguments and history.

    Args:
        store: Where it is.
        task_id: Its id, or a short one.
        only_dead: Whether it must be a dead letter.

    Raises:
        OptionError: The short id matches several tasks.
        TaskNotFoundError: No task has this id.
        WrongStateError: It is not dead, and must be.
    """
    row = await (read_dead_task if only_dead else read_task)(store, task_id)
    args, codec_tag = await store.get_payload(row.id)
    return RecordedTask(row, args, codec_tag, await store.get_history(row.id))
