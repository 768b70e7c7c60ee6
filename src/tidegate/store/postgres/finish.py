"""Write the outcomes of runs: successes in one statement, all others in a few.

A batch that fails because of its content is halved until the bad outcome is alone. The refused outcome is
written with a placeholder for the part that cannot be stored. Each half is a separate transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import FinishStatus, Outcome, Succeeded
from tidegate.domain.states import State
from tidegate.limits.gate_rows import (
    by_upstream,
    can_wait_for_successes,
    counts_as_success,
    is_silent_probe,
    successful_run,
)
from tidegate.store.common import gates, ids
from tidegate.store.common.final_hooks import EndedTask
from tidegate.store.common.outcomes import is_resend, with_placeholder
from tidegate.store.common.text import storable
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.errors import CONTENT_ERRORS, refused_content
from tidegate.store.postgres.final_hooks import enqueue_hooks
from tidegate.store.postgres.outcomes import end_runs, record_calls
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.unwritten_successes import UnwrittenSuccesses

_SQL = load("finish")

_NULL = (b"null", CODEC)
"""A result for which no row is stored."""

MAX_RESULT_BYTES = 8_388_608
"""Most bytes of results in one write, unless a single result is larger: a slow network must carry them within
the time limit of a call. A larger batch would time out and be resent again and again."""


class SuccessRow(NamedTuple):
    """A run that succeeded."""

    upstream: str
    seconds: float
    probe: bool
    calls: CallSummary


OutcomesById = Mapping[str, Outcome]
"""Outcomes of different tasks, by task id, in the order of the ids."""


@dataclass(slots=True)
class _Successful:
    """The runs of a write that succeeded, with what their gates need."""

    rows: list[SuccessRow]
    """Without the runs that have no upstream."""
    gates: dict[str, str]
    """The stored states of the upstreams' gates."""
    now: float


Successes = UnwrittenSuccesses[SuccessRow]


async def finish(database: Database, unwritten: Successes, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
    """Write the outcomes of these runs; return a status per outcome, in order.

    Successes that the gates of their upstreams need not know at once are kept in `unwritten`.
    """
    statuses: list[FinishStatus] = [FinishStatus.FENCED] * len(outcomes)
    for positions in _rounds(outcomes):
        statuses_of_round = await _finish(
            database, unwritten, {task_id: outcomes[position] for task_id, position in positions.items()}
        )
        for task_id, position in positions.items():
            statuses[position] = statuses_of_round[task_id]
    return statuses


def _rounds(outcomes: Sequence[Outcome]) -> Iterator[dict[str, int]]:
    """Yield rounds: the indices of outcomes by task id, in the order of the ids, no task twice in a round.

    If a batch has several outcomes of one task, a later outcome must see what an earlier one wrote. An id
    that no task can have is left out. Outcomes too large for one round are spread over several rounds.
    """
    positions = {
        position: task_id
        for position, outcome in enumerate(outcomes)
        if (task_id := ids.canonical_or_none(outcome.fence.task_id)) is not None
    }
    while positions:
        firsts: dict[str, int] = {}
        room = MAX_RESULT_BYTES
        for position, task_id in positions.items():
            if task_id in firsts:
                continue
            room -= _bytes_of(outcomes[position])
            if room < 0 and firsts:
                break
            firsts[task_id] = position
        yield dict(sorted(firsts.items()))
        for position in firsts.values():
            del positions[position]


def _bytes_of(outcome: Outcome) -> int:
    result: object = outcome.result if isinstance(outcome, Succeeded) else None
    return len(result) if isinstance(result, bytes) else 0  # the write refuses a result that is not bytes


async def _finish(database: Database, unwritten: Successes, batch: OutcomesById) -> dict[str, FinishStatus]:
    """Write a batch, or its halves if its content is refused.

    Raises:
        ValueError: An outcome is refused even with a placeholder.
    """
    try:
        return await _write(database, unwritten, batch)
    except CONTENT_ERRORS as error:
        if len(batch) == 1:
            plain = {task_id: with_placeholder(outcome, error) for task_id, outcome in batch.items()}
            with refused_content():
                return await _write(database, unwritten, plain)
    statuses: dict[str, FinishStatus] = {}
    entries, middle = list(batch.items()), len(batch) // 2
    for half in (entries[:middle], entries[middle:]):
        statuses |= await _finish(database, unwritten, dict(half))
    return statuses


async def _write(
    database: Database, unwritten: Successes, batch: OutcomesById, *, with_hooks: bool = False
) -> dict[str, FinishStatus]:
    """End the runs that are current; return for the other runs whether this outcome was written before.

    Without `with_hooks` the successes may be one statement without a transaction. The statement skips tasks
    with a final hook.
    """
    done = await _end_current(database, unwritten, batch, with_hooks=with_hooks)
    statuses = dict.fromkeys(done, FinishStatus.DONE)
    rest = {task_id: outcome for task_id, outcome in batch.items() if task_id not in done}
    if rest:
        statuses |= await database.autocommit(lambda db: _refused(db, rest))
        # These runs were neither ended nor refused: their final state enqueues a task, or their row was being
        # changed, for example by a cancel. Try them once more.
        again = {task_id: outcome for task_id, outcome in rest.items() if task_id not in statuses}
        statuses |= await _write(database, unwritten, again, with_hooks=True) if again else {}
    return statuses


async def _end_current(
    database: Database, unwritten: Successes, batch: OutcomesById, *, with_hooks: bool
) -> set[str]:
    successes = {task_id: outcome for task_id, outcome in batch.items() if isinstance(outcome, Succeeded)}
    unsuccessful = {
        task_id: outcome for task_id, outcome in batch.items() if not isinstance(outcome, Succeeded)
    }
    successful = _Successful([], {}, 0.0)
    made_calls = any(outcome.calls.ended or outcome.calls.used for outcome in successes.values())
    if not (unsuccessful or made_calls or with_hooks):
        done = await database.autocommit(
            lambda db: _succeed(db, successes, successful, with_hooks=False), generic_plan=True
        )
    else:
        if unsuccessful:  # a failure is judged by the successes before it
            await write_successes(database, unwritten.take())

        async def both(db: PostgresSession) -> set[str]:
            successful.rows.clear()
            done = await _succeed(db, successes, successful, with_hooks=True) if successes else set()
            await record_calls(db, {task_id: successes[task_id].calls for task_id in done})
            return done | await end_runs(db, unsuccessful) if unsuccessful else done

        done = await database.transact(both, generic_plan=True)
    # After the commit, so that no finish waits for a gate. If it fails, one more probe runs.
    await write_successes(database, _due(successful, unwritten))
    return done


def _due(successful: _Successful, unwritten: Successes) -> list[SuccessRow]:
    """Return the runs to write to their gates now; keep those that can wait."""
    due: list[SuccessRow] = []
    runs_of: dict[str, list[SuccessRow]] = {}
    for run in successful.rows:
        if run.probe or run.calls.tokens is not None or counts_as_success(run, run.calls):
            runs_of.setdefault(run.upstream, []).append(run)
    for upstream, runs in runs_of.items():
        state = successful.gates.get(upstream)
        if state is None:  # it has no gate
            continue
        can_wait = can_wait_for_successes(gates.decode_gate(state), successful.now)
        # A probe may open the gate, and tokens are settled at once.
        if can_wait and not any(run.probe or run.calls.tokens is not None for run in runs):
            due += unwritten.keep(upstream, runs, successful.now)
        else:
            due += [*unwritten.take([upstream]), *runs]
    return due


async def write_successes(database: Database, runs: Sequence[SuccessRow]) -> None:
    """Apply successful runs to the gates of their upstreams."""
    if runs:
        await database.transact(lambda db: _update_gates(db, runs), generic_plan=True)


async def _succeed(
    db: PostgresSession,
    successes: Mapping[str, Succeeded],
    successful: _Successful,
    *,
    with_hooks: bool,
) -> set[str]:
    """Write all successes whose run is the current one; return their task ids. Add rows to `successful`.

    Successes of tasks with a final hook are written only if `with_hooks` is set, which needs a transaction.
    """
    runs = [outcome.fence.run for outcome in successes.values()]
    results: list[tuple[Any, ...]] = [
        (task_id, storable(outcome.codec_tag), outcome.result)
        for task_id, outcome in successes.items()
        if (outcome.result, outcome.codec_tag) != _NULL
    ]
    columns = [list(column) for column in zip(*results, strict=True)] or [[], [], []]
    ended = await db.rows(_SQL["succeed"], db.at, list(successes), runs, *columns, with_hooks)
    successful.rows += [
        SuccessRow(upstream, seconds, probe, successes[str(task_id)].calls)
        for task_id, upstream, seconds, probe, *_ in ended
        if upstream
    ]
    successful.gates |= {row["upstream"]: row["gate"] for row in ended if row["gate"] is not None}
    successful.now = max((row["now"] for row in ended), default=successful.now)
    if with_hooks:
        hooked = [
            EndedTask(str(task_id), State.SUCCEEDED, run)
            for task_id, _, _, _, run, has_on_final, *_ in ended
            if has_on_final
        ]
        await enqueue_hooks(db, hooked)
    return {str(task_id) for task_id, *_ in ended}


async def _update_gates(db: PostgresSession, runs: Sequence[SuccessRow]) -> None:
    """Apply successful runs to gates: they open gates and end slow starts."""
    successful = [
        successful_run(run, run.calls, run.seconds) for run in runs if counts_as_success(run, run.calls)
    ]
    for upstream, runs_of_upstream in by_upstream(successful):
        await gates.apply_successes(db, upstream, runs_of_upstream)
    others = [run for run in runs if not counts_as_success(run, run.calls)]
    for run in sorted(others, key=lambda run: run.upstream):
        if is_silent_probe(run, run.calls):
            await gates.apply_probe(db, run.upstream, run.seconds, is_good=False)
        if run.calls.tokens is not None:
            await gates.settle_tokens(db, run.upstream, [run.calls.tokens])


async def _refused(db: PostgresSession, batch: OutcomesById) -> dict[str, FinishStatus]:
    """Return the statuses of the runs that have ended, from their records."""
    runs = [outcome.fence.run for outcome in batch.values()]
    statuses: dict[str, FinishStatus] = {}
    for row in await db.rows(_SQL["recorded"], list(batch), runs):
        found, _, is_current, was_success, *kept = row
        task_id = str(found)
        outcome = batch[task_id]
        if not is_current:
            statuses[task_id] = (
                FinishStatus.ALREADY if _is_resent(outcome, was_success, kept) else FinishStatus.FENCED
            )
    return statuses


def _is_resent(outcome: Outcome, was_success: bool, kept: Sequence[Any]) -> bool:
    """Return whether exactly this outcome was recorded for the run."""
    return was_success if isinstance(outcome, Succeeded) else is_resend(outcome, tuple(kept))
