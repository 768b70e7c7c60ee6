"""Compare the three records and report every broken invariant. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from checker import history_checks
from checker.observations import (
    ClientObservations,
    FunctionNote,
    RunLimits,
    StoreSnapshot,
    Violation,
)
from tidegate.domain.outcome import Charge, Fence
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import CancelStatus, HistoryRow, TaskRow

INVARIANTS: Mapping[str, str] = {
    "I1": "an accepted task exists, with the arguments that were sent",
    "I2": "no task exists that nobody enqueued",
    "I3": "one task for each idempotency key",
    "I5": "only allowed moves",
    "I6": "one final move, and nothing after it",
    "I7": "the run rises with every claim, and each run starts once",
    "I8": "a run is claimed only after the one before it was closed",
    "I10": "the stored result is that of the run that succeeded",
    "I12": "every re-run is explained",
    "I13": "when all work is done, every task is final",
    "I15": "attempts, crashes, losses and parks stay within their limits",
    "I19": "no run starts after an answered cancel",
    "I20": "counters equal a recount",
}
"""A description of each invariant that `check` checks."""

_COUNTERS = {
    Charge.ATTEMPT: "attempts",
    Charge.PARK: "parks",
    Charge.CRASH: "crashes",
    Charge.LOSS: "losses",
    Charge.RELEASE: "releases",
}
_STATS = {
    "running": State.RUNNING,
    "retrying": State.RETRYING,
    "scheduled": State.SCHEDULED,
    "held": State.HELD,
    "suspended": State.SUSPENDED,
    "dead": State.DEAD,
}


def check(
    observations: ClientObservations,
    notes: Iterable[FunctionNote],
    snapshot: StoreSnapshot,
    *,
    limits: Mapping[str, RunLimits] | None = None,
    is_finished: bool = True,
    has_notes: bool = True,
    zombies: Collection[Fence] = (),
) -> list[Violation]:
    """Return every broken invariant, those of one task together.

    Args:
        observations: The responses that clients got.
        notes: The starts and ends that the task functions recorded.
        snapshot: The contents of the store.
        limits: The limits of each task function; a function without an entry has no limits.
        is_finished: Whether the faults are over and all work is done: then every task must be final and the
            queue statistics must be exact.
        has_notes: Whether every function recorded its runs. Without it, checks that need notes are left out.
        zombies: Runs whose functions started after their run was closed, for a reason that the caller knows,
            such as a stopped process. They may start after a cancel; the fence refuses their result.
    """
    by_task: defaultdict[str, list[FunctionNote]] = defaultdict(list)
    for note in notes:
        by_task[note.task_id].append(note)
    found = [
        *_accepted_tasks_exist(observations, snapshot),
        *_no_unknown_tasks(observations, snapshot),
        *_keys_are_unique(observations, snapshot),
    ]
    for task_id, row in sorted(snapshot.rows.items()):
        found += _check_task(row, snapshot, by_task[task_id] if has_notes else [], limits or {})
        if has_notes:
            stored = snapshot.results.get(task_id, "")
            entries = snapshot.histories.get(task_id, ())
            found += history_checks.result_is_the_last_runs(row, entries, by_task[task_id], stored)
        if is_finished and row.state not in FINAL:
            found.append(Violation("I13", task_id, f"still {row.state} at run {row.run}: {row.message}"))
    found += _cancels_are_final(observations, snapshot, by_task, zombies)
    if is_finished:
        found += _queue_counts(snapshot)
    return found


def _check_task(
    row: TaskRow, snapshot: StoreSnapshot, notes: Sequence[FunctionNote], limits: Mapping[str, RunLimits]
) -> Iterator[Violation]:
    entries = snapshot.histories.get(row.id, ())
    yield from history_checks.moves_are_allowed(row, entries)
    yield from history_checks.has_one_final_move(row, entries)
    yield from history_checks.runs_increase(row, entries)
    yield from history_checks.claims_follow_the_end(row, entries)
    yield from history_checks.reruns_are_explained(row, entries)
    yield from history_checks.starts_are_claims(row, entries, notes)
    yield from _limits_hold(row, limits.get(row.function))
    yield from _counters_match(row, entries)


def _accepted_tasks_exist(observations: ClientObservations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    for submitted in observations.submitted:
        if not submitted.ok or submitted.task_id in observations.purged:
            continue
        if submitted.task_id not in snapshot.rows:
            yield Violation("I1", submitted.task_id, "was accepted and is missing")
        elif snapshot.payloads.get(submitted.task_id) != submitted.digest:
            yield Violation("I1", submitted.task_id, "has other arguments than were sent")


def _no_unknown_tasks(observations: ClientObservations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    known = {submitted.task_id for submitted in observations.submitted}
    for task_id in sorted(snapshot.rows.keys() - known):
        yield Violation("I2", task_id, "exists, though nobody enqueued it")


def _keys_are_unique(observations: ClientObservations, snapshot: StoreSnapshot) -> Iterator[Violation]:
    holders: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in snapshot.rows.values():
        if row.key is not None:
            holders[row.tenant, row.key].add(row.id)
    for submitted in observations.submitted:
        # A purge deletes the key of its task as well.
        if submitted.key is not None and submitted.ok and submitted.task_id not in observations.purged:
            holders[submitted.tenant, submitted.key].add(submitted.task_id)
    for (_, key), ids in sorted(holders.items()):
        if len(ids) > 1:
            first, *others = sorted(ids)
            yield Violation("I3", first, f"shares the key {key!r} with {', '.join(others)}")


def _limits_hold(row: TaskRow, limits: RunLimits | None) -> Iterator[Violation]:
    if limits is None:
        return
    spent = row.counters
    for name, value, limit in (
        ("attempts", spent.attempts, row.max_attempts or limits.max_attempts),
        ("crashes", spent.crashes, limits.crashes),
        ("losses", spent.losses, limits.losses),
        ("parks", spent.parks, limits.parks),
    ):
        if value > limit:
            yield Violation("I15", row.id, f"{value} {name}, {limit} are allowed")


def _counters_match(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    charges = Counter(entry.charge for entry in history_checks.runs_since_redrive(entries) if entry.outcome)
    charges[Charge.RELEASE.value] += charges[Charge.INTERRUPTED.value]
    for charge, name in _COUNTERS.items():
        counted, counter = charges[charge.value], getattr(row.counters, name)
        if counted != counter:
            yield Violation("I20", row.id, f"counts {counter} {name}, its history shows {counted}")
    redrives = sum(entry.kind == "redriven" for entry in entries)
    if redrives != row.redrives:
        yield Violation("I20", row.id, f"counts {row.redrives} redrives, its history shows {redrives}")


def _cancels_are_final(
    observations: ClientObservations,
    snapshot: StoreSnapshot,
    notes: Mapping[str, Sequence[FunctionNote]],
    zombies: Collection[Fence],
) -> Iterator[Violation]:
    for cancel in observations.cancels:
        if cancel.answer not in (CancelStatus.CANCELLED, CancelStatus.REQUESTED):
            continue
        for entry in history_checks.entries_until_redrive(
            snapshot.histories.get(cancel.task_id, ()), cancel.at
        ):
            if entry.kind == "run" and entry.at > cancel.at:
                late = entry.at - cancel.at
                yield Violation("I19", cancel.task_id, f"run {entry.run} was claimed {late:.3f} s later")
        for note in notes.get(cancel.task_id, ()):
            if note.event != "start" or Fence(note.task_id, note.run) in zombies:
                continue
            if note.at > cancel.at and cancel.answer is CancelStatus.CANCELLED:
                late = note.at - cancel.at
                yield Violation(
                    "I19", cancel.task_id, f"the function started {late:.3f} s later, run {note.run}"
                )


def _queue_counts(snapshot: StoreSnapshot) -> Iterator[Violation]:
    counted = Counter((row.queue, row.state) for row in snapshot.rows.values())
    observations = {stats.queue: stats for stats in snapshot.stats}
    for queue in sorted({queue for queue, _ in counted} & observations.keys()):
        stats = observations[queue]
        compared = {name: (getattr(stats, name), counted[queue, state]) for name, state in _STATS.items()}
        compared["ready"] = (stats.ready + stats.paced + stats.blocked, counted[queue, State.READY])
        for name, (shown, stored) in compared.items():
            if shown != stored:
                yield Violation("I20", "", f"queue {queue} shows {shown} {name}, {stored} are stored")
