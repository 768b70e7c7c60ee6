"""The retry decision: a failed run, the task's terms and what it has spent become one outcome.

Read `decide` from top to bottom: the first line that applies, applies.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tidegate.domain.failure import MESSAGE_LIMIT, UPSTREAM_REASONS, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Counters, Dead, Fence, Outcome, Retrying
from tidegate.domain.spec import Backoff, Rule, TaskSpec
from tidegate.domain.text import presentable
from tidegate.domain.upstream import Signal
from tidegate.policy.backoff import delay_seconds, with_floor
from tidegate.policy.gate import ACCOUNT, CAPACITY, FAULTS, PROBE_SECONDS, TELLING
from tidegate.policy.order import LIFT_SECONDS, PENALTY_SECONDS
from tidegate.policy.words import duration

PARK_LIMIT = 20
"""Rate-limit and overload waits one task may take without being charged."""
PARK_SECONDS = 60.0
"""Wait after a rate limit or overload whose answer named none."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What one task is allowed, its own overrides applied."""

    max_attempts: int
    backoff: Backoff
    retry_unknown: bool = True
    remaining_seconds: float | None = None
    """Until its deadline; None: no limit."""
    deadline_stands_still: bool = True
    """Whether a park stops the clock of the deadline (False where the caller named the deadline)."""
    park_seconds: float = PARK_SECONDS
    upstream: str = ""
    """Whose gate the failure may move; empty: the task waits alone."""
    is_probe: bool = False
    """The run tried whether a held upstream works again: that is never charged."""

    @classmethod
    def of(
        cls,
        spec: TaskSpec,
        *,
        max_attempts: int | None = None,
        remaining_seconds: float | None = None,
        deadline_stands_still: bool = True,
        upstream: str = "",
        is_probe: bool = False,
    ) -> Terms:
        """Return the terms of a task of this function, with the overrides it was enqueued with."""
        return cls(
            max_attempts=max_attempts if max_attempts is not None else spec.max_attempts,
            backoff=spec.backoff,
            retry_unknown=spec.retry_unknown,
            remaining_seconds=remaining_seconds,
            deadline_stands_still=deadline_stands_still,
            upstream=upstream,
            is_probe=is_probe,
        )


def decide(
    fence: Fence,
    failure: Failure,
    rule: Rule | None,
    terms: Terms,
    counters: Counters,
    rng: random.Random,
) -> Outcome:
    """Return what becomes of a task whose run failed.

    Args:
        fence: The run that failed.
        failure: What the failure means.
        rule: The line of `retry=[…]` that matched, if one did.
        terms: What the task is allowed.
        counters: What it had spent before this run.
        rng: For jitter.
    """
    outcome = _decided(fence, failure, rule, terms, counters, rng)
    signal = signal_of(failure, rng) if terms.upstream else None
    return replace(outcome, signal=signal)


def signal_of(failure: Failure, rng: random.Random) -> Signal | None:
    """Return what a failure tells of the upstream it came from; None if it tells of the task alone."""
    if failure.reason not in TELLING or failure.is_refusal:
        return None
    return Signal(
        failure.reason,
        wait_seconds=failure.wait_seconds,
        needs_person=failure.reason in ACCOUNT and failure.verdict is Verdict.PERMANENT,
        message=failure.message,
        spread=rng.random(),
    )


def _decided(
    fence: Fence,
    failure: Failure,
    rule: Rule | None,
    terms: Terms,
    counters: Counters,
    rng: random.Random,
) -> Retrying | Dead:
    if rule is not None and not rule.retry:
        return Dead(fence, failure, Charge.ATTEMPT, f"discarded by the rule on {rule.name}")
    if terms.upstream and rule is None:
        if failure.reason in ACCOUNT:
            return _park(fence, failure, rule, terms, counters, rng)
        if terms.is_probe and failure.reason in CAPACITY | FAULTS:
            return _probed_in_vain(fence, failure, terms, rng)
    if failure.verdict is Verdict.PERMANENT:
        return Dead(fence, failure, Charge.ATTEMPT, f"permanent: {failure.reason}")
    if failure.reason in UPSTREAM_REASONS and (rule is None or rule.attempts is None):
        return _park(fence, failure, rule, terms, counters, rng)
    if failure.verdict is Verdict.UNKNOWN and not terms.retry_unknown and rule is None:
        return Dead(fence, failure, Charge.ATTEMPT, "unknown failure, and on_unknown is dead")
    return _retry(fence, failure, rule, terms, counters, rng)


def _park(
    fence: Fence, failure: Failure, rule: Rule | None, terms: Terms, counters: Counters, rng: random.Random
) -> Retrying | Dead:
    """Let the task wait uncharged: the upstream is short of capacity, the task is not at fault.

    One with an upstream keeps its place, before everything that has not begun: the gate says when it goes.
    """
    parks = counters.parks + 1
    if parks > PARK_LIMIT:
        return Dead(
            fence, failure, Charge.PARK, f"{failure.reason} {PARK_LIMIT} times, the most a task may wait"
        )
    delay = _park_seconds(failure, rule, terms, parks, rng)
    if not terms.deadline_stands_still and _too_late(delay, terms):
        return _beyond_deadline(fence, failure, delay, terms, Charge.PARK)
    asked = "as asked by the server" if failure.wait_seconds else "no wait was named"
    wait = f"waits for {terms.upstream}" if terms.upstream else f"waits {duration(delay)}"
    why = f"{failure.reason}: {wait} ({asked}), uncharged, {parks} of {PARK_LIMIT}"
    offset = -LIFT_SECONDS if terms.upstream else 0.0
    return Retrying(fence, failure, delay, Charge.PARK, rank_offset=offset, why=why)


def _probed_in_vain(fence: Fence, failure: Failure, terms: Terms, rng: random.Random) -> Retrying | Dead:
    """Let a task that tried a held upstream wait for it, uncharged and uncounted."""
    delay = with_floor(PROBE_SECONDS, failure.wait_seconds, rng)
    if _too_late(delay, terms):
        return _beyond_deadline(fence, failure, delay, terms, Charge.NOTHING)
    why = f"{failure.reason}: tried for {terms.upstream} in vain, uncharged"
    return Retrying(fence, failure, delay, Charge.NOTHING, rank_offset=-LIFT_SECONDS, why=why)


def _park_seconds(failure: Failure, rule: Rule | None, terms: Terms, parks: int, rng: random.Random) -> float:
    """Return how long to wait: the rule's wait if it has one, and never less than the server asked for."""
    if rule is not None and rule.wait is not None:
        return with_floor(delay_seconds(rule.wait, parks, rng), failure.wait_seconds, rng)
    if terms.upstream:  # its gate holds it for as long as it takes
        return with_floor(PROBE_SECONDS, failure.wait_seconds, rng)
    if failure.wait_seconds is None:
        return with_floor(terms.park_seconds, terms.park_seconds, rng)
    if failure.wait_seconds == 0:  # it may be asked again at once, but not in a tight loop
        return min(terms.park_seconds, delay_seconds(terms.backoff, parks, rng))
    return with_floor(0.0, failure.wait_seconds, rng)


def _retry(
    fence: Fence, failure: Failure, rule: Rule | None, terms: Terms, counters: Counters, rng: random.Random
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
    if _too_late(delay, terms):
        return _beyond_deadline(fence, failure, delay, terms, Charge.ATTEMPT)
    return Retrying(
        fence,
        failure,
        delay,
        Charge.ATTEMPT,
        rank_offset=0.0 if last_one_next else PENALTY_SECONDS * attempts,
        why=f"{failure.reason}: waits {duration(delay)} after attempt {attempts} of {terms.max_attempts}",
        rule=rule.name if rule is not None else "",
        is_last=last_one_next,
    )


def on_request(
    fence: Fence,
    *,
    after_seconds: float | None,
    reason: str,
    charge: bool,
    terms: Terms,
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
    if _too_late(delay, terms):
        return _beyond_deadline(fence, failure, delay, terms, Charge.NOTHING)
    return Retrying(
        fence,
        failure,
        delay,
        Charge.NOTHING,
        0.0,
        why=f"asked by the task: {reason or 'no reason given'}",
        is_free=True,
    )


def expired(fence: Fence, message: str) -> Dead:
    """Return the end of a task whose deadline passed."""
    failure = Failure(Verdict.PERMANENT, Reason.DEADLINE, message=message, evidence="deadline")
    return Dead(fence, failure, Charge.NOTHING, "deadline passed")


def _too_late(delay: float, terms: Terms) -> bool:
    return terms.remaining_seconds is not None and delay >= terms.remaining_seconds


def _beyond_deadline(fence: Fence, failure: Failure, delay: float, terms: Terms, charge: Charge) -> Dead:
    left = max(0.0, terms.remaining_seconds or 0.0)
    why = f"deadline: next run in {duration(delay)}, {duration(left)} are left ({failure.reason})"
    failure = Failure(
        Verdict.PERMANENT,
        Reason.DEADLINE,
        message=failure.message,
        error_class=failure.error_class,
        status=failure.status,
        code=failure.code,
        request_id=failure.request_id,
        evidence=why,
        traceback=failure.traceback,
    )
    return Dead(fence, failure, charge, why)
