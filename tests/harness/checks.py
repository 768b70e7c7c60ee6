"""Check the record of a run against every invariant that its data can show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

from checker import INVARIANTS, Violation, check
from harness.causes import LATE_SECONDS, reruns_have_a_cause, unanswered_claims_never_began
from harness.commit_checks import finish_results_are_true, retired_workers_get_nothing
from harness.faults import Effect
from harness.orphans import Recovery, orphans_are_reclaimed, recoveries
from harness.paid_calls import paid_calls_are_kept
from harness.record import ANY_END, RunRecord, TaskRun
from harness.relations import AFTER, MAP, WAIT, may_be_cancelled, relations_are_kept
from harness.steps import steps_are_kept
from tidegate.domain.failure import Reason
from tidegate.domain.outcome import Fence
from tidegate.domain.states import FINAL, State

CHECKED = [*INVARIANTS, "I9", "I14", "G6", MAP, AFTER, WAIT]
"""The invariants that `check_run` checks."""
_CLOSE_SECONDS = 0.25
"""A function records its start shortly after the claim, and its end shortly before the end of the run is
stored."""
_CLOCK_SECONDS = 0.25
"""Most by which the times of two transactions of different processes may be in the wrong order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking one run."""

    violations: tuple[Violation, ...]
    late_starts: frozenset[Fence]
    """Functions that started after their run was closed, each explained by a fault."""
    overlaps: frozenset[Fence]
    """Functions that ran on after the next run of their task started, each explained by a fault."""
    recoveries: tuple[Recovery, ...]
    """How long it took until orphaned runs were claimed again."""


def check_run(record: RunRecord) -> Verdict:
    """Return every broken invariant of a run, with the figures that only checking yields."""
    late_starts, late_violations = _late_starts(record)
    overlaps, overlap_violations = _overlaps(record)
    reclaimed = tuple(recoveries(record))
    found = [
        *(Violation(kind, "", what) for kind, what in dict.fromkeys(record.fault_log.problems)),
        *check(record.observations, record.notes, record.snapshot, limits=record.limits, zombies=late_starts),
        *late_violations,
        *overlap_violations,
        *unique_names_are_unique(record),
        *retired_workers_get_nothing(record),
        *finish_results_are_true(record),
        *unanswered_claims_never_began(record),
        *reruns_have_a_cause(record),
        *cancels_stop_runs(record),
        *orphans_are_reclaimed(record, reclaimed),
        *_ends_match_the_functions(record),
        *_clients_saw_the_final_state(record),
        *_all_finish_in_time(record),
        *_workers_stop_in_time(record),
        *steps_are_kept(record.recorded_steps, record.snapshot.rows.values()),
        *paid_calls_are_kept(record.paid_calls, record.snapshot.rows.values()),
        *relations_are_kept(record.relations, record.snapshot),
        *(Violation("I20", "", f"integrity: {what}") for what in record.integrity_errors),
    ]
    return Verdict(tuple(found), late_starts, overlaps, reclaimed)


# --- functions that ran outside of their run -----------------------------------------------------------


def _late_starts(record: RunRecord) -> tuple[frozenset[Fence], list[Violation]]:
    """I8: a function starts after its run was closed only if its worker was frozen.

    Returns:
        The runs for which that is so, and the violations.
    """
    explained, found = set(), []
    for fence, run in record.runs.items():
        if run.start is None or run.ended_at is None or run.start.at <= run.ended_at + _CLOSE_SECONDS:
            continue
        if record.was_hit(run, run.start.at, Effect.FREEZES | Effect.STALLS):
            explained.add(fence)
        else:
            late = run.start.at - run.ended_at
            what = f"run {fence.run} began {late:.3f} s after it was closed, and its worker was not frozen"
            found.append(Violation("I8", fence.task_id, what))
    return frozenset(explained), found


def _overlaps(record: RunRecord) -> tuple[frozenset[Fence], list[Violation]]:
    """I8: a function runs on together with the next run only if its worker was frozen, cut off, stopped or ended,
    or if it did not stop at its time limit.

    Returns:
        The runs for which that is so, and the violations.
    """
    explained, found = set(), []
    causes = Effect.FREEZES | Effect.STALLS | Effect.ENDS_MAINTENANCE | Effect.STORE_FAILS
    starts: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for fence, run in record.runs.items():
        if run.start is not None:
            starts[fence.task_id].append((fence.run, run.start.at))
    for fence, run in record.runs.items():
        next_at = min((at for number, at in starts[fence.task_id] if number > fence.run), default=inf)
        if run.end is None or run.end.at <= next_at + _CLOSE_SECONDS:
            continue
        if run.reason == Reason.TIMEOUT or record.was_hit(run, run.end.at, causes):
            explained.add(fence)
        else:
            late = run.end.at - next_at
            what = f"run {fence.run} went on for {late:.3f} s during the next, and nothing explains it"
            found.append(Violation("I8", fence.task_id, what))
    return frozenset(explained), found


# --- ends ----------------------------------------------------------------------------------------------


def _ends_match_the_functions(record: RunRecord) -> Iterator[Violation]:
    """I5, I10 and I15: tasks die because of their functions or of crashes, and are cancelled only on request."""
    for row in record.snapshot.rows.values():
        end = record.scripted_ends.get(row.id, ANY_END)
        if row.state is State.SUCCEEDED and not end.may_succeed:
            yield Violation("I10", row.id, f"{row.function} cannot succeed, and did")
        elif row.state is State.DEAD:
            may_die = row.reason in {*end.dead_reasons, Reason.CRASH} or record.is_injected(row.message)
            if end is not ANY_END and not may_die:
                yield Violation("I15", row.id, f"{row.function} is dead by {row.reason}: {row.message}")
        elif row.state is State.CANCELLED and not (
            row.id in record.cancelling or may_be_cancelled(row.id, record.relations, record.snapshot)
        ):
            yield Violation("I5", row.id, "was cancelled without a request")


def _clients_saw_the_final_state(record: RunRecord) -> Iterator[Violation]:
    """I6: the final state that a client received is the one in the store at the end."""
    for final in record.finals:
        row = record.snapshot.rows.get(final.task_id)
        if row is None:
            if final.task_id not in record.observations.purged:
                what = f"a client received that it is {final.state}, and it does not exist"
                yield Violation("I6", final.task_id, what)
        elif (
            row.state != final.state
            or (final.run and row.run != final.run)
            or final.digest not in {None, record.snapshot.results.get(final.task_id, "")}
        ):
            seen, stored = f"{final.state} at run {final.run or '?'}", f"{row.state} at run {row.run}"
            yield Violation("I6", final.task_id, f"a client received {seen}, the store holds {stored}")


def _all_finish_in_time(record: RunRecord) -> Iterator[Violation]:
    """I13: after the last fault everything becomes final within the bound, and its clients are notified."""
    bound = record.bounds.final + record.fault_log.stalled_seconds(record.faults_ended_at, record.ended_at)
    if record.final_after is None or record.final_after > bound:
        still_open = [row.id for row in record.snapshot.rows.values() if row.state not in FINAL]
        took = "were not" if record.final_after is None else f"were after {record.final_after:.1f} s"
        what = (
            f"{record.open_at_end} open tasks had to be final {bound:.1f} s after the last fault, and {took}"
        )
        yield Violation("I13", still_open[0] if still_open else "", what)
    for task_id in record.waiting:
        yield Violation("I13", task_id, "is final, but the client that waits for its result was not notified")


def _workers_stop_in_time(record: RunRecord) -> Iterator[Violation]:
    """I13: a worker that was asked to stop ends within the bound."""
    ends: defaultdict[str, float] = defaultdict(lambda: inf)
    for life in record.workers.values():
        ends[life.host] = min(ends[life.host], life.ended_at)
    for fault in record.fault_log.faults:
        if fault.has(Effect.ASKS_TO_STOP):
            end = min(fault.ended_at, ends[fault.host], record.ended_at)
            allowed = record.bounds.stop + record.fault_log.stalled_seconds(fault.began_at, end)
            if end - fault.began_at > allowed:
                what = f"{fault.host} was asked to stop and did not end within {allowed:.1f} s"
                yield Violation("I13", "", what)


# --- cancels -------------------------------------------------------------------------------------------


def cancels_stop_runs(record: RunRecord) -> Iterator[Violation]:
    """I19: a run ends within the bound after a cancel request, unless a fault hit its host."""
    for run, requested_at in cancelled_runs(record):
        end = requested_at + record.bounds.cancel
        if (run.ended_at or inf) > end and not _was_disturbed(record, run, end):
            what = f"run {run.fence.run} on {run.host} went on for more than {record.bounds.cancel:.1f} s after its cancel"
            yield Violation("I19", run.fence.task_id, what)


def cancelled_runs(record: RunRecord) -> Iterator[tuple[TaskRun, float]]:
    """Yield each run that was in progress at a cancel request, with the time of the request."""
    requests: defaultdict[str, list[float]] = defaultdict(list)
    for task_id, at in record.cancel_requests:
        requests[task_id].append(at)
    for run in record.runs.values():
        for at in requests.get(run.fence.task_id, ()):
            if run.claimed_at <= at < (run.ended_at or inf) and run.fence.task_id not in record.deaf:
                yield run, at


def _was_disturbed(record: RunRecord, run: TaskRun, end: float) -> bool:
    """Return whether anything hindered the run's host since the claim, or the record ends earlier."""
    disturbing = record.fault_log.touching(run.host, run.claimed_at - LATE_SECONDS, end)
    return end > record.ended_at or any(True for _ in disturbing)


# --- unique names --------------------------------------------------------------------------------------


class UnfinishedSpan(NamedTuple):
    """A span in which a task was not final."""

    begin: float
    end: float
    task_id: str


def unique_names_are_unique(record: RunRecord) -> Iterator[Violation]:
    """I3: tasks that share a unique name are not active at the same time."""
    for ids in record.unique_names.values():
        spans = sorted(span for task_id in set(ids) for span in _unfinished_spans(record, task_id))
        for before, after in pairwise(spans):
            if after.begin < before.end - (0.0 if record.is_virtual else _CLOCK_SECONDS):
                what = f"was open together with {before.task_id}, which holds the same unique name"
                yield Violation("I3", after.task_id, what)


def _unfinished_spans(record: RunRecord, task_id: str) -> Iterator[UnfinishedSpan]:
    row = record.snapshot.rows.get(task_id)
    if row is None:
        return
    begin = record.became_visible_at.get(task_id, row.enqueued_at)
    for entry in record.snapshot.histories.get(task_id, ()):
        if entry.kind == "redriven":
            begin = entry.at
        elif entry.kind == "run" and entry.ended_at is not None and entry.outcome in FINAL:
            if begin is not None:
                yield UnfinishedSpan(begin, entry.ended_at, task_id)
            begin = None
    if begin is not None:
        is_final = row.state in FINAL and row.finished_at is not None
        yield UnfinishedSpan(begin, (row.finished_at or inf) if is_final else inf, task_id)
