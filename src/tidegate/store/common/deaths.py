"""Deaths: count them when they happen, by reason and fingerprint, and read the counts by period."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tidegate.domain.fingerprint import Fingerprint
from tidegate.domain.states import State
from tidegate.store.common.outcomes import EndedRunRow, TaskTransition
from tidegate.store.common.periods import WHOLE_TIME, days_of, minutes_of
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow, HistoryRange


class _Group(NamedTuple):
    queue: str
    function: str
    upstream: str
    reason: str
    fingerprint: str


@dataclass(slots=True)
class DeathTotals:
    """The deaths of one batch of outcomes by group, and the failures that get a fingerprint."""

    _groups: dict[str, Fingerprint] = field(default_factory=dict)
    _tasks: dict[_Group, list[Any]] = field(default_factory=dict)

    def add(self, task_id: Any, run: EndedRunRow, transition: TaskTransition) -> None:
        """Count the death of a task, and keep the failure if it has a fingerprint.

        The id is in stored form.
        """
        found = transition.fingerprint
        if found is None:
            return
        self._groups[found.id] = found
        if transition.state is State.DEAD:
            reason = transition.attempt_record.reason
            group = _Group(run.queue, run.function, run.upstream, reason, found.id)
            self._tasks.setdefault(group, []).append(task_id)

    async def write(self, db: Session, now: float) -> None:
        """Store the counts under the minute of `now`.

        If no failure has a fingerprint, no statement is run.
        """
        if not self._groups:
            return
        sql = db.sql("deaths")
        await describe(db, self._groups.values())
        if self._tasks:
            await db.run_each(sql["add"], list(self._rows(now)))

    def _rows(self, now: float) -> Iterator[tuple[Any, ...]]:
        for group, tasks in self._tasks.items():
            yield (int(now // 60), *group, len(tasks), now, tasks[-1])


async def describe(db: Session, found: Iterable[Fingerprint]) -> None:
    """Store what the failures with these fingerprints have in common."""
    rows = sorted({(each.id, each.error_class, each.shape, each.frame) for each in found})
    await db.run_each(db.sql("deaths")["describe"], rows)


async def count_deaths(
    db: Session,
    which: HistoryRange,
    *,
    step_minutes: int,
    error_class: str | None = None,
    fingerprint: str | None = None,
    tenant: str | None = None,
) -> list[DeathCountRow]:
    """Return the deaths, grouped by period, queue, function and reason, oldest first."""
    sql = db.sql("deaths")
    fingerprints = await _fingerprints_json(db, error_class, fingerprint)
    names = (which.queue, which.function, which.reason, fingerprints)
    if tenant is None:
        first, after = minutes_of(which)
        days = days_of(first, after, step_minutes, await db.now())
        rows = await db.rows(sql["count"], first, after, *days, step_minutes, *names)
    else:
        period = (which.since, which.until)
        rows = await db.rows(sql["count_of_tenant"], *period, storable(tenant), step_minutes, *names)
    return [
        DeathCountRow(minute * 60.0, queue, function, reason, int(deaths))
        for minute, queue, function, reason, deaths in rows
    ]


async def _fingerprints_json(db: Session, error_class: str | None, fingerprint: str | None) -> str | None:
    """Return the fingerprints that may be counted as a JSON array; None for all."""
    if error_class is None and fingerprint is None:
        return None
    if error_class is None:
        chosen = [fingerprint]
    else:
        of_class = await db.column(db.sql("deaths")["of_class"], storable(error_class))
        chosen = [each for each in of_class if fingerprint in (None, each)]
    return msgspec.json.encode(chosen).decode()


@dataclass(slots=True)
class _FailureGroup:
    """The deaths with one fingerprint."""

    deaths: int = 0
    first_at: float = math.inf
    last_at: float = 0.0
    functions: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    reasons: set[str] = field(default_factory=set)


async def list_failure_groups(
    db: Session,
    which: HistoryRange,
    *,
    limit: int = 50,
    error_class: str | None = None,
    fingerprint: str | None = None,
    tenant: str | None = None,
) -> list[FailureGroupRow]:
    """Return the deaths, grouped by fingerprint, the largest group first; with a tenant, its dead letters."""
    sql, groups, examples = db.sql("deaths"), dict[str, _FailureGroup](), dict[str, Any]()
    rows = await _rows_of_groups(db, which, tenant)
    of_class = None if error_class is None else set(await db.column(sql["of_class"], storable(error_class)))
    for name, queue, function, reason, deaths, first_at, last_at, *example in rows:
        if (fingerprint is not None and name != fingerprint) or (
            of_class is not None and name not in of_class
        ):
            continue
        group = groups.setdefault(name, _FailureGroup())
        group.deaths += int(deaths)
        group.first_at = min(group.first_at, first_at)
        if last_at >= group.last_at:
            group.last_at = last_at
            if example:
                examples[name] = example[0]
        group.functions.add(function)
        group.queues.add(queue)
        group.reasons.add(reason)
    chosen = dict(sorted(groups.items(), key=lambda each: (-each[1].deaths, each[0]))[:limit])
    described = await db.run_each(sql["described"], [(name, group.last_at) for name, group in chosen.items()])
    texts = {name: columns for name, *columns in described}
    found = []
    for name, group in chosen.items():
        error_class, shape, frame, example_id = texts[name]
        found.append(
            _failure_group_row(db, name, group, error_class, shape, frame, examples.get(name) or example_id)
        )
    return found


async def _rows_of_groups(db: Session, which: HistoryRange, tenant: str | None) -> Sequence[Sequence[Any]]:
    sql = db.sql("deaths")
    names = (which.queue, which.function, which.reason)
    if tenant is not None:
        return await db.rows(sql["groups_of_tenant"], which.since, which.until, storable(tenant), *names)
    first, after = minutes_of(which)
    days = days_of(first, after, WHOLE_TIME, await db.now())
    return await db.rows(sql["groups"], first, after, *days, *names)


def _failure_group_row(
    db: Session,
    fingerprint: str,
    group: _FailureGroup,
    error_class: str | None,
    shape: str | None,
    frame: str | None,
    example: Any,
) -> FailureGroupRow:
    return FailureGroupRow(
        fingerprint,
        error_class or "",
        shape or "",
        frame or "",
        group.deaths,
        group.first_at,
        group.last_at,
        tuple(sorted(group.functions)),
        tuple(sorted(group.queues)),
        tuple(sorted(group.reasons)),
        db.text(example),
    )
