"""What becomes of a run whose process died: the crash ladder, decided without the user's code."""

from __future__ import annotations

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Counters, Dead, Fence, Outcome, Released, Retrying
from tidegate.policy.charge import INTERRUPTED_LIMIT, charge_for_release
from tidegate.policy.order import LIFT_SECONDS

LOSS_LIMIT = 10
"""Lost machines or supervisors one task may survive: it is hardly to blame, but not for ever."""
MEMORY_CRASH_LIMIT = 2
"""Runs over the memory limit after which a task is dead: it will hardly need less the third time."""
MEMORY = "memory limit"
"""What the words of such an end begin with."""


def crash_limit_after(why: str, crash_limit: int) -> int:
    """Return the crash limit that holds for the task that caused this end."""
    return min(crash_limit, MEMORY_CRASH_LIMIT) if why.startswith(MEMORY) else crash_limit


def decide_orphan(
    fence: Fence,
    *,
    why: str,
    loss: bool,
    cancel_requested: bool,
    crash_limit: int,
    base_seconds: float,
    cap_seconds: float,
    counters: Counters,
    culprit: bool | None = None,
    may_have_called: bool = False,
) -> Outcome:
    """Return what becomes of a run whose worker is gone.

    The first time it runs again at once, ahead of fresh work; then after base, 2 × base… seconds. A crash
    limit of 0 (`on_crash="fail"`) buries it at the first crash or loss, whoever caused it.

    Args:
        fence: The orphaned run.
        why: How the worker ended, in words.
        loss: Whether the machine or supervisor was lost, rather than the process seen dead.
        cancel_requested: Whether a person asked for its cancel meanwhile.
        crash_limit: Crashes after which it is dead.
        base_seconds: Wait before the third run.
        cap_seconds: The longest wait.
        counters: What it had spent before this run.
        culprit: Whether this run is known to have caused the end; None: nobody knows which did. A run that
            another one took down, or that an end in good order left behind, is released.
        may_have_called: Whether it had an upstream, and so may have been in the middle of a call.
    """
    if cancel_requested:
        return Cancelled(fence, f"cancelled on request; {why}")
    if culprit is False and crash_limit > 0:
        charge = charge_for_release(counters, may_have_called=may_have_called)
        return release_run(fence, f"its process ended, not through this task: {why}", charge)
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message=f"worker lost: {why}", evidence=why)
    count = (counters.losses if loss else counters.crashes) + 1
    limit = LOSS_LIMIT if loss and crash_limit > 0 else max(1, crash_limit)
    word, charge = ("loss", Charge.LOSS) if loss else ("crash", Charge.CRASH)
    if count >= limit:
        return Dead(fence, failure, charge, f"{word} {count} of {limit}: {why}")
    delay = 0.0 if count == 1 else min(cap_seconds, base_seconds * 2.0 ** min(count - 2, 60))
    note = f"{word} {count} of {limit}, uncharged: {why}"
    return Retrying(fence, failure, delay, charge, rank_offset=-LIFT_SECONDS, why=note)


def release_run(fence: Fence, why: str, charge: Charge, *, calls: CallSummary = NO_CALLS) -> Released:
    """Return the outcome of a run that stopped through no fault of its task, which runs again at once.

    Args:
        fence: The run.
        why: What stopped it, in words.
        charge: What `charge_for_release` says of it.
        calls: What it had called.
    """
    words = {
        Charge.INTERRUPTED: f"{why}; interrupted in a call, uncharged",
        Charge.ATTEMPT: f"{why}; interrupted in a call more than {INTERRUPTED_LIMIT} times, charged",
    }
    return Released(fence, words.get(charge, why), rank_offset=-LIFT_SECONDS, charge=charge, calls=calls)


def dead_if_run_once(fence: Fence, why: str) -> Dead:
    """Return the end of a task that may run once only and was stopped in the middle by no fault of its own.

    Args:
        fence: The run.
        why: What stopped it, in words.
    """
    message = f"stopped in the middle: {why}"
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message=message, evidence=why)
    return Dead(fence, failure, Charge.RELEASE, f'{message}; on_crash="fail" lets it run once only')
