"""Deaths: counted when they happen, by reason and fingerprint, and read by period."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tidegate.domain.failure import Failure
from tidegate.domain.fingerprint import Fingerprint, fingerprint_of
from tidegate.store.common.outcomes import EndedRunRow, UnsuccessfulOutcome, get_failure
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow, HistoryRange

MINUTE_SPAN, HOUR_SPAN, DAY_SPAN = 1, 60, 1440
MINUTES_KEPT = 2 * DAY_SPAN
"""Age in minutes from which history is kept by the hour."""
TIMES_KEPT = 6 * HOUR_SPAN
"""The same for run and wait times, which have several rows for each row of counts."""
HOURS_KEPT = 35 * DAY_SPAN
"""Age in minutes from which it is kept by the day."""
DAYS_KEPT = 400 * DAY_SPAN
"""Age in minutes from which it is deleted: a year can be compared with the one before."""


class CompactionStep(NamedTuple):
    """Rows of one span become rows of a longer one."""

    span: int
    longer: int
    age: int
    """Minutes after which this is done."""


TIMES_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, TIMES_KEPT)
HOUR_STEP = CompactionStep(MINUTE_SPAN, HOUR_SPAN, MINUTES_KEPT)
DAY_STEP = CompactionStep(HOUR_SPAN, DAY_SPAN, HOURS_KEPT)
STEPS = (CompactionStep(0, MINUTE_SPAN, 2), HOUR_STEP, DAY_STEP)


def compaction_limit(now: float, step: CompactionStep) -> int:
    """Return the minute before which rows are summed, which is the first of a longer period."""
    minute = int(now // 60) - step.age
    return minute - minute % step.longer


class _Group(NamedTuple):
    queue: str
    function: str
    upstream: str
    reason: str
    fingerprint: str


@dataclass(slots=True)
class DeathTotals:
    """The deaths of one batch of outcomes, by group."""

    _groups: dict[str, Fingerprint] = field(default_factory=dict)
    _tasks: dict[_Group, list[Any]] = field(default_factory=dict)

    def add(self, task_id: Any, run: EndedRunRow, outcome: UnsuccessfulOutcome) -> None:
        """Count the death of a task, by its id in stored form."""
        failure = get_failure(outcome)
        if failure is None:
            return
        found = _storable_fingerprint(failure)
        self._groups[found.id] = found
        group = _Group(run.queue, run.function, run.upstream, str(failure.reason), found.id)
        self._tasks.setdefault(group, []).append(task_id)

    async def write(self, db: Session, now: float) -> None:
        """Store the counts at the minute of `now`. Without deaths no statement is run."""
        if not self._tasks:
            return
        sql = db.sql("deaths")
        described = sorted(
            (each.id, each.error_class, each.shape, each.frame) for each in self._groups.values()
        )
        await db.run_each(sql["describe"], described)
        await db.run_each(sql["add"], list(self._rows(now)))

    def _rows(self, now: float) -> Iterator[tuple[Any, ...]]:
        for group, tasks in self._tasks.items():
            yield (int(now // 60), *group, len(tasks), now, tasks[-1])


async def count_deaths(db: Session, which: HistoryRange, *, step_minutes: int) -> list[DeathCountRow]:
    """Return the deaths by period, queue, function and reason, oldest first."""
    first, end = minutes_of(which)
    rows = await db.rows(
        db.sql("deaths")["count"], first, end, step_minutes, which.queue, which.function, which.reason
    )
    return [
        DeathCountRow(minute * 60.0, queue, function, reason, int(deaths))
        for minute, queue, function, reason, deaths in rows
    ]


async def list_failure_groups(db: Session, which: HistoryRange, *, limit: int = 50) -> list[FailureGroupRow]:
    """Return the deaths by fingerprint, the most first."""
    first, end = minutes_of(which)
    rows = await db.rows(
        db.sql("deaths")["groups"], first, end, which.queue, which.function, which.reason, limit
    )
    return [_failure_group(db, *row) for row in rows]


def _failure_group(
    db: Session,
    fingerprint: str,
    error_class: str | None,
    shape: str | None,
    frame: str | None,
    deaths: int,
    first_at: float,
    last_at: float,
    functions: str,
    queues: str,
    reasons: str,
    example: Any,
) -> FailureGroupRow:
    return FailureGroupRow(
        fingerprint,
        error_class or "",
        shape or "",
        frame or "",
        int(deaths),
        first_at,
        last_at,
        _names(functions),
        _names(queues),
        _names(reasons),
        db.text(example),
    )


def minutes_of(which: HistoryRange) -> tuple[int, int]:
    """Return the first minute of a range, and the one after its last."""
    return int(which.since // 60), int(-(-which.until // 60))


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(msgspec.json.decode(text, type=list[str])))


def _storable_fingerprint(failure: Failure) -> Fingerprint:
    found = fingerprint_of(failure)
    return Fingerprint(found.id, storable(found.error_class), storable(found.shape), storable(found.frame))
