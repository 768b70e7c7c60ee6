"""Writing the ends other than success: one statement each a step."""

from __future__ import annotations

import apsw

from tidegate.domain.outcome import Dead, Outcome, Retrying, Succeeded
from tidegate.domain.states import State
from tidegate.store.common import gates
from tidegate.store.endings import (
    Ending,
    Run,
    Settled,
    counted_name,
    is_told_again,
    name_to_free,
    one_more,
    place,
    settle,
    shows_that_it_answers,
)
from tidegate.store.gating import GoodRuns, is_silent_probe
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete
from tidegate.store.totals import Totals

_SQL = load("finish")
_PLACES = {
    State.RETRYING: _SQL["retry"],
    State.READY: _SQL["release"],
    State.DEAD: _SQL["bury"],
    State.CANCELLED: _SQL["cancel"],
}


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
    if (used := ending.calls.used) is not None:
        db.execute(_SQL["use"], (task, *used.columns()))
    if name := counted_name(ending):
        kept = query.value(db, _SQL["rules"], (task,))
        db.execute(_SQL["spend_rule"], (task, one_more(kept, name)))


def _tell_upstream(db: apsw.Connection, now: float, run: Run, ending: Ending) -> bool:
    """Let an ending move the gate of the run's upstream; tell whether another of its keys serves the task."""
    signal = ending.signal if isinstance(ending, Retrying | Dead) else None
    is_of_one_key, session = False, SqliteSession(db, now)
    if signal is not None and (name := signal.upstream or run.upstream):
        told = complete(gates.told(session, name, signal, began_at=run.started_at))
        is_of_one_key = told.is_of_one_key
    if signal is not None and signal.upstream in ("", run.upstream):
        return is_of_one_key
    if run.upstream and shows_that_it_answers(ending):
        good = GoodRuns(now - run.started_at, 1, bool(run.probe))
        complete(gates.went_well(session, run.upstream, good))
    elif is_silent_probe(run, ending.calls):
        complete(gates.told_nothing(session, run.upstream, run.started_at))
    return is_of_one_key


def _move(db: apsw.Connection, now: float, task: bytes, run: Run, number: int, settled: Settled) -> None:
    db.execute(_PLACES[settled.state], place(now, task, run, number, settled))
    if (name := name_to_free(run, settled)) is not None:
        keys.free_unique(db, run.tenant, name, task)
