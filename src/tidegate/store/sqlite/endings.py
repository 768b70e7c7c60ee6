"""The ends other than success: retrying, released, dead, cancelled. One statement each a step."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from tidegate.domain.failure import Failure, Reason
from tidegate.domain.outcome import Cancelled, Charge, Dead, Released, Retrying
from tidegate.store.columns import rules_of
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.totals import Totals
from tidegate.store.text import finite, storable, to_json

_SQL = load("finish")

Ending = Retrying | Released | Dead | Cancelled

_FALLBACK_DELAY_SECONDS = 60.0


class Run(NamedTuple):
    """The row of a run that has just been ended."""

    worker_id: str
    queue: str
    priority: int
    upstream: str
    function: str
    tenant: str
    ready_at: float
    started_at: float
    unique_name: str | None
    cancel_requested: int


class Record(NamedTuple):
    """What an ending says, in stored words: the fields by which a resend is recognised."""

    outcome: str
    charge: str
    verdict: str
    reason: str
    error_class: str
    message: str
    why: str


def end(db: apsw.Connection, now: float, task: bytes, ending: Ending, totals: Totals) -> bool:
    """End a run if it is the current one, and write what becomes of the task; tell whether it was.

    A run that would go on, of a task whose cancel was requested, ends as cancelled.
    """
    number = ending.fence.run
    row = query.row(db, _SQL["end"], (task, number))
    if row is None:
        return False
    run = Run(*row)
    goes_on = isinstance(ending, Retrying | Released) and not run.cancel_requested
    due_at = _due_at(now, ending) if goes_on else None
    said = record(ending, is_cancelled=bool(run.cancel_requested))
    _keep_attempt(db, now, task, run, ending, said, due_at)
    _spend(db, now, task, run, ending)
    sums = totals.of((run.queue, run.function, run.upstream, run.tenant))
    sums.run_seconds += now - run.started_at
    sums.wait_seconds += run.started_at - run.ready_at
    where = (run.queue, run.priority, run.upstream, run.function, run.tenant)
    if goes_on and isinstance(ending, Retrying):
        assert due_at is not None
        rank = due_at + finite(ending.rank_offset, 0.0)
        db.execute(_SQL["retry"], (task, due_at, *where, rank, number, said.why))
        sums.retried += 1
        return True
    if goes_on and isinstance(ending, Released):
        # It keeps its place: the rank counts from when it became ready before, the wait from now.
        rank = min(run.ready_at, now) + finite(ending.rank_offset, 0.0)
        db.execute(_SQL["release"], (task, *where, rank, now, number))
        sums.released += 1
        return True
    if run.unique_name is not None:
        keys.free_unique(db, run.tenant, run.unique_name, task)
    if isinstance(ending, Dead):
        _bury(db, now, task, run, number, said)
        sums.dead += 1
    else:
        db.execute(_SQL["cancel"], (task, number, run.worker_id, run.ready_at, run.started_at, now))
        sums.cancelled += 1
    return True


def record(ending: Ending, *, is_cancelled: bool) -> Record:
    """Return what is stored of an ending's words."""
    failure = failure_of(ending)
    return Record(
        outcome=_word(ending, is_cancelled=is_cancelled),
        charge=str(charge_of(ending)),
        verdict="" if failure is None else str(failure.verdict),
        reason=_reason(ending, failure),
        error_class="" if failure is None else storable(failure.error_class),
        message="" if failure is None else storable(failure.message),
        why=storable(ending.why),
    )


def failure_of(ending: Ending) -> Failure | None:
    """Return the failure behind an ending, if one is."""
    return ending.failure if isinstance(ending, Retrying | Dead) else None


def charge_of(ending: Ending) -> Charge:
    """Return which counter an ending adds to."""
    if isinstance(ending, Released):
        return Charge.RELEASE
    return Charge.NOTHING if isinstance(ending, Cancelled) else ending.charge


def _word(ending: Ending, *, is_cancelled: bool) -> str:
    if isinstance(ending, Dead):
        return "dead"
    if is_cancelled or isinstance(ending, Cancelled):
        return "cancelled"
    return "retrying" if isinstance(ending, Retrying) else "released"


def _reason(ending: Ending, failure: Failure | None) -> str:
    if failure is not None:
        return str(failure.reason)
    return str(Reason.CANCELLED) if isinstance(ending, Cancelled) else ""


def _due_at(now: float, ending: Ending) -> float:
    if isinstance(ending, Retrying):
        return now + max(0.0, finite(ending.delay_seconds, _FALLBACK_DELAY_SECONDS))
    return now


def _keep_attempt(
    db: apsw.Connection,
    now: float,
    task: bytes,
    run: Run,
    ending: Ending,
    said: Record,
    due_at: float | None,
) -> None:
    failure = failure_of(ending)
    evidence: tuple[Any, ...] = ("", None, "", "", "")
    if failure is not None:
        evidence = (
            storable(failure.traceback),
            failure.status,
            storable(failure.code),
            storable(failure.request_id),
            storable(failure.evidence),
        )
    head = (task, ending.fence.run, run.worker_id, run.started_at, now)
    db.execute(_SQL["attempt"], (*head, *said[:-1], *evidence, due_at, said.why))


def _spend(db: apsw.Connection, now: float, task: bytes, run: Run, ending: Ending) -> None:
    charge, failure = charge_of(ending), failure_of(ending)
    db.execute(
        _SQL["spend"],
        (
            task,
            run.started_at,
            charge is Charge.ATTEMPT,
            charge is Charge.PARK,
            charge is Charge.CRASH,
            charge is Charge.LOSS,
            charge is Charge.RELEASE,
            now if charge is Charge.PARK else None,
            None if failure is None else str(failure.reason),
            None if failure is None else storable(failure.message),
        ),
    )
    if isinstance(ending, Retrying) and ending.rule:
        rules = rules_of(query.value(db, _SQL["rules"], (task,)))
        rule = storable(ending.rule)
        rules[rule] = rules.get(rule, 0) + 1
        db.execute(_SQL["spend_rule"], (task, to_json(rules)))


def _bury(db: apsw.Connection, now: float, task: bytes, run: Run, number: int, said: Record) -> None:
    db.execute(
        _SQL["bury"],
        (
            task,
            run.queue,
            run.function,
            run.tenant,
            said.reason,
            said.error_class,
            said.message,
            number,
            run.worker_id,
            run.started_at,
            now,
        ),
    )
