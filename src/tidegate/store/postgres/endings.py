"""Writing the ends other than success, for many runs at once: a statement a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidegate.domain.outcome import Dead, Retrying
from tidegate.domain.states import State
from tidegate.store.columns import rules_of
from tidegate.store.endings import Ending, Run, Settled, settle, shows_that_it_answers
from tidegate.store.postgres import gates
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.text import storable, to_json
from tidegate.store.totals import Totals

_SQL = load("finish")


class _Ended(NamedTuple):
    """One run that was current and is over."""

    task_id: str
    run: Run
    ending: Ending
    settled: Settled


async def end(db: Session, endings: Mapping[str, Ending]) -> set[str]:
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


async def count(db: Session, now: float, totals: Totals) -> None:
    """Add what has ended to the figures of the minute."""
    await db.run_many(_SQL["count"], totals.rows(now))


async def _record(db: Session, ended: Sequence[_Ended]) -> None:
    """Keep how the runs went and what they cost their tasks."""
    await db.run_many(_SQL["attempt"], [(task.task_id, *task.settled.attempt) for task in ended])
    await db.run_many(_SQL["spend"], [(task.task_id, *task.settled.spent) for task in ended])
    rules = {task.task_id: rule for task in ended if (rule := _rule(task.ending))}
    if rules:
        kept = await db.rows(_SQL["rules"], list(rules))
        await db.run_many(
            _SQL["spend_rule"],
            [(task_id, _one_more(rule_attempts, rules[str(task_id)])) for task_id, rule_attempts in kept],
        )


async def _tell_upstreams(
    db: Session, now: float, endings: Mapping[str, Ending], runs: Mapping[str, Run]
) -> set[str]:
    """Let failures move the gates of their upstreams, in the order in which gates are locked.

    Returns:
        The ids of the tasks that another key of their upstream serves.
    """
    elsewhere = set()
    for task_id, run in sorted(runs.items(), key=lambda item: item[1].upstream):
        upstream, ending = run.upstream, endings[task_id]
        if not upstream or not isinstance(ending, Retrying | Dead):
            continue
        if ending.signal is not None:
            told = await gates.told(db, upstream, ending.signal, began_at=run.started_at)
            if told.is_of_one_key:
                elsewhere.add(task_id)
        elif shows_that_it_answers(ending):
            seconds, is_probe = now - run.started_at, bool(run.probe)
            await gates.went_well(db, now, upstream, seconds=seconds, goods=1, is_probe=is_probe)
    return elsewhere


def _rule(ending: Ending) -> str:
    return storable(ending.rule) if isinstance(ending, Retrying) else ""


def _one_more(rule_attempts: str | None, rule: str) -> str | None:
    spent = rules_of(rule_attempts)
    return to_json(spent | {rule: spent.get(rule, 0) + 1})


async def _move(db: Session, now: float, ended: Sequence[_Ended]) -> None:
    """Put the tasks where they belong now."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for task in ended:
        statement, row = _place(now, task)
        rows.setdefault(statement, []).append(row)
        if task.settled.state in (State.DEAD, State.CANCELLED) and task.run.unique_name is not None:
            name = (task.run.tenant, task.run.unique_name, task.task_id)
            rows.setdefault("free_name", []).append(name)
    for statement, theirs in rows.items():
        await db.run_many(_SQL[statement], theirs)


def _place(now: float, task: _Ended) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that puts a task where it belongs, with its values."""
    task_id, run, ending, settled = task
    number, said = ending.fence.run, settled.said
    where = (run.queue, run.priority, run.upstream, run.function, run.tenant)
    if settled.state is State.RETRYING:
        place = (task_id, settled.due_at, *where, settled.rank, number, said.why)
        return "retry", (*place, *settled.budget)
    if settled.state is State.READY:
        return "release", (task_id, *where, settled.rank, now, number)
    if settled.state is State.DEAD:
        letter = (run.queue, run.function, run.tenant, said.reason, said.error_class, said.message)
        return "bury", (task_id, *letter, number, run.worker_id, run.started_at, now)
    return "cancel", (task_id, number, run.worker_id, run.ready_at, run.started_at, now)
