"""The retry decision: a failed run, the task's terms and what it has spent become one outcome.

Read `decide` from top to bottom: the first line that applies, applies.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.durations import format_duration
from tidegate.domain.failure import (
    ACCOUNT_REASONS,
    GATE_REASONS,
    MESSAGE_LIMIT,
    CallFailure,
    Failure,
    Reason,
    Verdict,
)
from tidegate.domain.outcome import Charge, Counters, Dead, Fence, Outcome, Retrying
from tidegate.domain.spec import Backoff, Rule, TaskSpec
from tidegate.domain.task_limits import TaskLimit, TimeLeft
from tidegate.domain.text import presentable
from tidegate.limits.gate import PROBE_SECONDS
from tidegate.policy.backoff import delay_seconds, with_floor
from tidegate.policy.charge import INTERRUPTED_LIMIT, UNCHARGED_LIMIT, charge_for_failure
from tidegate.policy.order import LIFT_SECONDS, PENALTY_SECONDS

PARK_SECONDS = 60.0
"""Wait after a rate limit or overload whose answer named none."""

LIMITS_IN_A_ROW = 3
"""Rate limits that a task waits out as its gate says; after more its own backoff holds as well, since a gate
that has parked for it so often may flow for all others."""

INVALID_OUTPUT_RULE = Rule(Reason.INVALID_OUTPUT, attempts=2)
"""Holds where the function has no rule of its own for it. A model that is asked once more, with the reason at
hand, may answer in the form that is wanted; one that does not is not paid for every attempt."""

_NO_TIME_LIMIT = TimeLeft()


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """What one task is allowed, its own overrides applied."""

    max_attempts: int
    backoff: Backoff
    retry_unknown: bool = True
    time_left: TimeLeft = _NO_TIME_LIMIT
    """Until its total timeout and its deadline."""
    park_seconds: float = PARK_SECONDS
    upstream: str = ""
    """The task's own, whose gate holds it; empty: the task waits alone."""

    @classmethod
    def of(
        cls,
        spec: TaskSpec,
        *,
        max_attempts: int | None = None,
        time_left: TimeLeft = _NO_TIME_LIMIT,
        upstream: str = "",
    ) -> RetryTerms:
        """Return the terms of a task of this function, with the overrides it was enqueued with."""
        return cls(
            max_attempts=max_attempts if max_attempts is not None else spec.max_attempts,
            backoff=spec.backoff,
            retry_unknown=spec.retry_unknown,
            time_left=time_left,
            upstream=upstream,
        )


def decide(
    fence: Fence,
    failure: Failure,
    rule: Rule | None,
    terms: RetryTerms,
    counters: Counters,
    rng: random.Random,
    calls: CallSummary = NO_CALLS,
) -> Outcome:
    """Return what becomes of a task whose run failed.

    Args:
        fence: The run that failed.
        failure: What the failure means.
        rule: The line of `retry=[…]` that matched, if one did.
        terms: What the task is allowed.
        counters: What it had spent before this run.
        rng: For jitter.
        calls: What it called through transports.
    """
    if rule is None and failure.reason is Reason.INVALID_OUTPUT and not failure.is_stated:
        rule = INVALID_OUTPUT_RULE
    failure = replace(failure, upstream=calls.upstream_of(failure))
    outcome = _decided(fence, failure, rule, terms, counters, rng, calls)
    return replace(outcome, call_failure=_signal(fence, failure, terms, calls, rng), calls=calls)


def call_failure_of(failure: Failure, rng: random.Random, *, task_id: str = "") -> CallFailure | None:
    """Return what a failure shows of the upstream it came from; None if it is a matter of the task alone."""
    if failure.reason not in GATE_REASONS or failure.is_refusal:
        return None
    return CallFailure(
        failure.reason,
        wait_seconds=failure.wait_seconds,
        needs_person=failure.reason in ACCOUNT_REASONS and failure.verdict is Verdict.PERMANENT,
        message=failure.message,
        jitter=rng.random(),
        task_id=task_id,
        upstream=failure.upstream,
    )


def _signal(
    fence: Fence, failure: Failure, terms: RetryTerms, calls: CallSummary, rng: random.Random
) -> CallFailure | None:
    """Return what the end of a run reports to a gate.

    Calls through a transport have moved their gates at their own ends: only one that the run's time limit cut
    off has not. A run without such calls counts as one call of its upstream.
    """
    call_failure = call_failure_of(failure, rng, task_id=fence.task_id)
    if call_failure is None:
        return None
    if calls.count == 0:
        return call_failure if terms.upstream else None
    if failure.reason is Reason.TIMEOUT and failure.status is None and calls.interrupted_upstream:
        return replace(call_failure, upstream=calls.interrupted_upstream)
    return replace(call_failure, is_reported=True) if failure.upstream else None


def _decided(
    fence: Fence,
    failure: Failure,
    rule: Rule | None,
    terms: RetryTerms,
    counters: Counters,
    rng: random.Random,
    calls: CallSummary,
) -> Retrying | Dead:
    if rule is not None and not rule.retry:
        return Dead(fence, failure, Charge.ATTEMPT, f"discarded by the rule on {rule.name}")
    has_gate = bool(terms.upstream or failure.upstream)
    waits_for_account = (
        has_gate and rule is None and failure.reason in ACCOUNT_REASONS and not failure.is_stated
    )
    if failure.verdict is Verdict.PERMANENT and not waits_for_account:
        return Dead(fence, failure, Charge.ATTEMPT, f"permanent: {failure.reason}")
    charge = charge_for_failure(failure, calls, counters)
    is_counted_by_rule = rule is not None and rule.attempts is not None
    if charge is not Charge.ATTEMPT and not is_counted_by_rule:
        return _uncharged(fence, failure, charge, rule, terms, counters, rng)
    if failure.verdict is Verdict.UNKNOWN and not terms.retry_unknown and rule is None:
        return Dead(fence, failure, Charge.ATTEMPT, "unknown failure, and on_unknown is dead")
    return _retry(fence, failure, rule, terms, counters, rng)


def _uncharged(
    fence: Fence,
    failure: Failure,
    charge: Charge,
    rule: Rule | None,
    terms: RetryTerms,
    counters: Counters,
    rng: random.Random,
) -> Retrying | Dead:
    """Let the task wait uncharged: nothing was processed, and the task is not known to be at fault.

    One whose own upstream it was keeps its place, before everything that has not begun: the gate says when
    it goes.
    """
    parks = counters.parks + 1
    delay = _uncharged_seconds(failure, rule, terms, parks, rng)
    if delay >= terms.time_left.deadline_seconds:  # waits for an upstream do not use up the total timeout
        deadline = TimeLeft(deadline_seconds=terms.time_left.deadline_seconds)
        return _out_of_time(fence, failure, delay, deadline, charge)
    asked = "as asked by the server" if failure.wait_seconds else "no wait was named"
    is_gated = _is_gated(failure, terms)
    wait = f"waits for {terms.upstream}" if is_gated else f"waits {format_duration(delay)}"
    count = "not counted" if charge is Charge.WAIT else f"{parks} of {UNCHARGED_LIMIT}"
    return Retrying(
        fence,
        failure,
        delay,
        charge,
        rank_offset=-LIFT_SECONDS if is_gated else 0.0,
        why=f"{failure.reason}: {wait} ({asked}), uncharged, {count}",
        is_last=counters.attempts + 1 == terms.max_attempts,
    )


def _is_gated(failure: Failure, terms: RetryTerms) -> bool:
    """Whether the gate of the task's own upstream says when the task goes on."""
    return bool(terms.upstream) and failure.upstream in ("", terms.upstream)


def _uncharged_seconds(
    failure: Failure, rule: Rule | None, terms: RetryTerms, parks: int, rng: random.Random
) -> float:
    """Return how long to wait: the rule's wait if it has one, and never less than the server asked for.

    A second overload, or a second connection that could not be made, has the task wait out its own backoff:
    its gate may flow for all others.
    """
    if rule is not None and rule.wait is not None:
        return with_floor(delay_seconds(rule.wait, parks, rng), failure.wait_seconds, rng)
    if _is_gated(failure, terms):
        free = LIMITS_IN_A_ROW if failure.reason is Reason.RATE_LIMIT else 1
        backs_off = parks > free and not failure.is_refusal
        own = delay_seconds(terms.backoff, parks - free, rng) if backs_off else PROBE_SECONDS
        return with_floor(own, failure.wait_seconds, rng)
    if failure.is_unsent:
        return with_floor(delay_seconds(terms.backoff, parks, rng), failure.wait_seconds, rng)
    if failure.wait_seconds is None:
        return with_floor(terms.park_seconds, terms.park_seconds, rng)
    if failure.wait_seconds == 0:  # it may be asked again at once, but not in a tight loop
        return min(terms.park_seconds, delay_seconds(terms.backoff, parks, rng))
    return with_floor(0.0, failure.wait_seconds, rng)


def _retry(
    fence: Fence,
    failure: Failure,
    rule: Rule | None,
    terms: RetryTerms,
    counters: Counters,
    rng: random.Random,
) -> Retrying | Dead:
    """Charge an attempt; try again if some are left and there is time for it."""
    attempts = counters.attempts + 1
    if rule is not None and rule.attempts is not None and counters.of_rule(rule.name) + 1 >= rule.attempts:
        return Dead(
            fence, failure, Charge.ATTEMPT, f"all {rule.attempts} attempts of the rule on {rule.name} spent"
        )
    if attempts >= terms.max_attempts:
        return Dead(fence, failure, Charge.ATTEMPT, f"all {terms.max_attempts} attempts spent")
    last_one_next = attempts + 1 == terms.max_attempts
    backoff = rule.wait if rule is not None and rule.wait is not None else terms.backoff
    delay = delay_seconds(backoff, attempts, rng)
    if last_one_next:
        delay /= 2
    delay = with_floor(delay, failure.wait_seconds, rng)
    if delay >= terms.time_left.seconds:
        return _out_of_time(fence, failure, delay, terms.time_left, Charge.ATTEMPT)
    return Retrying(
        fence,
        failure,
        delay,
        Charge.ATTEMPT,
        rank_offset=0.0 if last_one_next else PENALTY_SECONDS * attempts,
        why=f"{failure.reason}: waits {format_duration(delay)} after attempt {attempts}"
        f" of {terms.max_attempts}",
        rule=rule.name if rule is not None else "",
        is_last=last_one_next,
    )


def decide_requested_retry(
    fence: Fence,
    *,
    after_seconds: float | None,
    reason: str,
    charge: bool,
    terms: RetryTerms,
    counters: Counters,
    rng: random.Random,
) -> Outcome:
    """Return what becomes of a task that asked for its own next run by `ctx.retry`."""
    reason = presentable(reason, MESSAGE_LIMIT)
    failure = Failure(
        Verdict.TRANSIENT, Reason.UNKNOWN, message=reason, evidence="ctx.retry", wait_seconds=after_seconds
    )
    if charge:
        return _retry(fence, failure, None, terms, counters, rng)
    delay = delay_seconds(terms.backoff, 1, rng) if after_seconds is None else after_seconds
    if delay >= terms.time_left.seconds:
        return _out_of_time(fence, failure, delay, terms.time_left, Charge.NOTHING)
    return Retrying(
        fence,
        failure,
        delay,
        Charge.NOTHING,
        0.0,
        why=f"asked by the task: {reason or 'no reason given'}",
        is_free=True,
    )


def spent(fence: Fence, terms: RetryTerms, counters: Counters) -> Dead | None:
    """Return the end of a task that has no attempt left before its run begins; None if it may begin.

    Only interruptions leave a task so: whoever gives a run back does not know how many attempts it has.
    """
    if counters.interruptions < INTERRUPTED_LIMIT or counters.attempts < terms.max_attempts:
        return None
    why = f"all {terms.max_attempts} attempts spent, some by runs that were interrupted"
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message=why, evidence="interrupted")
    return Dead(fence, failure, Charge.NOTHING, why)


def expired(fence: Fence, limit: TaskLimit, ran_for: str = "") -> Dead:
    """Return the end of a task whose total timeout or deadline is over.

    Args:
        fence: The run.
        limit: Which of the two.
        ran_for: How long this run had lasted; empty: it was not started.
    """
    if ran_for:
        message = f"stopped by its {limit} after it had run for {ran_for}: {limit.fix}"
    else:
        message = f"its {limit} passed before it was started: {limit.fix}"
    failure = Failure(Verdict.PERMANENT, Reason.DEADLINE, message=message, evidence=limit.value)
    return Dead(fence, failure, Charge.NOTHING, f"{limit} passed")


def _out_of_time(fence: Fence, failure: Failure, delay: float, left: TimeLeft, charge: Charge) -> Dead:
    limit = left.first
    seconds = format_duration(max(0.0, left.seconds))
    why = (
        f"{limit}: its next run would start in {format_duration(delay)}, "
        f"{seconds} are left ({failure.reason}); {limit.fix}"
    )
    failure = Failure(
        Verdict.PERMANENT,
        Reason.DEADLINE,
        message=presentable(f"no time for another run, {limit.fix}: {failure.message}", MESSAGE_LIMIT),
        error_class=failure.error_class,
        status=failure.status,
        code=failure.code,
        request_id=failure.request_id,
        evidence=why,
        traceback=failure.traceback,
    )
    return Dead(fence, failure, charge, why)
