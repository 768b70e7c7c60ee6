"""Check the history of one task from its first entry to its last: moves, ends, runs and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from checker.observations import FunctionNote, Violation
from tidegate.domain.states import FINAL, MOVES, State
from tidegate.store.rows import HistoryRow, TaskRow

_STATES_AFTER = {
    "succeeded": State.SUCCEEDED,
    "retrying": State.RETRYING,
    "released": State.READY,
    "suspended": State.SUSPENDED,
    "dead": State.DEAD,
    "cancelled": State.CANCELLED,
}
"""The state in which each recorded outcome leaves a task."""

_ACTIONS = {
    "redriven": ("redrive", State.READY),
    "run now": ("run_now", State.READY),
    "cancel requested": ("cancel", State.CANCELLED),
}
"""The operation and the resulting state of each action on a task that does not run."""

_UNRECORDED_OPERATIONS = ("promote", "admit", "cancel")
"""Operations that may move a waiting task without an entry in its history."""


def runs_of(entries: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the entries that are runs."""
    return [entry for entry in entries if entry.kind == "run"]


def runs_since_redrive(entries: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the runs since the last redrive, which resets the counters."""
    redrives = [index for index, entry in enumerate(entries) if entry.kind == "redriven"]
    return runs_of(entries[redrives[-1] + 1 :] if redrives else entries)


def entries_until_redrive(entries: Sequence[HistoryRow], after: float) -> Iterator[HistoryRow]:
    """Yield the entries before the first redrive after a given time."""
    for entry in entries:
        if entry.kind == "redriven" and entry.at > after:
            return
        yield entry


def moves_are_allowed(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    """I5: every move in the history is an allowed move, and the last one leads to the state of the row."""
    state: State | None = None
    for entry in entries:
        before = state
        if entry.kind == "run":
            if not _can_reach(state, State.READY):
                yield Violation("I5", row.id, f"run {entry.run} was claimed from {_state_name(state)}")
            state = _STATES_AFTER.get(entry.outcome) if entry.outcome else State.RUNNING
            if state is None or (entry.outcome and (State.RUNNING, state) not in MOVES["finish"]):
                yield Violation("I5", row.id, f"run {entry.run} ended as {entry.outcome!r}")
                return
        elif entry.kind in _ACTIONS and not (
            entry.kind == "cancel requested" and _is_during_a_run(entry, entries)
        ):
            operation, state = _ACTIONS[entry.kind]
            if not any((source, state) in MOVES[operation] for source in _states_before(before)):
                yield Violation("I5", row.id, f"{entry.kind} while {_state_name(before)}")
    if not _can_reach(state, row.state):
        yield Violation("I5", row.id, f"the row is {row.state}, its history leaves it {_state_name(state)}")


def _states_before(state: State | None) -> list[State]:
    """Return the state; for a task without history, every state that an enqueue can give it."""
    return [target for _, target in MOVES["enqueue"]] if state is None else [state]


def _can_reach(source: State | None, target: State) -> bool:
    """Return whether a task can get from `source` to `target` without an entry in its history."""
    return any(
        state is target or any((state, target) in MOVES[operation] for operation in _UNRECORDED_OPERATIONS)
        for state in _states_before(source)
    )


def _is_during_a_run(action: HistoryRow, entries: Sequence[HistoryRow]) -> bool:
    """Return whether the action happened during a run: then a cancel only asks the function to stop."""
    return any(
        run.at <= action.at and (run.ended_at is None or action.at <= run.ended_at)
        for run in runs_of(entries)
    )


def _state_name(state: State | None) -> str:
    return "its enqueue" if state is None else str(state)


def has_one_final_move(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    """I6: there is at most one final move between redrives, nothing follows it, and a final row has one."""
    final: HistoryRow | None = None
    for entry in entries:
        if entry.kind == "redriven":
            final = None
        elif entry.kind == "run":
            if final is not None:
                yield Violation(
                    "I6", row.id, f"run {entry.run} comes after run {final.run}, which ended {final.outcome}"
                )
            if _STATES_AFTER.get(entry.outcome) in FINAL:
                final = entry
    if row.state in (State.SUCCEEDED, State.DEAD) and (final is None or final.outcome != row.state.value):
        ending = "no run ended it" if final is None else f"run {final.run} ended it {final.outcome}"
        yield Violation("I6", row.id, f"the row is {row.state}, but {ending}")
    if row.state not in FINAL and final is not None:
        yield Violation(
            "I6", row.id, f"the row is {row.state} after run {final.run} ended it {final.outcome}"
        )


def runs_increase(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    """I7: every claim has a higher run than the one before, and the row has the last one."""
    runs = [entry.run or 0 for entry in runs_of(entries)]
    for before, after in pairwise(runs):
        if after <= before:
            yield Violation("I7", row.id, f"run {after} was claimed after run {before}")
    if runs and row.run < max(runs):
        yield Violation("I7", row.id, f"the row is at run {row.run}, its history at run {max(runs)}")


def claims_follow_the_end(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    """I8: a run is claimed only after the one before it was closed."""
    for before, after in pairwise(runs_of(entries)):
        if before.ended_at is None:
            yield Violation("I8", row.id, f"run {after.run} was claimed while run {before.run} was open")
        elif after.at < before.ended_at:
            early = before.ended_at - after.at
            yield Violation(
                "I8", row.id, f"run {after.run} was claimed {early:.3f} s before run {before.run} was closed"
            )


def reruns_are_explained(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    """I12: every run after the first follows a recorded failure, release, park, crash, loss or redrive."""
    redriven = False
    before: HistoryRow | None = None
    for entry in entries:
        if entry.kind == "redriven":
            redriven = True
        elif entry.kind == "run":
            if before is not None and not redriven and not _explains_next_run(before):
                yield Violation("I12", row.id, f"run {entry.run} follows run {before.run} without a reason")
            before, redriven = entry, False
    recorded = {entry.run for entry in runs_of(entries)}
    for run in range(1, row.run + 1):
        if run not in recorded:
            yield Violation("I12", row.id, f"run {run} of {row.run} left no record")


def _explains_next_run(ended: HistoryRow) -> bool:
    if ended.outcome in ("released", "suspended"):
        return bool(ended.why)
    return ended.outcome == "retrying" and bool(ended.reason or ended.why) and bool(ended.charge)


def starts_are_claims(
    row: TaskRow, entries: Sequence[HistoryRow], notes: Sequence[FunctionNote]
) -> Iterator[Violation]:
    """I7 and I12, by the functions' notes: at most one start per claim, and no start without a claim."""
    started: set[int] = set()
    claimed = {entry.run for entry in runs_of(entries)}
    for note in notes:
        if note.event != "start":
            continue
        if note.run in started:
            yield Violation("I7", row.id, f"run {note.run} was started twice, again by process {note.pid}")
        started.add(note.run)
        if note.run not in claimed:
            yield Violation("I12", row.id, f"the function started as run {note.run}, which was never claimed")


def result_is_the_last_runs(
    row: TaskRow, entries: Sequence[HistoryRow], notes: Sequence[FunctionNote], stored: str
) -> Iterator[Violation]:
    """I10: the stored result is the one that the function returned in the run that succeeded."""
    winners = [entry.run for entry in runs_of(entries) if entry.outcome == "succeeded"]
    returned = {note.run: note.digest for note in notes if note.event == "end" and not note.error}
    for run in winners:
        if run not in returned:
            yield Violation("I10", row.id, f"run {run} succeeded, but its function never returned")
        elif returned[run] != stored:
            others = [other for other, digest in returned.items() if digest == stored and other != run]
            actual = f"that of run {others[0]}" if others else "of no run"
            yield Violation("I10", row.id, f"the stored result is not that of run {run} but {actual}")
