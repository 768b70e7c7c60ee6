"""How runs end: successes in bulk, everything else one by one, bad content never in the way.

A batch that fails on its content is halved until the outcome at fault stands alone; that one is written
with a placeholder for what could not be stored. So one task's strange error text neither wedges the
batch it came in nor stays `running` for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallsMade
from tidegate.domain.outcome import Answer, Outcome, Succeeded
from tidegate.store import ids
from tidegate.store.common import gates
from tidegate.store.endings import with_placeholder
from tidegate.store.gating import Good, by_upstream, goes_well, is_silent_probe
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.endings import end, is_resent
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete
from tidegate.store.text import storable
from tidegate.store.totals import Totals

_SQL = load("finish")

CONTENT_ERRORS = (
    UnicodeError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    apsw.TooBigError,
    apsw.MismatchError,
    apsw.ConstraintError,
    apsw.RangeError,
)
"""What a value that cannot be stored makes of a statement."""

_NULL = (b"null", CODEC)
"""A result kept by having no row."""


def finish(db: apsw.Connection, now: float, outcomes: Sequence[Outcome]) -> list[Answer]:
    """Write how these runs ended; answer per outcome, in order."""
    db.execute("SAVEPOINT finish")
    try:
        answers = _write(db, now, outcomes)
    except CONTENT_ERRORS as error:
        db.execute("ROLLBACK TO finish")
        answers = _in_halves(db, now, outcomes, error)
    db.execute("RELEASE finish")
    return answers


def _in_halves(
    db: apsw.Connection, now: float, outcomes: Sequence[Outcome], error: Exception
) -> list[Answer]:
    if len(outcomes) == 1:
        return _write(db, now, [with_placeholder(outcomes[0], error)])
    middle = len(outcomes) // 2
    return finish(db, now, outcomes[:middle]) + finish(db, now, outcomes[middle:])


def _write(db: apsw.Connection, now: float, outcomes: Sequence[Outcome]) -> list[Answer]:
    tasks = [ids.known_blob(outcome.fence.task_id) or b"" for outcome in outcomes]
    if len(set(tasks)) < len(tasks):
        # The same run twice in one batch: the second must see what the first wrote.
        return [answer for outcome in outcomes for answer in _write(db, now, [outcome])]
    totals = Totals()
    answers: list[Answer | None] = [None] * len(outcomes)
    successes = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, Succeeded)]
    _succeed(db, now, outcomes, tasks, successes, answers)
    for place, outcome in enumerate(outcomes):
        if answers[place] is None and not isinstance(outcome, Succeeded):
            done = end(db, now, tasks[place], outcome, totals)
            answers[place] = Answer.DONE if done else None
    count(db, now, totals)
    return [answer or _refusal(db, tasks[place], outcomes[place]) for place, answer in enumerate(answers)]


def count(db: apsw.Connection, now: float, totals: Totals) -> None:
    """Add what has ended to the minute's roll-up."""
    for row in totals.rows(now):
        db.execute(_SQL["count"], row)


def _refusal(db: apsw.Connection, task: bytes, outcome: Outcome) -> Answer:
    return Answer.ALREADY if is_resent(db, task, outcome) else Answer.FENCED


def _succeed(
    db: apsw.Connection,
    now: float,
    outcomes: Sequence[Outcome],
    tasks: Sequence[bytes],
    places: Sequence[int],
    answers: list[Answer | None],
) -> None:
    """Write all successes whose run is the current one, and answer them."""
    if not places:
        return
    current = _current(db, tuple([tasks[place] for place in places]))
    ended: list[bytes] = []
    results: list[tuple[bytes, str, bytes]] = []
    for place in places:
        task, outcome = tasks[place], outcomes[place]
        assert isinstance(outcome, Succeeded)
        if task in current and current[task].run == outcome.fence.run:
            answers[place] = Answer.DONE
            ended.append(task)
            if (outcome.result, outcome.codec_tag) != _NULL:
                results.append((task, storable(outcome.codec_tag), outcome.result))
    if not ended:
        return
    array = query.array(tuple(ended))
    db.execute(_SQL["succeed"], (array, now))
    db.execute(_SQL["count_succeeded"], (array, now, int(now // 60)))
    _free_names(db, array)
    db.execute(_SQL["end_all"], (array,))
    db.executemany(_SQL["result"], results)
    calls = {tasks[place]: outcomes[place].calls for place in places}
    used = [(task, *totals.columns()) for task in ended if (totals := calls[task].used) is not None]
    if used:
        db.executemany(_SQL["use"], used)
    _tell_upstreams(db, now, [(current[task], calls[task]) for task in ended])


class _Current(NamedTuple):
    run: int
    upstream: str
    started_at: float
    probe: int


def _current(db: apsw.Connection, tasks: tuple[bytes, ...]) -> dict[bytes, _Current]:
    return {task: _Current(*rest) for task, *rest in db.execute(_SQL["current"], (query.array(tasks),))}


def _tell_upstreams(db: apsw.Connection, now: float, runs: Sequence[tuple[_Current, CallsMade]]) -> None:
    """Let what went well open gates and end slow starts."""
    session = SqliteSession(db, now)
    good = [
        Good(run.upstream, now - run.started_at, bool(run.probe))
        for run, calls in runs
        if goes_well(run, calls)
    ]
    for upstream, told in by_upstream(good):
        complete(gates.went_well(session, upstream, told))
    for run, calls in runs:
        if is_silent_probe(run, calls) and not goes_well(run, calls):
            complete(gates.told_nothing(session, run.upstream, run.started_at))


def _free_names(db: apsw.Connection, array: apsw.CArrayBinding) -> None:
    for task, tenant, name in query.rows(db, _SQL["unique_names"], (array,)):
        keys.free_unique(db, tenant, name, task)
