"""Judges a run: the history checker's invariants, and what only those can tell who know the faults.

The checker holds what clients were told, what bodies wrote down and what the store says against each other,
and wants a recorded reason for every re-run. Here each of these reasons must have a fault behind it, on the
host where it says, at a time when it can have been the cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.orphans import Recovery, recoveries, taken_up_in_time
from chaos.plan import ENDS_DEAD
from chaos.reasons import TAKEN, cause, failure_has_a_body, may_begin_late, may_go_on
from chaos.seen import Seen
from tidegate.domain.outcome import Charge, Fence
from tidegate.domain.states import State
from tidegate.store.rows import HistoryRow
from tidegate.testing.checker import Note, Violation, check

_CLOSE_SECONDS = 0.25
"""Clocks of one machine agree; but a body writes its first line a moment after it was given the run, and
its last one a moment before the end is written."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a run."""

    violations: tuple[Violation, ...]
    reasons: Counter[str]
    """Runs that did not end their task, by recorded reason."""
    zombies: int
    """Bodies that began after their run was closed, each with a fault to explain it."""
    overlaps: int
    """Bodies that went on while the next run's had begun, likewise."""
    recoveries: tuple[Recovery, ...]
    """How long orphaned runs took to be taken up again."""


def judge(seen: Seen) -> Verdict:
    """Return every broken invariant of a run, with the figures that only judging yields."""
    runs = _Runs(seen)
    zombies, zombie_faults = _zombies(seen, runs)
    overlaps, overlap_faults = _overlaps(seen, runs)
    found = check(seen.clients.told, seen.notes, seen.record, limits=seen.limits, zombies=zombies)
    found += zombie_faults
    found += overlap_faults
    found += _reruns_have_a_fault(seen, runs)
    found += _hushes_re_ran_nothing(seen)
    found += _ends_are_deserved(seen)
    found += _clients_were_told_the_truth(seen)
    found += taken_up_in_time(seen)
    found += _all_ends_in_time(seen)
    found += _nothing_is_left(seen)
    return Verdict(
        violations=tuple(found),
        reasons=Counter(
            _reason(entry) for entry in runs.entries if entry.outcome in {"retrying", "released"}
        ),
        zombies=len(zombies),
        overlaps=overlaps,
        recoveries=tuple(recoveries(seen)),
    )


class _Runs:
    """The runs of a record, and the notes of their bodies, found by fence."""

    def __init__(self, seen: Seen) -> None:
        self.entries: list[HistoryRow] = []
        self.by_fence: dict[Fence, HistoryRow] = {}
        self.starts: dict[Fence, Note] = {}
        self.ends: dict[Fence, Note] = {}
        for task_id, entries in seen.record.histories.items():
            for entry in entries:
                if entry.kind == "run" and entry.run is not None:
                    self.entries.append(entry)
                    self.by_fence[Fence(task_id, entry.run)] = entry
        for note in seen.notes:
            kept = self.starts if note.event == "start" else self.ends
            kept.setdefault(Fence(note.task_id, note.run), note)


def _reason(entry: HistoryRow) -> str:
    """Return why a run was not the last one, in few words that many runs share."""
    if entry.charge in {Charge.RELEASE, Charge.INTERRUPTED}:
        return f"given back: {entry.why.partition(':')[0]}"
    if entry.charge in {Charge.CRASH, Charge.LOSS}:
        return f"{entry.charge}: {entry.message.removeprefix('worker lost: ').partition(' for ')[0]}"
    if entry.evidence == "ctx.retry":
        return f"ctx.retry ({'charged' if entry.charge == Charge.ATTEMPT else 'uncharged'})"
    return f"failed: {entry.error_class.rpartition('.')[2] or entry.reason}"


# --- zombies ---------------------------------------------------------------------------------------------


def _zombies(seen: Seen, runs: _Runs) -> tuple[frozenset[Fence], list[Violation]]:
    """Return the bodies that began after their run was closed, and those without a fault to explain it."""
    zombies, found = set(), []
    for fence, note in runs.starts.items():
        entry = runs.by_fence.get(fence)
        if entry is None or entry.ended_at is None or note.at <= entry.ended_at + _CLOSE_SECONDS:
            continue
        if may_begin_late(seen, entry.worker_id, entry.at, note.at):
            zombies.add(fence)
        else:
            late = note.at - entry.ended_at
            what = (
                f"run {fence.run} began {late:.3f} s after it was closed, and its worker did not stand still"
            )
            found.append(Violation("I8", fence.task_id, what))
    return frozenset(zombies), found


def _overlaps(seen: Seen, runs: _Runs) -> tuple[int, list[Violation]]:
    """Count the bodies still at work when that of the next run began; return those without a fault."""
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
            if not may_go_on(seen, entry.worker_id, entry.at, end.at):
                late = end.at - min(later)
                what = f"run {run} went on for {late:.3f} s beside the next, and nothing explains it"
                found.append(Violation("I8", task_id, what))
    return overlaps, found


# --- re-runs ---------------------------------------------------------------------------------------------


def _reruns_have_a_fault(seen: Seen, runs: _Runs) -> Iterator[Violation]:
    """I12: behind the reason of every run that was not the last, and of every death, is a fault or a body."""
    for fence, entry in runs.by_fence.items():
        if entry.outcome not in {"retrying", "released", "dead"}:
            continue
        if entry.charge in TAKEN:
            is_explained = cause(seen, entry, runs.starts.get(fence)) is not None
        else:
            is_explained = failure_has_a_body(seen, fence, entry, runs.ends.get(fence))
        if not is_explained:
            whose = f"{entry.worker_id[:8]} on {seen.processes.host_of(entry.worker_id)}"
            how = f"{entry.outcome} ({entry.charge}: {entry.why})"
            yield Violation(
                "I12", fence.task_id, f"run {fence.run} of {whose} ended {how}, and no fault explains it"
            )


def _hushes_re_ran_nothing(seen: Seen) -> Iterator[Violation]:
    """I12: of what ran when the store went away or everything froze, nothing is run again because of it."""
    for hush in seen.journal.hushes:
        for fence in sorted(hush.running):
            for entry in seen.record.histories.get(fence.task_id, ()):
                if entry.kind != "run" or entry.run != fence.run or entry.ended_at is None:
                    continue
                if (
                    entry.charge in {Charge.LOSS, Charge.CRASH, Charge.RELEASE, Charge.INTERRUPTED}
                    and entry.ended_at <= hush.quiet_until
                ):
                    what = f"run {fence.run} was under way at “{hush.fault}”, and was taken from its worker"
                    yield Violation("I12", fence.task_id, f"{what}: {entry.why}")
        if hush.finished_after is None:
            yield Violation("I13", "", f"nothing was finished after “{hush.fault}”")


# --- ends ------------------------------------------------------------------------------------------------


def _ends_are_deserved(seen: Seen) -> Iterator[Violation]:
    """I15: tasks die of what their bodies do, or of crashes; they are cancelled if somebody wanted it."""
    for row in seen.record.rows.values():
        deserved = ENDS_DEAD.get(row.function.rpartition(":")[2])
        if row.state is State.SUCCEEDED and deserved is not None:
            yield Violation("I10", row.id, f"{row.function} cannot succeed, and did")
        elif row.state is State.DEAD and row.reason not in {deserved, "crash"}:
            yield Violation("I15", row.id, f"{row.function} is dead by {row.reason}: {row.message}")
        elif row.state is State.CANCELLED and row.id not in seen.clients.cancelling:
            yield Violation("I5", row.id, "was cancelled, though nobody asked for it")


def _clients_were_told_the_truth(seen: Seen) -> Iterator[Violation]:
    """I6: what a client was told of a final task is what the store says in the end."""
    for final in seen.clients.finals:
        row = seen.record.rows.get(final.task_id)
        if row is None or row.state != final.state or (final.run and row.run != final.run):
            now = "is not there" if row is None else f"is {row.state} at run {row.run}"
            yield Violation("I6", final.task_id, f"was told {final.state} at run {final.run}, and {now}")
    for trouble in seen.clients.troubles:
        yield Violation("client", "", trouble)


def _all_ends_in_time(seen: Seen) -> Iterator[Violation]:
    """I13: after the last fault everything becomes final within the bound."""
    bound = seen.plan.settle_bound(seen.open_then)
    bound += seen.journal.stalled_seconds(seen.calm_at, seen.ended_at)
    if seen.settled_after is None or seen.settled_after > bound:
        took = "not even then" if seen.settled_after is None else f"after {seen.settled_after:.1f} s"
        what = f"{seen.open_then} open tasks were to be final {bound:.1f} s after the last fault, and were {took}"
        yield Violation("I13", "", what)


def _nothing_is_left(seen: Seen) -> Iterator[Violation]:
    for what in seen.faults_in_store:
        yield Violation("I20", "", f"the store is damaged: {what}")
    for what in seen.left_processes:
        yield Violation("left", "", f"a process was left behind: {what}")
    for what in seen.left_scratch:
        yield Violation("left", "", f"scratch was left behind: {what}")
    for what in seen.journal.problems:
        yield Violation("seen", "", what)
    if seen.journal.worker_kills < seen.plan.kills:
        what = f"{seen.journal.worker_kills} kills were done, {seen.plan.kills} were wanted"
        yield Violation("plan", "", what)
