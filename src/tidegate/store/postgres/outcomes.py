"""Write outcomes other than success for many runs at once, one statement per step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tidegate.domain.calls import CallSummary
from tidegate.domain.failure import CallFailure
from tidegate.domain.outcome import Dead, Retrying, Suspended
from tidegate.domain.states import State
from tidegate.limits.gate_rows import SuccessfulRuns, is_silent_probe
from tidegate.store.common import cached, events, gates, provider_jobs, task_waits
from tidegate.store.common.deaths import DeathTotals
from tidegate.store.common.final_hooks import ended_task
from tidegate.store.common.outcomes import (
    EndedRunRow,
    TaskTransition,
    UnsuccessfulOutcome,
    increment_rule_count,
    last_forgotten_suspension,
    next_state_row,
    plan_transition,
    proves_upstream_answers,
    rule_counter_name,
    unique_name_to_free,
)
from tidegate.store.common.rollup_totals import RollupTotals
from tidegate.store.common.text import storable
from tidegate.store.postgres.final_hooks import enqueue_hooks
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_SQL = load("finish")
_NEXT_STATE_SQL = {
    State.RETRYING: _SQL["retry"],
    State.READY: _SQL["release"],
    State.SUSPENDED: _SQL["suspend"],
    State.DEAD: _SQL["dead_letter"],
    State.CANCELLED: _SQL["cancel"],
}


class _EndedTask(NamedTuple):
    """One run that was current and has been ended."""

    task_id: str
    run: EndedRunRow
    outcome: UnsuccessfulOutcome
    transition: TaskTransition


async def end_runs(db: PostgresSession, outcomes: Mapping[str, UnsuccessfulOutcome]) -> set[str]:
    """End the runs that are current, and write the next states of their tasks.

    Args:
        db: A session in a transaction.
        outcomes: Outcomes by task id, in the order of the ids.

    Returns:
        The ids of the tasks whose run was current.
    """
    runs = [outcome.fence.run for outcome in outcomes.values()]
    rows = await db.rows(_SQL["end"], db.at, list(outcomes), runs)
    if not rows:
        return set()
    now: float = rows[0]["now"]
    found = {str(task_id): EndedRunRow(*columns) for task_id, _, *columns in rows}
    outcomes = await _woken_if_ended(db, outcomes, found)
    found, outcomes = await _cancelling_first(db, now, found, outcomes)
    has_next_key = await _update_gates(db, now, outcomes, found)
    ended = sorted(
        _EndedTask(
            task,
            run,
            outcomes[task],
            plan_transition(now, run, outcomes[task], has_next_key=task in has_next_key),
        )
        for task, run in found.items()
    )
    await _record_attempts(db, ended)
    await _move_tasks(db, now, ended)
    for task in ended:
        if isinstance(task.outcome, Suspended) and task.outcome.child_ids:
            await task_waits.set_children(db, task.task_id, task.outcome.child_ids)
        if isinstance(task.outcome, Suspended) and task.outcome.cache_waits:
            await cached.set_waits(db, task.task_id, task.outcome.cache_waits, now)
    totals, deaths = RollupTotals(), DeathTotals()
    for task in ended:
        totals.add(now, task.run, task.transition.state, task.transition.attempt_record.reason)
        deaths.add(task.task_id, task.run, task.transition)
    await count(db, now, totals)
    await deaths.write(db, now)
    hooked = [ended_task(task.task_id, task.run, task.outcome.fence.run, task.transition) for task in ended]
    await enqueue_hooks(db, [each for each in hooked if each is not None])
    return {task.task_id for task in ended}


async def _woken_if_ended(
    db: PostgresSession, outcomes: Mapping[str, UnsuccessfulOutcome], current: Collection[str]
) -> Mapping[str, UnsuccessfulOutcome]:
    """Return the outcomes, due at once if a wait of theirs is over: the event came while the run ended."""
    woken = {
        task_id: replace(outcome, delay_seconds=0.0)
        for task_id, outcome in outcomes.items()
        if isinstance(outcome, Suspended)
        and outcome.wait_keys
        and task_id in current
        and await events.has_ended_wait(db, task_id, outcome.wait_keys)
    }
    return {**outcomes, **woken} if woken else outcomes


async def _cancelling_first(
    db: PostgresSession,
    now: float,
    found: dict[str, EndedRunRow],
    outcomes: Mapping[str, UnsuccessfulOutcome],
) -> tuple[dict[str, EndedRunRow], Mapping[str, UnsuccessfulOutcome]]:
    """Return the runs and outcomes. Tasks that first have to cancel their provider jobs become ready."""
    changed = {
        task_id: await provider_jobs.cancel_before_end(db, now, task_id, run, outcomes[task_id])
        for task_id, run in sorted(found.items())
        if provider_jobs.may_have_to_cancel(run, outcomes[task_id])
    }
    if not changed:
        return found, outcomes
    return (
        {**found, **{task_id: run for task_id, (run, _) in changed.items()}},
        {**outcomes, **{task_id: outcome for task_id, (_, outcome) in changed.items()}},
    )


async def count(db: PostgresSession, now: float, totals: RollupTotals) -> None:
    """Add these sums to the roll-up of this minute."""
    await db.run_many(_SQL["count"], totals.rows(now))


async def record_calls(db: PostgresSession, calls: Mapping[str, CallSummary]) -> None:
    """Count how the calls of these runs ended, and add what they consumed to their tasks and to the minute.

    If there are no calls, no statement is run.

    Args:
        db: A session in a transaction.
        calls: Calls of runs that were current, by task id.
    """
    ended = [
        (task_id, storable(each.upstream), each.outcome, each.calls, db.at)
        for task_id, made in sorted(calls.items())
        for each in made.ended
    ]
    if ended:
        await db.run_many(_SQL["count_calls"], ended)
    used = {task_id: made.used for task_id, made in sorted(calls.items()) if made.used is not None}
    if used:
        await db.run_many(_SQL["use"], [(task_id, *total.columns()) for task_id, total in used.items()])
        await db.run_many(
            _SQL["count_usage"],
            [
                (task_id, total.calls, total.input_tokens, total.output_tokens, db.at)
                for task_id, total in used.items()
            ],
        )


async def _record_attempts(db: PostgresSession, ended: Sequence[_EndedTask]) -> None:
    """Store the records of the runs, and charge the runs to their tasks."""
    await db.run_many(_SQL["attempt"], [(task.task_id, *task.transition.attempt_row) for task in ended])
    await db.run_many(_SQL["spend"], [(task.task_id, *task.transition.counter_changes) for task in ended])
    await record_calls(db, {task.task_id: task.outcome.calls for task in ended})
    forgotten = [
        (task.task_id, last) for task in ended if (last := last_forgotten_suspension(task.outcome)) > 0
    ]
    if forgotten:
        await db.run_many(_SQL["forget_suspensions"], forgotten)
    rules = {task.task_id: name for task in ended if (name := rule_counter_name(task.outcome))}
    if rules:
        kept = await db.rows(_SQL["rules"], list(rules))
        await db.run_many(
            _SQL["spend_rule"],
            [
                (task_id, increment_rule_count(rule_attempts, rules[str(task_id)]))
                for task_id, rule_attempts in kept
            ],
        )


async def _update_gates(
    db: PostgresSession,
    now: float,
    outcomes: Mapping[str, UnsuccessfulOutcome],
    runs: Mapping[str, EndedRunRow],
) -> set[str]:
    """Apply these outcomes to the gates of their upstreams, in the order in which gates are locked.

    Returns:
        The ids of tasks that another key of their upstream can serve.
    """
    has_next_key: set[str] = set()
    moves: list[tuple[str, Callable[[], Awaitable[None]]]] = []
    for task_id, run in runs.items():
        upstream, outcome = run.upstream, outcomes[task_id]
        if (use := outcome.calls.tokens) is not None:
            moves.append((upstream, partial(gates.settle_tokens, db, upstream, [use])))
        call_failure = outcome.call_failure if isinstance(outcome, Retrying | Dead) else None
        if call_failure is not None and (name := call_failure.upstream or upstream):
            moves.append((name, partial(_apply_failure, db, task_id, name, call_failure, run, has_next_key)))
        if call_failure is not None and call_failure.upstream in ("", upstream):
            continue
        if upstream and proves_upstream_answers(outcome):
            good = SuccessfulRuns(now - run.started_at, 1, bool(run.probe))
            moves.append((upstream, partial(gates.apply_successes, db, upstream, good)))
        elif is_silent_probe(run, outcome.calls):
            moves.append((upstream, partial(gates.apply_unused_probe, db, upstream, run.started_at)))
    for _, move in sorted(moves, key=lambda move: move[0]):
        await move()
    return has_next_key


async def _apply_failure(
    db: PostgresSession,
    task_id: str,
    upstream: str,
    call_failure: CallFailure,
    run: EndedRunRow,
    has_next_key: set[str],
) -> None:
    """Apply a failure to its upstream's gate; add the task to `has_next_key` if another key can serve it."""
    effect = await gates.report_failure(db, upstream, call_failure, began_at=run.started_at)
    if effect.closes_only_some_keys:
        has_next_key.add(task_id)


async def _move_tasks(db: PostgresSession, now: float, ended: Sequence[_EndedTask]) -> None:
    """Move the tasks to their next states."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for task_id, run, outcome, transition in ended:
        row = next_state_row(now, task_id, run, outcome.fence.run, transition)
        rows.setdefault(_NEXT_STATE_SQL[transition.state], []).append(row)
        if (name := unique_name_to_free(run, transition)) is not None:
            rows.setdefault(_SQL["free_name"], []).append((run.tenant, name, task_id))
    for statement, theirs in rows.items():
        await db.run_many(statement, theirs)
