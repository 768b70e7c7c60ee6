"""The tasks that a run waits for by `ctx.gather`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.domain.final_result import FinalResult, OtherTask
from tidegate.domain.text import counted
from tidegate.steps.waits import Wait


class Children:
    """Other tasks, and how those that have ended did so.

    Args:
        handles: The tasks, in the order in which their results are wanted. A task may be given twice.
    """

    def __init__(self, handles: Iterable[OtherTask[Any]]) -> None:
        wanted = list(handles)
        self._order = [handle.id for handle in wanted]
        self._handles = {handle.id: handle for handle in wanted}
        self._ended: dict[str, FinalResult[Any]] = {}

    @property
    def pending(self) -> list[str]:
        """The tasks that are not known to have ended."""
        return [task_id for task_id in self._handles if task_id not in self._ended]

    async def check(self, task_id: str) -> None:
        """Read how a task ended, if it has."""
        if (ended := await self._handles[task_id]._ended()) is not None:  # noqa: SLF001 - no user needs it
            self._ended[task_id] = ended

    def wait(self) -> Wait:
        """Return the wait for those that have not ended."""
        pending = tuple(self.pending)
        return Wait(None, f"waits for {counted(len(pending), 'task')}", child_ids=pending)

    def values(self, *, return_exceptions: bool) -> list[Any]:
        """Return the results of the tasks, which have all ended, in the order of the handles.

        Raises:
            TidegateError: A task failed, and errors are not to be returned.
        """
        ended = [self._ended[task_id] for task_id in self._order]
        if not return_exceptions:
            for each in ended:
                if each.error is not None:
                    raise each.error
        return [each.value if each.error is None else each.error for each in ended]
