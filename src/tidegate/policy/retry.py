"""The retry decision: turns a failed run, the task's terms and its counters into one outcome.

Start with `decide`; in `_decided` the first condition that holds decides.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.failure import (
    ACCOUNT_REASONS,
    GATE_REASONS,
    MESSAGE_LIMIT,
    CallFailure,
    Failure,
    Reason,
    Verdict,
)
from tidegate.domain.outcome import Charge, Counters, Dead, Fence, Retrying
from tidegate.domain.spec import Backoff, Rule, TaskSpec
from tidegate.domain.task_limits import TaskLimit, TimeLeft
from tidegate.domain.text import format_duration, redacted_text
from tidegate.limits.probes import PROBE_SECONDS
from tidegate.policy.backoff import delay_seconds, with_floor
from tidegate.policy.charge import INTERRUPTED_LIMIT, UNCHARGED_LIMIT, charge_for_failure
from tidegate.policy.order import LIFT_SECONDS, PENALTY_SECONDS

PARK_SECONDS = 60.0
"""The wait after a rate limit or overload without a named wait, for a task without an upstream."""

LIMITS_IN_A_ROW = 3
"""For this many rate limits only the gate decides how long a task waits. After more, the task's own backoff
applies too: the task may be at fault, and its gate may flow for all others."""

INVALID_OUTPUT_RULE = Rule(Reason.INVALID_OUTPUT, attempts=2)
"""The default rule for invalid output. A model that is asked once more, with the reason, may answer in the
right form. If that answer is invalid too, no further attempts are paid for."""

_NO_TIME_LIMIT = TimeLeft()


@dataclass(frozen=True, slots=True)
class RetryTerms:
    """The limits of one task's retries, with its own overrides applied."""

    max_attempts: int
    backoff: Backoff
    retry_unknown: bool = True
    time_left: TimeLeft = _NO_TIME_LIMIT
    """The time until its total timeout and its deadline."""
    park_seconds: float = PARK_SECONDS
    upstream: str = ""
    """The task's own upstream, whose gate it waits for; empty if there is none."""

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
) -> Retrying | Dead:
    """Return the outcome of a run that failed.

    Args:
        fence: The run that failed.
        failure: The failure.
        rule: The rule of `retry=[…]` that matched; None if none did.
        terms: The limits of the task's retries.
        counters: What the task had spent before this run.
        rng: The source of jitter.
        calls: The calls that the run made through transports.
    """
    if rule is None and failure.reason is Reason.INVALID_OUTPUT and not failure.is_stated:
        rule = INVALID_OUTPUT_RULE
    failure = replace(failure, upstream=calls.upstream_of(failure))
    outcome = _decided(fence, failure, rule, terms, counters, rng, calls)
    call_failure = _unreported_call_failure(fence, failure, terms, calls, rng)
    return replace(outcome, call_failure=call_failure, calls=calls)


def call_failure_of(failure: Failure, rng: random.Random, *, task_id: str = "") -> CallFailure | None:
    """Return what a failure shows about its upstream; None if it concerns the task alone."""
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


def _unreported_call_failure(
    fence: Fence, failure: Failure, terms: RetryTerms, calls: CallSummary, rng: random.Random
) -> CallFailure | None:
    """Return what the end of a run reports to a gate.

    Calls through a transport have reported to their gates when they ended, except a call that the run's
    timeout interrupted. A run without such calls counts as one call of its upstream.
    """
    call_failure = call_failure_of(failure, rng, task_id=fence.task_id)
    if call_failure is None:
        return None
    if calls.are_unknown:
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
    """Let the task wait without a charged attempt: nothing was processed, and the task may not be at fault.

    If the task's own upstream refused the call, the upstream's gate decides when the task goes on, and the
    task goes before new ones.
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
    """Whether the gate of the task's own upstream decides when the task goes on."""
    return bool(terms.upstream) and failure.upstream in ("", terms.upstream)


def _uncharged_seconds(
    failure: Failure, rule: Rule | None, terms: RetryTerms, parks: int, rng: random.Random
) -> float:
    """Return the wait: the rule's wait if it has one, and never less than the server asked for.

    From the second overload or failed connection on, the task's own backoff applies too: its gate may flow
    for all others.
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
    if failure.wait_seconds == 0:  # an immediate retry is allowed, but not in a tight loop
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
    """Charge an attempt, and retry if attempts and time are left."""
    attempts = counters.attempts + 1
    if rule is not None and rule.attempts is not None and counters.of_rule(rule.name) + 1 >= rule.attempts:
        return Dead(
            fence, failure, Charge.ATTEMPT, f"all {rule.attempts} attempts of the rule on {rule.name} spent"
        )
    if attempts >= terms.max_attempts:
        return Dead(fence, failure, Charge.ATTEMPT, _all_spent(terms.max_attempts))
    is_last_next = attempts + 1 == terms.max_attempts
    backoff = rule.wait if rule is not None and rule.wait is not None else terms.backoff
    delay = delay_seconds(backoff, attempts, rng)
    if is_last_next:
        delay /= 2
    delay = with_floor(delay, failure.wait_seconds, rng)
    if delay >= terms.time_left.seconds:
        return _out_of_time(fence, failure, delay, terms.time_left, Charge.ATTEMPT)
    return Retrying(
        fence,
        failure,
        delay,
        Charge.ATTEMPT,
        rank_offset=0.0 if is_last_next else PENALTY_SECONDS * attempts,
        why=f"{failure.reason}: waits {format_duration(delay)} after attempt {attempts}"
        f" of {terms.max_attempts}",
        rule=rule.name if rule is not None else "",
        is_last=is_last_next,
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
) -> Retrying | Dead:
    """Return the outcome of a run that asked for another run by `ctx.retry`."""
    reason = redacted_text(reason, MESSAGE_LIMIT)
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


def spent(fence: Fence, max_attempts: int, counters: Counters) -> Dead | None:
    """Return the outcome of a task without attempts left, before its run begins; None if the run may begin.

    Only interrupted runs cause this, because the code that releases a run does not know `max_attempts`.
    """
    if counters.interruptions < INTERRUPTED_LIMIT or counters.attempts < max_attempts:
        return None
    reason = f"{_all_spent(max_attempts)}, some by runs that were interrupted"
    failure = Failure(Verdict.UNKNOWN, Reason.CRASH, message=reason, evidence="interrupted")
    return Dead(fence, failure, Charge.NOTHING, reason)


def expired(fence: Fence, limit: TaskLimit, ran_for: str = "") -> Dead:
    """Return the outcome of a task whose total timeout or deadline is over.

    Args:
        fence: The run.
        limit: The limit that is over.
        ran_for: How long this run had lasted, for people; empty if it was not started.
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
    reason = (
        f"{limit}: its next run would start in {format_duration(delay)}, "
        f"{seconds} are left ({failure.reason}); {limit.fix}"
    )
    failure = Failure(
        Verdict.PERMANENT,
        Reason.DEADLINE,
        message=redacted_text(f"no time for another run, {limit.fix}: {failure.message}", MESSAGE_LIMIT),
        error_class=failure.error_class,
        status=failure.status,
        code=failure.code,
        request_id=failure.request_id,
        evidence=reason,
        traceback=failure.traceback,
    )
    return Dead(fence, failure, charge, reason)


def _all_spent(max_attempts: int) -> str:
    return "its only attempt spent" if max_attempts == 1 else f"all {max_attempts} attempts spent"
