"""Write outcomes other than success, step by step."""

from __future__ import annotations

from dataclasses import replace

import apsw

from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import Dead, Outcome, Retrying, Succeeded, Suspended
from tidegate.domain.states import State
from tidegate.limits.gate_rows import SuccessfulRuns, is_silent_probe
from tidegate.store.common import cached, events, gates, provider_jobs, task_waits
from tidegate.store.common.deaths import DeathTotals
from tidegate.store.common.final_hooks import EndedTask, ended_task
from tidegate.store.common.outcomes import (
    EndedRunRow,
    TaskTransition,
    UnsuccessfulOutcome,
    increment_rule_count,
    is_resend,
    last_forgotten_suspension,
    next_state_row,
    plan_transition,
    proves_upstream_answers,
    rule_counter_name,
    unique_name_to_free,
)
from tidegate.store.common.rollup_totals import RollupTotals
from tidegate.store.common.text import storable
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

_SQL = load("finish")
_NEXT_STATE_SQL = {
    State.RETRYING: _SQL["retry"],
    State.READY: _SQL["release"],
    State.SUSPENDED: _SQL["suspend"],
    State.DEAD: _SQL["dead_letter"],
    State.CANCELLED: _SQL["cancel"],
}


def end_run(
    db: apsw.Connection,
    now: float,
    task: bytes,
    outcome: UnsuccessfulOutcome,
    totals: RollupTotals,
    deaths: DeathTotals,
    hooked: list[EndedTask],
) -> bool:
    """End a run if it is the current one, and write the task's next state; return whether it was current."""
    row = query.row(db, _SQL["end"], (task, outcome.fence.run))
    if row is None:
        return False
    run = EndedRunRow(*row)
    if isinstance(outcome, Suspended) and outcome.wait_keys:
        outcome = _woken_if_ended(db, now, task, outcome)
    if provider_jobs.may_have_to_cancel(run, outcome):
        session = SqliteSession(db, now)
        run, outcome = complete(provider_jobs.cancel_before_end(session, now, task, run, outcome))
    transition = plan_transition(now, run, outcome, has_next_key=_update_gate(db, now, run, outcome))
    db.execute(_SQL["attempt"], (task, *transition.attempt_row))
    _spend(db, now, task, outcome, transition)
    _move_task(db, now, task, run, outcome.fence.run, transition)
    if isinstance(outcome, Suspended) and outcome.child_ids and transition.state is State.SUSPENDED:
        complete(task_waits.set_children(SqliteSession(db, now), task, outcome.child_ids))
    if isinstance(outcome, Suspended) and outcome.cache_waits and transition.state is State.SUSPENDED:
        complete(cached.set_waits(SqliteSession(db, now), task, outcome.cache_waits, now))
    totals.add(now, run, transition.state, transition.attempt_record.reason)
    deaths.add(task, run, transition)
    if (ended := ended_task(task, run, outcome.fence.run, transition)) is not None:
        hooked.append(ended)
    return True


def _woken_if_ended(db: apsw.Connection, now: float, task: bytes, outcome: Suspended) -> Suspended:
    """Return the outcome, due at once if one of its waits is over: the event came while the run ended."""
    is_over = complete(events.has_ended_wait(SqliteSession(db, now), task, outcome.wait_keys))
    return replace(outcome, delay_seconds=0.0) if is_over else outcome


def is_resent(db: apsw.Connection, task: bytes, outcome: Outcome) -> bool:
    """Return whether exactly this outcome was recorded for the run."""
    run = outcome.fence.run
    if isinstance(outcome, Succeeded):
        return query.value(db, _SQL["was_success"], (task, run)) is not None
    return is_resend(outcome, query.row(db, _SQL["was_attempt"], (task, run)))


def record_calls(db: apsw.Connection, now: float, task: bytes, calls: CallSummary) -> None:
    """Count how the calls of a run ended, and add what they consumed to its task and to the minute."""
    for upstream, outcome, count in calls.ended:
        db.execute(_SQL["count_calls"], (task, storable(upstream), outcome, count, now))
    if (used := calls.used) is not None:
        db.execute(_SQL["use"], (task, *used.columns()))
        db.execute(_SQL["count_usage"], (task, used.calls, used.input_tokens, used.output_tokens, now))


def _spend(
    db: apsw.Connection, now: float, task: bytes, outcome: UnsuccessfulOutcome, transition: TaskTransition
) -> None:
    db.execute(_SQL["spend"], (task, *transition.counter_changes))
    record_calls(db, now, task, outcome.calls)
    if (last := last_forgotten_suspension(outcome)) > 0:
        db.execute(_SQL["forget_suspensions"], (task, last))
    if name := rule_counter_name(outcome):
        kept = query.value(db, _SQL["rules"], (task,))
        db.execute(_SQL["spend_rule"], (task, increment_rule_count(kept, name)))


def _update_gate(db: apsw.Connection, now: float, run: EndedRunRow, outcome: UnsuccessfulOutcome) -> bool:
    """Apply an outcome to the gate of the run's upstream; return whether another key can serve the task."""
    call_failure = outcome.call_failure if isinstance(outcome, Retrying | Dead) else None
    closes_only_some_keys, session = False, SqliteSession(db, now)
    if outcome.calls.tokens is not None:
        complete(gates.settle_tokens(session, run.upstream, [outcome.calls.tokens]))
    if call_failure is not None and (name := call_failure.upstream or run.upstream):
        effect = complete(gates.report_failure(session, name, call_failure, began_at=run.started_at))
        closes_only_some_keys = effect.closes_only_some_keys
    if call_failure is not None and call_failure.upstream in ("", run.upstream):
        return closes_only_some_keys
    if run.upstream and proves_upstream_answers(outcome):
        good = SuccessfulRuns(now - run.started_at, 1, bool(run.probe))
        complete(gates.apply_successes(session, run.upstream, good))
    elif is_silent_probe(run, outcome.calls):
        complete(gates.apply_unused_probe(session, run.upstream, run.started_at))
    return closes_only_some_keys


def _move_task(
    db: apsw.Connection, now: float, task: bytes, run: EndedRunRow, number: int, transition: TaskTransition
) -> None:
    db.execute(_NEXT_STATE_SQL[transition.state], next_state_row(now, task, run, number, transition))
    if (name := unique_name_to_free(run, transition)) is not None:
        keys.free_unique(db, run.tenant, name, task)
