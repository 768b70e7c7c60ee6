"""Writing the ends other than success, for many runs at once: a statement a step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from tidegate.domain.calls import CallsMade
from tidegate.domain.outcome import Dead, Retrying
from tidegate.domain.states import State
from tidegate.domain.upstream import Signal
from tidegate.store.common import gates
from tidegate.store.endings import (
    Ending,
    Run,
    Settled,
    counted_name,
    name_to_free,
    one_more,
    place,
    settle,
    shows_that_it_answers,
)
from tidegate.store.gating import GoodRuns, is_silent_probe
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.totals import Totals

_SQL = load("finish")
_PLACES = {
    State.RETRYING: _SQL["retry"],
    State.READY: _SQL["release"],
    State.DEAD: _SQL["bury"],
    State.CANCELLED: _SQL["cancel"],
}


class _Ended(NamedTuple):
    """One run that was current and is over."""

    task_id: str
    run: Run
    ending: Ending
    settled: Settled


async def end(db: PostgresSession, endings: Mapping[str, Ending]) -> set[str]:
    """End those of these runs that are current, and write what becomes of their tasks.

    Args:
        db: In a transaction.
        endings: By task id, in the order of the ids.

    Returns:
        The ids of the tasks whose run was current.
    """
    runs = [ending.fence.run for ending in endings.values()]
    rows = await db.rows(_SQL["end"], db.at, list(endings), runs)
    if not rows:
        return set()
    now: float = rows[0]["now"]
    found = {str(row[0]): Run(*row[2:]) for row in rows}
    elsewhere = await _tell_upstreams(db, now, endings, found)
    ended = sorted(
        _Ended(task, run, endings[task], settle(now, run, endings[task], has_next_key=task in elsewhere))
        for task, run in found.items()
    )
    await _record(db, ended)
    await _move(db, now, ended)
    totals = Totals()
    for task in ended:
        totals.add(now, task.run, task.settled.state)
    await count(db, now, totals)
    return {task.task_id for task in ended}


async def count(db: PostgresSession, now: float, totals: Totals) -> None:
    """Add what has ended to the figures of the minute."""
    await db.run_many(_SQL["count"], totals.rows(now))


async def record_usage(db: PostgresSession, calls: Mapping[str, CallsMade]) -> None:
    """Add what these runs consumed to the totals of their tasks; no statement where no call stated it.

    Args:
        db: In a transaction.
        calls: By task id, of runs that were current.
    """
    used = [(task_id, *made.used.columns()) for task_id, made in calls.items() if made.used is not None]
    if used:
        await db.run_many(_SQL["use"], sorted(used))


async def _record(db: PostgresSession, ended: Sequence[_Ended]) -> None:
    """Keep how the runs went and what they cost their tasks."""
    await db.run_many(_SQL["attempt"], [(task.task_id, *task.settled.attempt) for task in ended])
    await db.run_many(_SQL["spend"], [(task.task_id, *task.settled.spent) for task in ended])
    await record_usage(db, {task.task_id: task.ending.calls for task in ended})
    rules = {task.task_id: name for task in ended if (name := counted_name(task.ending))}
    if rules:
        kept = await db.rows(_SQL["rules"], list(rules))
        await db.run_many(
            _SQL["spend_rule"],
            [(task_id, one_more(rule_attempts, rules[str(task_id)])) for task_id, rule_attempts in kept],
        )


async def _tell_upstreams(
    db: PostgresSession, now: float, endings: Mapping[str, Ending], runs: Mapping[str, Run]
) -> set[str]:
    """Let these endings move the gates of their upstreams, in the order in which gates are locked.

    Returns:
        The ids of the tasks that another key of their upstream serves.
    """
    elsewhere: set[str] = set()
    moves: list[tuple[str, Callable[[], Awaitable[None]]]] = []
    for task_id, run in runs.items():
        upstream, ending = run.upstream, endings[task_id]
        signal = ending.signal if isinstance(ending, Retrying | Dead) else None
        if signal is not None and (name := signal.upstream or upstream):
            moves.append((name, partial(_failed, db, task_id, name, signal, run, elsewhere)))
        if signal is not None and signal.upstream in ("", upstream):
            continue
        if upstream and shows_that_it_answers(ending):
            good = GoodRuns(now - run.started_at, 1, bool(run.probe))
            moves.append((upstream, partial(gates.went_well, db, upstream, good)))
        elif is_silent_probe(run, ending.calls):
            moves.append((upstream, partial(gates.told_nothing, db, upstream, run.started_at)))
    for _, move in sorted(moves, key=lambda move: move[0]):
        await move()
    return elsewhere


async def _failed(
    db: PostgresSession, task_id: str, upstream: str, signal: Signal, run: Run, elsewhere: set[str]
) -> None:
    """Let a failure move the gate of its upstream; add the task to those that another key serves."""
    told = await gates.told(db, upstream, signal, began_at=run.started_at)
    if told.is_of_one_key:
        elsewhere.add(task_id)


async def _move(db: PostgresSession, now: float, ended: Sequence[_Ended]) -> None:
    """Put the tasks where they belong now."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for task_id, run, ending, settled in ended:
        row = place(now, task_id, run, ending.fence.run, settled)
        rows.setdefault(_PLACES[settled.state], []).append(row)
        if (name := name_to_free(run, settled)) is not None:
            rows.setdefault(_SQL["free_name"], []).append((run.tenant, name, task_id))
    for statement, theirs in rows.items():
        await db.run_many(statement, theirs)
