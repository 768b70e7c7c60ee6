"""Decides the outcome of a run whose function suspended itself."""

from __future__ import annotations

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.outcome import Fence, Suspended
from tidegate.domain.task_limits import TimeLeft
from tidegate.policy.order import LIFT_SECONDS


def suspend(
    fence: Fence,
    *,
    delay_seconds: float | None,
    why: str,
    time_left: TimeLeft,
    wait_keys: tuple[str, ...] = (),
    child_ids: tuple[str, ...] = (),
    cache_waits: tuple[tuple[str, float], ...] = (),
    calls: CallSummary = NO_CALLS,
) -> Suspended:
    """Return the outcome of a run that waits without a slot.

    The wait does not use up the total timeout. A task with a deadline wakes at its deadline at the latest,
    and ends there. A task that wakes goes before new tasks, because its work has begun.

    Args:
        fence: The run.
        delay_seconds: The time until the task wakes; None: until something else wakes it.
        why: What the task waits for, as text for people.
        time_left: The time until the task's limits.
        wait_keys: The task's waits for events.
        child_ids: The tasks that the run's task waits for.
        cache_waits: The results that other tasks make and how old each may be.
        calls: The calls that the run made.
    """
    until_deadline = max(0.0, time_left.deadline_seconds)
    if until_deadline < (float("inf") if delay_seconds is None else delay_seconds):
        delay_seconds = until_deadline
    return Suspended(
        fence,
        delay_seconds,
        why,
        rank_offset=-LIFT_SECONDS,
        wait_keys=wait_keys,
        child_ids=child_ids,
        cache_waits=cache_waits,
        calls=calls,
    )
