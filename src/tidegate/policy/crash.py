"""Decides the outcome of a run whose process or machine died, without the user's code."""

from __future__ import annotations

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Counters, Dead, Fence, Outcome, Released, Retrying
from tidegate.policy.charge import INTERRUPTED_LIMIT, charge_for_release
from tidegate.policy.order import LIFT_SECONDS

LOSS_LIMIT = 10
"""After how many losses of its machine or supervisor a task is dead. The task is rarely the cause."""
MEMORY_CRASH_LIMIT = 2
"""Runs over the memory limit after which a task is dead. A third run would hardly need less memory."""
MEMORY = "memory limit"
"""The beginning of `why` for a run over its memory limit."""


def crash_limit_after(why: str, crash_limit: int) -> int:
    """Return the crash limit of the task that caused a process to end for this reason."""
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
    """Return the outcome of a run whose worker is gone.

    After the first crash the task runs again immediately, ahead of new work. After later crashes the task
    waits base, then 2 × base… seconds. With a crash limit of 0 (`on_crash="fail"`) the first crash or loss
    makes it dead, even if another task caused it.

    Args:
        fence: The orphaned run.
        why: How the worker ended, for people.
        loss: True if the machine or supervisor was lost; False if the process was seen dead.
        cancel_requested: Whether a person requested a cancel of the task meanwhile.
        crash_limit: The number of crashes after which the task is dead.
        base_seconds: The wait before the third run.
        cap_seconds: The longest wait.
        counters: What the task had spent before this run.
        culprit: Whether this run caused the end; None if unknown. A run that another run took down, or that
            was left over after an orderly end, is released.
        may_have_called: Whether the run had an upstream, and so may have been in a call.
    """
    if cancel_requested:
        return Cancelled(fence, f"cancelled on request; {why}")
    if culprit is False and crash_limit > 0:
        charge = charge_for_release(counters, may_have_called=may_have_called)
        return release_run(fence, f"its process ended, not because of this task: {why}", charge)
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
    """Return the outcome of a run that was stopped without a fault of its task. The task runs again at once.

    Args:
        fence: The run.
        why: What stopped the run, as text for people.
        charge: The result of `charge_for_release`.
        calls: The calls that the run made.
    """
    explanations = {
        Charge.INTERRUPTED: f"{why}; interrupted in a call, uncharged",
        Charge.ATTEMPT: f"{why}; interrupted in a call more than {INTERRUPTED_LIMIT} times, charged",
    }
    return Released(
        fence, explanations.get(charge, why), rank_offset=-LIFT_SECONDS, charge=charge, calls=calls
    )


def dead_if_run_once(fence: Fence, why: str) -> Dead:
    """Return the outcome of a task that may run only once and was stopped without a fault of its own.

    Args:
        fence: The run.
        why: What stopped the run, as text for people.
    """
    message = f"stopped in the middle: {why}"
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message=message, evidence=why)
    return Dead(fence, failure, Charge.RELEASE, f'{message}; on_crash="fail" lets it run once only')
