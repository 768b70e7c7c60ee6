"""Makes the events of one run from its state in the engine."""

from __future__ import annotations

from typing import Any

from tidegate.context import StopReason
from tidegate.domain.outcome import Cancelled, Dead, Outcome, Released, Retrying, Succeeded, Suspended
from tidegate.domain.trace import TraceContext
from tidegate.events import RunFinished, RunOutcome, RunStarted, TaskDied
from tidegate.store.rows import ClaimedTask

_OUTCOMES: dict[type[Outcome], RunOutcome] = {
    Succeeded: RunOutcome.SUCCEEDED,
    Retrying: RunOutcome.RETRYING,
    Released: RunOutcome.RELEASED,
    Suspended: RunOutcome.SUSPENDED,
    Dead: RunOutcome.DEAD,
    Cancelled: RunOutcome.CANCELLED,
}


def run_started(claimed: ClaimedTask, max_attempts: int, worker_id: str) -> RunStarted:
    """Return the event of a function that starts."""
    return RunStarted(**_facts(claimed, max_attempts, worker_id))


def run_finished(
    claimed: ClaimedTask, max_attempts: int, worker_id: str, outcome: Outcome | None, seconds: float
) -> RunFinished:
    """Return the event of a run that ended with this outcome; None if its lease was lost."""
    facts = _facts(claimed, max_attempts, worker_id)
    if outcome is None:
        return RunFinished(**facts, outcome=RunOutcome.LOST, seconds=seconds, why=StopReason.LOST.value)
    used = outcome.calls.used
    if isinstance(outcome, Succeeded):
        return RunFinished(**facts, outcome=RunOutcome.SUCCEEDED, seconds=seconds, usage=used)
    return RunFinished(
        **facts,
        outcome=_OUTCOMES[type(outcome)],
        seconds=seconds,
        why=outcome.why,
        failure=outcome.failure if isinstance(outcome, Retrying | Dead) else None,
        charge="" if isinstance(outcome, Cancelled | Suspended) else str(outcome.charge),
        retry_seconds=outcome.delay_seconds if isinstance(outcome, Retrying) else None,
        usage=used,
    )


def task_died(claimed: ClaimedTask, max_attempts: int, worker_id: str, dead: Dead) -> TaskDied:
    """Return the event of a task that is dead after this run."""
    return TaskDied(
        **_facts(claimed, max_attempts, worker_id),
        failure=dead.failure,
        charge=str(dead.charge),
        why=dead.why,
    )


def _facts(claimed: ClaimedTask, max_attempts: int, worker_id: str) -> dict[str, Any]:
    return {
        "task_id": claimed.fence.task_id,
        "run": claimed.fence.run,
        "function": claimed.function,
        "queue": claimed.queue,
        "tenant": claimed.tenant,
        "upstream": claimed.upstream,
        "trace": TraceContext.of_labels(claimed.labels) if claimed.labels else None,
        "attempt": claimed.counters.attempts + 1,
        "max_attempts": max_attempts,
        "worker_id": worker_id,
        "wait_seconds": max(0.0, claimed.claimed_at - claimed.ready_at),
    }
