"""Holds the three accounts against each other and names what does not agree. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tidegate.domain.outcome import Charge, Fence
from tidegate.domain.states import FINAL, State
from tidegate.store.rows import CancelAnswer, HistoryRow, TaskRow
from tidegate.testing.checker import life
from tidegate.testing.checker.facts import Limits, Note, Record, Told, Violation

INVARIANTS: Mapping[str, str] = {
    "I1": "an accepted task is there, with the arguments that were sent",
    "I2": "no task is there that nobody enqueued",
    "I3": "one task for each idempotency key",
    "I5": "only allowed moves",
    "I6": "one final move, and nothing after it",
    "I7": "the run rises with every claim, and each run starts once",
    "I8": "a run is claimed only after the one before it was closed",
    "I10": "the stored result is that of the run that succeeded",
    "I12": "every re-run is explained",
    "I13": "at rest, every task is final",
    "I15": "attempts, crashes, losses and parks keep to their limits",
    "I19": "no run starts after an answered cancel",
    "I20": "counters equal a recount",
}
"""What `check` looks for, in words."""

_COUNTED = {
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
    told: Told,
    notes: Iterable[Note],
    record: Record,
    *,
    limits: Mapping[str, Limits] | None = None,
    at_rest: bool = True,
    watched: bool = True,
    zombies: Collection[Fence] = (),
) -> list[Violation]:
    """Return every broken invariant, those of one task together.

    Args:
        told: What clients were told.
        notes: What bodies wrote down.
        record: What the store says.
        limits: By task function; a function that is not named is held to no limits.
        at_rest: Whether faults are over and all work should be done: nothing moves any more, so every
            task must be final and the queue figures must be exact.
        watched: Whether every body left notes. Without, what only they can tell is not looked at.
        zombies: Runs whose bodies began after their run was closed, each for a reason the caller knows: their
            process stood still meanwhile, say. They may begin after a cancel; the fence refuses their end.
    """
    by_task: defaultdict[str, list[Note]] = defaultdict(list)
    for note in notes:
        by_task[note.task_id].append(note)
    found = [*_accepted_are_there(told, record), *_nothing_from_nowhere(told, record), *_keys(told, record)]
    for task_id, row in sorted(record.rows.items()):
        found += _one_task(row, record, by_task[task_id] if watched else [], limits or {})
        if watched:
            stored = record.results.get(task_id, "")
            entries = record.histories.get(task_id, ())
            found += life.result_is_the_last_runs(row, entries, by_task[task_id], stored)
        if at_rest and row.state not in FINAL:
            found.append(Violation("I13", task_id, f"still {row.state} at run {row.run}: {row.message}"))
    found += _cancels_hold(told, record, by_task, zombies)
    if at_rest:
        found += _figures(record)
    return found


def _one_task(
    row: TaskRow, record: Record, notes: Sequence[Note], limits: Mapping[str, Limits]
) -> Iterator[Violation]:
    entries = record.histories.get(row.id, ())
    yield from life.moves_are_allowed(row, entries)
    yield from life.ends_once(row, entries)
    yield from life.runs_rise(row, entries)
    yield from life.claims_wait_for_the_end(row, entries)
    yield from life.reruns_are_explained(row, entries)
    yield from life.starts_are_claims(row, entries, notes)
    yield from _within_limits(row, limits.get(row.function))
    yield from _counters(row, entries)


def _accepted_are_there(told: Told, record: Record) -> Iterator[Violation]:
    for submitted in told.submitted:
        if not submitted.ok or submitted.task_id in told.purged:
            continue
        if submitted.task_id not in record.rows:
            yield Violation("I1", submitted.task_id, "was accepted and is not there")
        elif record.payloads.get(submitted.task_id) != submitted.digest:
            yield Violation("I1", submitted.task_id, "holds other arguments than were sent")


def _nothing_from_nowhere(told: Told, record: Record) -> Iterator[Violation]:
    known = {submitted.task_id for submitted in told.submitted}
    for task_id in sorted(record.rows.keys() - known):
        yield Violation("I2", task_id, "is there, though nobody enqueued it")


def _keys(told: Told, record: Record) -> Iterator[Violation]:
    holders: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row in record.rows.values():
        if row.key is not None:
            holders[row.tenant, row.key].add(row.id)
    for submitted in told.submitted:
        # A purge frees the key with all that belonged to its task.
        if submitted.key is not None and submitted.ok and submitted.task_id not in told.purged:
            holders[submitted.tenant, submitted.key].add(submitted.task_id)
    for (_, key), ids in sorted(holders.items()):
        if len(ids) > 1:
            first, *others = sorted(ids)
            yield Violation("I3", first, f"shares the key {key!r} with {', '.join(others)}")


def _within_limits(row: TaskRow, limits: Limits | None) -> Iterator[Violation]:
    if limits is None:
        return
    spent = row.counters
    for name, value, most in (
        ("attempts", spent.attempts, row.max_attempts or limits.max_attempts),
        ("crashes", spent.crashes, limits.crashes),
        ("losses", spent.losses, limits.losses),
        ("parks", spent.parks, limits.parks),
    ):
        if value > most:
            yield Violation("I15", row.id, f"{value} {name}, {most} are allowed")


def _counters(row: TaskRow, entries: Sequence[HistoryRow]) -> Iterator[Violation]:
    charges = Counter(entry.charge for entry in life.present_life(entries) if entry.outcome)
    charges[Charge.RELEASE.value] += charges[Charge.INTERRUPTED.value]
    for charge, name in _COUNTED.items():
        counted, kept = charges[charge.value], getattr(row.counters, name)
        if counted != kept:
            yield Violation("I20", row.id, f"counts {kept} {name}, its history shows {counted}")
    redrives = sum(entry.kind == "redriven" for entry in entries)
    if redrives != row.redrives:
        yield Violation("I20", row.id, f"counts {row.redrives} redrives, its history shows {redrives}")


def _cancels_hold(
    told: Told, record: Record, notes: Mapping[str, Sequence[Note]], zombies: Collection[Fence]
) -> Iterator[Violation]:
    for cancel in told.cancels:
        if cancel.answer not in (CancelAnswer.CANCELLED, CancelAnswer.ASKED):
            continue
        for entry in life.until_redriven(record.histories.get(cancel.task_id, ()), cancel.at):
            if entry.kind == "run" and entry.at > cancel.at:
                late = entry.at - cancel.at
                yield Violation("I19", cancel.task_id, f"run {entry.run} was claimed {late:.3f} s later")
        for note in notes.get(cancel.task_id, ()):
            if note.event != "start" or Fence(note.task_id, note.run) in zombies:
                continue
            if note.at > cancel.at and cancel.answer is CancelAnswer.CANCELLED:
                yield Violation(
                    "I19", cancel.task_id, f"a body started {note.at - cancel.at:.3f} s later, run {note.run}"
                )


def _figures(record: Record) -> Iterator[Violation]:
    counted = Counter((row.queue, row.state) for row in record.rows.values())
    told = {stats.queue: stats for stats in record.stats}
    for queue in sorted({queue for queue, _ in counted} & told.keys()):
        stats = told[queue]
        figures = {name: (getattr(stats, name), counted[queue, state]) for name, state in _STATS.items()}
        figures["ready"] = (stats.ready + stats.paced + stats.blocked, counted[queue, State.READY])
        for name, (shown, recount) in figures.items():
            if shown != recount:
                yield Violation("I20", "", f"queue {queue} shows {shown} {name}, {recount} are there")
