"""Accounts of one task that agree with each other; tests of the checker break them."""

from __future__ import annotations

import dataclasses

from checker import (
    ClientObservations,
    FunctionNote,
    RunLimits,
    StoreSnapshot,
    SubmittedTask,
    Violation,
    check,
    digest_of,
)
from tidegate.domain.outcome import Counters
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.store.rows import HistoryRow, QueueStats, TaskRow

ARGS, RESULT = digest_of(b"args"), digest_of(b"result")
LIMITS = {"app:work": RunLimits(max_attempts=3, crashes=3, losses=10, parks=20)}


def run(number: int, outcome: str, **facts: object) -> HistoryRow:
    """A run that begins at ten times its number and lasts five seconds."""
    reasons = {"retrying": {"reason": "timeout", "charge": "attempt", "why": "backoff"}}
    reasons["released"] = {"charge": "release", "why": "shutdown"}
    reasons["dead"] = {"reason": "timeout", "charge": "attempt", "why": "all attempts spent"}
    plain: dict[str, object] = {"at": number * 10.0, "ended_at": number * 10.0 + 5 if outcome else None}
    return HistoryRow("run", run=number, outcome=outcome, **(plain | reasons.get(outcome, {}) | facts))  # type: ignore[arg-type]


def action(kind: str, at: float) -> HistoryRow:
    return HistoryRow(kind, at)


@dataclasses.dataclass
class TaskAccounts:
    """The three accounts of one task, consistent until a test breaks one of them."""

    row: TaskRow
    history: list[HistoryRow]
    observations: ClientObservations
    notes: list[FunctionNote]
    result: str = RESULT
    payload: str = ARGS
    stats: tuple[QueueStats, ...] = ()

    def check(self, **options: object) -> list[Violation]:
        rows = {self.row.id: self.row}
        results = {self.row.id: self.result} if self.row.state is State.SUCCEEDED else {}
        snapshot = StoreSnapshot(
            rows, {self.row.id: tuple(self.history)}, {self.row.id: self.payload}, results, self.stats
        )
        return check(self.observations, self.notes, snapshot, limits=LIMITS, **options)  # type: ignore[arg-type]

    def alter(self, **changes: object) -> None:
        self.row = dataclasses.replace(self.row, **changes)  # type: ignore[arg-type]


def accounts(
    state: State, *history: HistoryRow, counters: Counters | None = None, redrives: int = 0
) -> TaskAccounts:
    """A task that went through this history, with bodies that wrote down what the store recorded."""
    runs = [entry for entry in history if entry.kind == "run"]
    notes = []
    for entry in runs:
        number = entry.run or 0
        notes.append(FunctionNote("start", "t1", number, 100, entry.at))
        if entry.outcome == "succeeded":
            notes.append(FunctionNote("end", "t1", number, 100, entry.at + 4, digest=RESULT))
        elif entry.outcome:
            notes.append(FunctionNote("end", "t1", number, 100, entry.at + 4, error="TimeoutError"))
    row = TaskRow(
        id="t1",
        function="app:work",
        queue="default",
        priority=Priority.NORMAL,
        upstream="",
        tenant="",
        state=state,
        run=max((entry.run or 0 for entry in runs), default=0),
        counters=counters or Counters(),
        redrives=redrives,
        enqueued_at=1.0,
        due_at=None,
        started_at=None,
        finished_at=None,
        worker_id=None,
        cancel_requested=False,
        reason="",
        message="",
    )
    return TaskAccounts(row, list(history), ClientObservations((SubmittedTask("t1", ARGS),)), notes)
