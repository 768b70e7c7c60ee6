"""Check a run: the history checker's invariants, and checks that need to know the faults.

The history checker compares the clients' responses, the functions' notes and the contents of the store, and
requires a recorded reason for every re-run. The checks here require a fault that explains each reason: on
the right host, at a time when it can have been the cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.fault_causes import TAKEN, cause_of, failure_matches_the_function, may_begin_late, may_overlap
from chaos.orphans import Recovery, reclaimed_in_time, recoveries
from chaos.plan import ENDS_DEAD
from chaos.run_record import ChaosRecord
from checker import FunctionNote, Violation, check
from tidegate.domain.outcome import Charge, Fence
from tidegate.domain.states import State
from tidegate.store.rows import HistoryRow

_CLOSE_SECONDS = 0.25
"""Clocks of one machine agree. But a function records its start shortly after the claim, and its end shortly
before the end of the run is stored."""


@dataclass(frozen=True, slots=True)
class ChaosVerdict:
    """What became of a run."""

    violations: tuple[Violation, ...]
    reasons: Counter[str]
    """Runs that did not end their task, by recorded reason."""
    zombies: int
    """Functions that started after their run was closed, each explained by a fault."""
    overlaps: int
    """Functions that ran on after the next run started, each explained by a fault."""
    recoveries: tuple[Recovery, ...]
    """How long it took until orphaned runs were claimed again."""


def check_run(run_record: ChaosRecord) -> ChaosVerdict:
    """Return every broken invariant of a run, with the figures that only judging yields."""
    runs = _Runs(run_record)
    zombies, zombie_faults = _zombies(run_record, runs)
    overlaps, overlap_faults = _overlaps(run_record, runs)
    found = check(
        run_record.clients.described,
        run_record.notes,
        run_record.snapshot,
        limits=run_record.limits,
        zombies=zombies,
    )
    found += zombie_faults
    found += overlap_faults
    found += _reruns_have_a_fault(run_record, runs)
    found += _global_faults_rerun_nothing(run_record)
    found += _outcomes_are_justified(run_record)
    found += _clients_saw_the_final_state(run_record)
    found += reclaimed_in_time(run_record)
    found += _all_finish_in_time(run_record)
    found += _nothing_is_left_behind(run_record)
    return ChaosVerdict(
        violations=tuple(found),
        reasons=Counter(
            _reason(entry) for entry in runs.entries if entry.outcome in {"retrying", "released"}
        ),
        zombies=len(zombies),
        overlaps=overlaps,
        recoveries=tuple(recoveries(run_record)),
    )


class _Runs:
    """The runs of a record and the notes of their functions, by fence."""

    def __init__(self, run_record: ChaosRecord) -> None:
        self.entries: list[HistoryRow] = []
        self.by_fence: dict[Fence, HistoryRow] = {}
        self.starts: dict[Fence, FunctionNote] = {}
        self.ends: dict[Fence, FunctionNote] = {}
        for task_id, entries in run_record.snapshot.histories.items():
            for entry in entries:
                if entry.kind == "run" and entry.run is not None:
                    self.entries.append(entry)
                    self.by_fence[Fence(task_id, entry.run)] = entry
        for note in run_record.notes:
            kept = self.starts if note.event == "start" else self.ends
            kept.setdefault(Fence(note.task_id, note.run), note)


def _reason(entry: HistoryRow) -> str:
    """Return a short reason why a run was not the last one; many runs share a reason."""
    if entry.charge in {Charge.RELEASE, Charge.INTERRUPTED}:
        return f"released: {entry.why.partition(':')[0]}"
    if entry.charge in {Charge.CRASH, Charge.LOSS}:
        return f"{entry.charge}: {entry.message.removeprefix('worker lost: ').partition(' for ')[0]}"
    if entry.evidence == "ctx.retry":
        return f"ctx.retry ({'charged' if entry.charge == Charge.ATTEMPT else 'uncharged'})"
    return f"failed: {entry.error_class.rpartition('.')[2] or entry.reason}"


# --- zombies -------------------------------------------------------------------------------------------


def _zombies(run_record: ChaosRecord, runs: _Runs) -> tuple[frozenset[Fence], list[Violation]]:
    """Return the functions that started after their run was closed, and those that no fault explains."""
    zombies, found = set(), []
    for fence, note in runs.starts.items():
        entry = runs.by_fence.get(fence)
        if entry is None or entry.ended_at is None or note.at <= entry.ended_at + _CLOSE_SECONDS:
            continue
        if may_begin_late(run_record, entry.worker_id, entry.at, note.at):
            zombies.add(fence)
        else:
            late = note.at - entry.ended_at
            what = (
                f"run {fence.run} began {late:.3f} s after it was closed, and its worker did not stand still"
            )
            found.append(Violation("I8", fence.task_id, what))
    return frozenset(zombies), found


def _overlaps(run_record: ChaosRecord, runs: _Runs) -> tuple[int, list[Violation]]:
    """Count the functions that still ran when the next run started; return those that no fault explains."""
    overlaps, found = 0, []
    by_task: defaultdict[str, list[int]] = defaultdict(list)
    for fence in runs.starts:
        by_task[fence.task_id].append(fence.run)
    for task_id, numbers in by_task.items():
        for run in numbers:
            end, entry = runs.ends.get(Fence(task_id, run)), runs.by_fence.get(Fence(task_id, run))
            later = [runs.starts[Fence(task_id, other)].at for other in numbers if other > run]
            if end is None or entry is None or not later or end.at <= min(later) + _CLOSE_SECONDS:
                continue
            overlaps += 1
            if not may_overlap(run_record, entry.worker_id, entry.at, end.at):
                late = end.at - min(later)
                what = f"run {run} went on for {late:.3f} s beside the next, and nothing explains it"
                found.append(Violation("I8", task_id, what))
    return overlaps, found


# --- re-runs -------------------------------------------------------------------------------------------


def _reruns_have_a_fault(run_record: ChaosRecord, runs: _Runs) -> Iterator[Violation]:
    """I12: a fault or a function explains every run that was not the last, and every death."""
    for fence, entry in runs.by_fence.items():
        if entry.outcome not in {"retrying", "released", "dead"}:
            continue
        if entry.charge in TAKEN:
            is_explained = cause_of(run_record, entry, runs.starts.get(fence)) is not None
        else:
            is_explained = failure_matches_the_function(run_record, fence, entry, runs.ends.get(fence))
        if not is_explained:
            whose = f"{entry.worker_id[:8]} on {run_record.processes.host_of(entry.worker_id)}"
            how = f"{entry.outcome} ({entry.charge}: {entry.why})"
            yield Violation(
                "I12", fence.task_id, f"run {fence.run} of {whose} ended {how}, and no fault explains it"
            )


def _global_faults_rerun_nothing(run_record: ChaosRecord) -> Iterator[Violation]:
    """I12: no task is run again because the store was unreachable or everything was frozen."""
    for global_fault in run_record.fault_log.global_faults:
        for fence in sorted(global_fault.running):
            for entry in run_record.snapshot.histories.get(fence.task_id, ()):
                if entry.kind != "run" or entry.run != fence.run or entry.ended_at is None:
                    continue
                if (
                    entry.charge in {Charge.LOSS, Charge.CRASH, Charge.RELEASE, Charge.INTERRUPTED}
                    and entry.ended_at <= global_fault.observed_until
                ):
                    what = f"run {fence.run} was under way at “{global_fault.fault}”, and was taken from its worker"
                    yield Violation("I12", fence.task_id, f"{what}: {entry.why}")
        if global_fault.finished_after is None:
            yield Violation("I13", "", f"nothing was finished after “{global_fault.fault}”")


# --- ends ----------------------------------------------------------------------------------------------


def _outcomes_are_justified(run_record: ChaosRecord) -> Iterator[Violation]:
    """I15: tasks die because of their functions or of crashes; they are cancelled only on request."""
    for row in run_record.snapshot.rows.values():
        deserved = ENDS_DEAD.get(row.function.rpartition(":")[2])
        if row.state is State.SUCCEEDED and deserved is not None:
            yield Violation("I10", row.id, f"{row.function} cannot succeed, and did")
        elif row.state is State.DEAD and row.reason not in {deserved, "crash"}:
            yield Violation("I15", row.id, f"{row.function} is dead by {row.reason}: {row.message}")
        elif row.state is State.CANCELLED and row.id not in run_record.clients.cancelling:
            yield Violation("I5", row.id, "was cancelled without a request")


def _clients_saw_the_final_state(run_record: ChaosRecord) -> Iterator[Violation]:
    """I6: the final state that a client received is the one in the store at the end."""
    for final in run_record.clients.finals:
        row = run_record.snapshot.rows.get(final.task_id)
        if row is None or row.state != final.state or (final.run and row.run != final.run):
            now = "is not there" if row is None else f"is {row.state} at run {row.run}"
            yield Violation("I6", final.task_id, f"was told {final.state} at run {final.run}, and {now}")
    for trouble in run_record.clients.client_errors:
        yield Violation("client", "", trouble)


def _all_finish_in_time(run_record: ChaosRecord) -> Iterator[Violation]:
    """I13: after the last fault everything becomes final within the bound."""
    bound = run_record.plan.final_bound(run_record.open_at_end)
    bound += run_record.fault_log.stalled_seconds(run_record.faults_ended_at, run_record.ended_at)
    if run_record.final_after is None or run_record.final_after > bound:
        took = "not even then" if run_record.final_after is None else f"after {run_record.final_after:.1f} s"
        what = f"{run_record.open_at_end} open tasks were to be final {bound:.1f} s after the last fault, and were {took}"
        yield Violation("I13", "", what)


def _nothing_is_left_behind(run_record: ChaosRecord) -> Iterator[Violation]:
    for what in run_record.integrity_errors:
        yield Violation("I20", "", f"the store is damaged: {what}")
    for what in run_record.left_processes:
        yield Violation("left", "", f"a process was left behind: {what}")
    for what in run_record.left_scratch:
        yield Violation("left", "", f"scratch was left behind: {what}")
    for what in run_record.fault_log.problems:
        yield Violation("seen", "", what)
    if run_record.fault_log.worker_kills < run_record.plan.kills:
        what = f"{run_record.fault_log.worker_kills} kills were done, {run_record.plan.kills} were wanted"
        yield Violation("plan", "", what)
