"""The part of the store contract for steps: what a task has done already, and what is in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.domain.step import DoubtAnswer, DoubtState
from tidegate.store.rows import ActionStatus
from tidegate.store.step_rows import (
    BegunStep,
    DecidedLetter,
    DoubtRow,
    EndedStep,
    StepBegin,
    StepEnd,
    StepRow,
)


class Steps(Protocol):
    """Recorded steps of tasks, and the ledger of doubts.

    A step belongs to its task and is unique in it. A step is open from its `StepBegin` to its `StepEnd`. If
    the run of an open step is over, the step is in doubt: nobody knows whether it was done.
    """

    async def begin_steps(self, begins: Sequence[StepBegin]) -> list[BegunStep]:
        """Record that runs are about to do these steps; return what became of each, in order.

        A step is begun if it is new, if it failed, or if it is in doubt and its `on_doubt` is `repeat`. Each
        doubt that is found has an entry in the ledger. A begin that is recorded already is a resend and
        changes nothing.
        """

    async def end_steps(self, ends: Sequence[StepEnd]) -> list[EndedStep]:
        """Record how these steps ended; return what became of each, in order.

        The first result of a step is the only one. A run that comes later gets `ALREADY` with that result,
        and its own call is entered in the ledger as paid twice.
        """

    async def begin_cached_step(self, begin: StepBegin) -> BegunStep:
        """Do the same as `begin_steps` for a step with a `cache`.

        If a result serves, it becomes the result of the step, and the answer is `DONE`. If another task does
        the same work, the answer is `WAIT`. Otherwise the step is begun, and its task does the work for all.
        """

    async def end_cached_step(self, end: StepEnd) -> EndedStep:
        """Do the same as `end_steps` for a result with a `cache`, and keep the result for other tasks."""

    async def read_steps(
        self,
        task_id: str,
        *,
        with_data: bool = True,
        max_bytes: int | None = None,
        max_total_bytes: int | None = None,
    ) -> list[StepRow]:
        """Return the steps of a task, in the order in which they were first begun.

        Args:
            task_id: The task.
            with_data: Whether results are returned too.
            max_bytes: Results larger than this are left out; None: none are.
            max_total_bytes: If the others take more than this in total, they are left out too.
        """

    async def find_doubts(self, limit: int = 500) -> int:
        """Enter each open step whose run is over in the ledger; return how many entries are new.

        If there are none, nothing is locked.
        """

    async def list_doubts(
        self,
        *,
        state: DoubtState | None = DoubtState.OPEN,
        task_id: str | None = None,
        tenant: str | None = None,
        function: str | None = None,
        upstream: str | None = None,
        sent_before: float | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[DoubtRow]:
        """Return entries of the ledger by id, starting after the id `after`.

        None means any: any state, any tenant and so on.
        """

    async def count_open_doubts(self, task_ids: Sequence[str]) -> dict[str, int]:
        """Return how many open entries of each task wait for a person: those whose `on_doubt` is `ask`.

        Tasks without any are left out.
        """

    async def resolve_doubts(
        self,
        doubt_ids: Sequence[int],
        answer: DoubtAnswer,
        *,
        data: bytes = b"",
        codec: str = "",
        by: str,
        note: str = "",
        tenant: str | None = None,
    ) -> Mapping[int, ActionStatus]:
        """Record what a person decided about these entries; return a status for each.

        `repeat` lets the next run begin the step again, `accept` makes `data` its result, `reject` forbids it
        to be done. A step has at most one open entry, that of the run which began it last. Only open entries
        are resolved; the others keep what was decided first, and are refused. The task is not moved: the
        caller redrives it when `count_open_doubts` has none of it.
        """

    async def list_decided_letters(
        self, *, task_ids: Sequence[str] | None = None, after: str | None = None, limit: int = 100
    ) -> list[DecidedLetter]:
        """Return dead letters that died of a doubt and none of whose doubts waits for a person any more.

        Such letters are to be redriven. Letters that were redriven since the last decision, and died again,
        are left out.

        Args:
            task_ids: Only these tasks, without a limit.
            after: The id after which to continue.
            limit: How many at most.
        """

    async def find_letters_in_doubt(self, task_ids: Sequence[str]) -> list[str]:
        """Return those of these tasks that are dead and whose calls may have been processed.

        Either the task died of a doubt, or one of its steps is open.
        """
