"""Writing the ends other than success: one statement each a step."""

from __future__ import annotations

import apsw

from tidegate.domain.outcome import Dead, Outcome, Retrying, Succeeded
from tidegate.domain.states import State
from tidegate.store.columns import rules_of
from tidegate.store.endings import Ending, Run, Settled, is_told_again, settle, shows_that_it_answers
from tidegate.store.sqlite import gates, keys, query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable, to_json
from tidegate.store.totals import Totals

_SQL = load("finish")


def end(db: apsw.Connection, now: float, task: bytes, ending: Ending, totals: Totals) -> bool:
    """End a run if it is the current one, and write what becomes of the task; tell whether it was."""
    row = query.row(db, _SQL["end"], (task, ending.fence.run))
    if row is None:
        return False
    run = Run(*row)
    settled = settle(now, run, ending, has_next_key=_tell_upstream(db, now, run, ending))
    db.execute(_SQL["attempt"], (task, *settled.attempt))
    _spend(db, task, ending, settled)
    _move(db, now, task, run, ending.fence.run, settled)
    totals.add(now, run, settled.state)
    return True


def is_resent(db: apsw.Connection, task: bytes, outcome: Outcome) -> bool:
    """Return whether this run's end was recorded in these very words."""
    run = outcome.fence.run
    if isinstance(outcome, Succeeded):
        return query.value(db, _SQL["was_success"], (task, run)) is not None
    return is_told_again(outcome, query.row(db, _SQL["was_attempt"], (task, run)))


def _spend(db: apsw.Connection, task: bytes, ending: Ending, settled: Settled) -> None:
    db.execute(_SQL["spend"], (task, *settled.spent))
    if isinstance(ending, Retrying) and ending.rule:
        rules = rules_of(query.value(db, _SQL["rules"], (task,)))
        rule = storable(ending.rule)
        rules[rule] = rules.get(rule, 0) + 1
        db.execute(_SQL["spend_rule"], (task, to_json(rules)))


def _tell_upstream(db: apsw.Connection, now: float, run: Run, ending: Ending) -> bool:
    """Let a failure move the gate of the run's upstream; tell whether another of its keys serves the task."""
    if not run.upstream or not isinstance(ending, Retrying | Dead):
        return False
    if ending.signal is not None:
        return gates.told(db, now, run.upstream, ending.signal, began_at=run.started_at).is_of_one_key
    if shows_that_it_answers(ending):
        seconds = now - run.started_at
        gates.went_well(db, now, run.upstream, seconds=seconds, goods=1, is_probe=bool(run.probe))
    return False


def _move(db: apsw.Connection, now: float, task: bytes, run: Run, number: int, settled: Settled) -> None:
    said, where = settled.said, (run.queue, run.priority, run.upstream, run.function, run.tenant)
    if settled.state is State.RETRYING:
        place = (task, settled.due_at, *where, settled.rank, number, said.why)
        db.execute(_SQL["retry"], (*place, *settled.budget))
        return
    if settled.state is State.READY:
        db.execute(_SQL["release"], (task, *where, settled.rank, now, number))
        return
    if run.unique_name is not None:
        keys.free_unique(db, run.tenant, run.unique_name, task)
    if settled.state is State.DEAD:
        letter = (run.queue, run.function, run.tenant, said.reason, said.error_class, said.message)
        db.execute(_SQL["bury"], (task, *letter, number, run.worker_id, run.started_at, now))
    else:
        db.execute(_SQL["cancel"], (task, number, run.worker_id, run.ready_at, run.started_at, now))
