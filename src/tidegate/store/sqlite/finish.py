"""Write the outcomes of runs: successes in bulk, all others one by one.

A batch that fails because of its content is halved until the bad outcome is alone. The refused outcome is
written with a placeholder for the part that cannot be stored. So bad content of one task does not block its
batch, and the task does not stay `running` for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import FinishStatus, Outcome, Succeeded
from tidegate.domain.states import State
from tidegate.limits.gate_rows import by_upstream, counts_as_success, is_silent_probe, successful_run
from tidegate.store.common import gates, ids
from tidegate.store.common.deaths import DeathTotals
from tidegate.store.common.final_hooks import EndedTask, hook_tasks
from tidegate.store.common.outcomes import with_placeholder
from tidegate.store.common.rollup_totals import RollupTotals
from tidegate.store.common.text import storable
from tidegate.store.sqlite import keys, query
from tidegate.store.sqlite.enqueue import enqueue
from tidegate.store.sqlite.outcomes import end_run, is_resent, record_calls
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

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
"""The errors of a statement with a value that cannot be stored."""

_NULL = (b"null", CODEC)
"""A result for which no row is stored."""


def finish(db: apsw.Connection, now: float, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
    """Write the outcomes of these runs; return a status per outcome, in order."""
    db.execute("SAVEPOINT finish")
    try:
        statuses = _write(db, now, outcomes)
    except CONTENT_ERRORS as error:
        db.execute("ROLLBACK TO finish")
        statuses = _in_halves(db, now, outcomes, error)
    db.execute("RELEASE finish")
    return statuses


def _in_halves(
    db: apsw.Connection, now: float, outcomes: Sequence[Outcome], error: Exception
) -> list[FinishStatus]:
    if len(outcomes) == 1:
        return _write(db, now, [with_placeholder(outcomes[0], error)])
    middle = len(outcomes) // 2
    return finish(db, now, outcomes[:middle]) + finish(db, now, outcomes[middle:])


def _write(db: apsw.Connection, now: float, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
    tasks = [ids.blob_or_none(outcome.fence.task_id) or b"" for outcome in outcomes]
    if len(set(tasks)) < len(tasks):
        # The same run is twice in one batch: the second outcome must see what the first one wrote.
        return [status for outcome in outcomes for status in _write(db, now, [outcome])]
    totals, deaths = RollupTotals(), DeathTotals()
    statuses: list[FinishStatus | None] = [None] * len(outcomes)
    hooked: list[EndedTask] = []
    successes = [position for position, outcome in enumerate(outcomes) if isinstance(outcome, Succeeded)]
    _succeed(db, now, outcomes, tasks, successes, statuses, hooked)
    for position, outcome in enumerate(outcomes):
        if statuses[position] is None and not isinstance(outcome, Succeeded):
            done = end_run(db, now, tasks[position], outcome, totals, deaths, hooked)
            statuses[position] = FinishStatus.DONE if done else None
    count(db, now, totals)
    complete(deaths.write(SqliteSession(db, now), now))
    enqueue_hooks(db, now, hooked)
    return [
        status or _refusal(db, tasks[position], outcomes[position])
        for position, status in enumerate(statuses)
    ]


def count(db: apsw.Connection, now: float, totals: RollupTotals) -> None:
    """Add these sums to the roll-up of this minute."""
    for row in totals.rows(now):
        db.execute(_SQL["count"], row)


def enqueue_hooks(db: apsw.Connection, now: float, ended: Sequence[EndedTask]) -> None:
    """Store the tasks that follow these tasks, which have just reached a final state."""
    if ended:
        enqueue(db, now, complete(hook_tasks(SqliteSession(db, now), now, ended)))


def _refusal(db: apsw.Connection, task: bytes, outcome: Outcome) -> FinishStatus:
    return FinishStatus.ALREADY if is_resent(db, task, outcome) else FinishStatus.FENCED


def _succeed(
    db: apsw.Connection,
    now: float,
    outcomes: Sequence[Outcome],
    tasks: Sequence[bytes],
    positions: Sequence[int],
    statuses: list[FinishStatus | None],
    hooked: list[EndedTask],
) -> None:
    """Write all successes whose run is the current one, set their statuses, and add tasks with a hook."""
    if not positions:
        return
    current = _current(db, tuple([tasks[position] for position in positions]))
    ended: list[bytes] = []
    results: list[tuple[bytes, str, bytes]] = []
    for position in positions:
        task, outcome = tasks[position], outcomes[position]
        assert isinstance(outcome, Succeeded)
        if task in current and current[task].run == outcome.fence.run:
            statuses[position] = FinishStatus.DONE
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
    calls = {tasks[position]: outcomes[position].calls for position in positions}
    hooked += [
        EndedTask(task, State.SUCCEEDED, current[task].run) for task in ended if current[task].has_on_final
    ]
    for task in ended:
        record_calls(db, now, task, calls[task])
    _update_gates(db, now, [(current[task], calls[task]) for task in ended])


class _Current(NamedTuple):
    run: int
    upstream: str
    started_at: float
    probe: int
    has_on_final: int


def _current(db: apsw.Connection, tasks: tuple[bytes, ...]) -> dict[bytes, _Current]:
    return {task: _Current(*rest) for task, *rest in db.execute(_SQL["current"], (query.array(tasks),))}


def _update_gates(db: apsw.Connection, now: float, runs: Sequence[tuple[_Current, CallSummary]]) -> None:
    """Apply successful runs to gates: they open gates and end slow starts."""
    session = SqliteSession(db, now)
    successful = [
        successful_run(run, calls, now - run.started_at)
        for run, calls in runs
        if counts_as_success(run, calls)
    ]
    for upstream, runs_of_upstream in by_upstream(successful):
        complete(gates.apply_successes(session, upstream, runs_of_upstream))
    for run, calls in runs:
        if counts_as_success(run, calls):
            continue
        if is_silent_probe(run, calls):
            complete(gates.apply_unused_probe(session, run.upstream, run.started_at))
        if calls.tokens is not None:
            complete(gates.settle_tokens(session, run.upstream, [calls.tokens]))


def _free_names(db: apsw.Connection, array: apsw.CArrayBinding) -> None:
    for task, tenant, name in query.rows(db, _SQL["unique_names"], (array,)):
        keys.free_unique(db, tenant, name, task)
