"""The state machine of a gate: how failures close the gate, when one task may probe it, how it opens.

What closes a gate:

- A rate limit that names a wait parks the gate for that time. A broken account or a person parks it until a
  person opens it, or until the time that the person named.
- Failures of two different tasks with no success between them leave the gate flowing, but it then admits only
  probes, one at a time. One task alone never causes this, because its own request may be the fault.
- Enough failures in a row, an overload, or rate limits that keep naming new waits park the gate until a probe
  succeeds, and at least until the time that the server named. After many failures it opens with a slow start.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.failure import ACCOUNT_REASONS, CAPACITY_REASONS, FAULT_REASONS, CallFailure, Reason
from tidegate.limits import in_flight_learning, probes, rate_learning
from tidegate.limits.rate_learning import NO_ATTEMPTS, Attempts
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, GateState, ParkedBy, RefusedTask

MAX_PARK_SECONDS = 86_400.0
"""The longest wait that is accepted from a server; a longer wait is cut to this."""
PLACEHOLDER_WAIT_SECONDS = 2.0
PLACEHOLDER_WAITS = 5
"""If a server keeps naming waits for too long, only a successful probe opens the gate. Too long means more
than each of: `PLACEHOLDER_WAIT_SECONDS`, this many of the server's waits, and twice the typical time of a
run."""
FIRST_SHARE = 0.1
"""The share of its rate that an upstream starts with after an outage."""
MAX_REFUSED_TASKS = 16
"""How many tasks whose overload parked the gate, and how many rate limits, a gate remembers: the latest
ones."""
LONE_LIMITS = 2
"""If one task has met this many rate limits, and calls of other tasks succeeded after each, its next rate
limit counts as a fault of that task alone. The task's request may be larger than the limit, for example."""
PARK_JITTER = 0.1
"""The largest random share by which a park is lengthened, so that workers do not all start at the same
time."""
MAX_PARK_JITTER_SECONDS = 5.0


def apply_failure(
    gate: Gate,
    failure: CallFailure,
    limits: Limits,
    now: float,
    *,
    attempts: Attempts = NO_ATTEMPTS,
    began_at: float | None = None,
) -> Gate:
    """Return the gate after a failure of a run or call. The reason must be one of `GATE_REASONS`.

    A 429 that met a flowing gate lowers the learned rate. The gate parks for the wait that the 429 names.
    Without a named wait it stays open, unless nearly all calls are refused at the lowered rate.

    Args:
        gate: The gate before.
        failure: The failure.
        limits: The upstream's limits.
        now: The current time by the store's clock.
        attempts: How many calls were sent lately.
        began_at: When the call or run began; None if unknown.
    """
    if failure.needs_person:
        return _parked(gate, ParkedBy.ACCOUNT, failure, now)
    if gate.parked_by in (ParkedBy.ACCOUNT, ParkedBy.PERSON):
        return gate
    if _is_fault_of_task(gate, failure):
        return gate
    gate = _with_failed_task(gate, failure, now)
    if failure.reason in FAULT_REASONS and gate.state is GateState.FLOWING and len(gate.failed_task_ids) < 2:
        return _with_cause(replace(gate, failures=gate.failures + 1), failure)
    is_failure = failure.reason is not Reason.RATE_LIMIT
    is_flowing_429 = not is_failure and gate.state is GateState.FLOWING
    if is_flowing_429:
        gate = _slowed(gate, failure, now, attempts, began_at)
    is_named = failure.wait_seconds is not None and failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS
    if is_named:
        gate = replace(
            gate,
            rate_limited_since_at=now if gate.rate_limited_since_at is None else gate.rate_limited_since_at,
        )
    if failure.reason is Reason.OVERLOADED:
        gate = replace(gate, in_flight=in_flight_learning.after_overload(gate.in_flight, now))
    if is_named and not _is_placeholder_wait(gate, failure, now):
        gate = replace(gate, failures=gate.failures + is_failure)
        return _parked(gate, ParkedBy.SERVER, failure, now, until_at=_parked_until(gate, failure, now))
    if gate.parked_by is ParkedBy.SERVER and not is_named:
        return gate
    if is_flowing_429 and not is_named and rate_learning.keeps_gate_open(gate.learned_rate, attempts):
        return _with_cause(gate, failure)
    return _parked_by_failure(gate, failure, limits, now, is_named=is_named)


def _parked_by_failure(
    gate: Gate, failure: CallFailure, limits: Limits, now: float, *, is_named: bool
) -> Gate:
    """Return the gate parked until a probe succeeds, or still flowing after few failures."""
    is_failure = failure.reason is not Reason.RATE_LIMIT
    gate = _with_slower_start(replace(gate, failures=gate.failures + is_failure), limits, now)
    # A late failure of an old call does not postpone the next probe.
    probe_at = min(gate.probe_at or math.inf, now + probes.probe_interval(gate, now))
    if is_named:
        probe_at = max(probe_at, _parked_until(gate, failure, now))
    is_parked = gate.state is not GateState.FLOWING
    if (
        is_parked
        or failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS
        or gate.failures >= limits.failures_to_park
    ):
        return _parked(gate, ParkedBy.FAILURES, failure, now, probe_at=probe_at)
    return _with_cause(replace(gate, probe_at=probe_at), failure)


def _slowed(gate: Gate, failure: CallFailure, now: float, attempts: Attempts, began_at: float | None) -> Gate:
    """Return the gate with the rate that it learned from a 429."""
    wait_seconds = max(0.0, failure.wait_seconds or 0.0)
    learned_rate = rate_learning.slow_down(
        gate.learned_rate, now, attempts=attempts, began_at=began_at, wait_seconds=wait_seconds
    )
    return replace(gate, learned_rate=learned_rate)


def _with_cause(gate: Gate, failure: CallFailure) -> Gate:
    """Return the gate with this failure as the one that it shows."""
    return replace(gate, reason=str(failure.reason), message=failure.message, message_task_id=failure.task_id)


def _is_fault_of_task(gate: Gate, failure: CallFailure) -> bool:
    """Whether the refusal is about the task and not about the flowing upstream.

    This holds if the same task was refused before and calls of other tasks have succeeded since. One earlier
    refusal is enough for an overload, but not for a rate limit, which many tasks meet in turn.
    """
    if gate.state is not GateState.FLOWING or gate.last_success_at is None or not failure.task_id:
        return False
    last_success_at = gate.last_success_at
    if failure.reason is Reason.RATE_LIMIT:
        return _count_refusals(gate.rate_limited_tasks, failure.task_id, last_success_at) >= LONE_LIMITS
    return (
        failure.reason is Reason.OVERLOADED
        and _count_refusals(gate.overloaded_tasks, failure.task_id, last_success_at) > 0
    )


def _count_refusals(refused: tuple[RefusedTask, ...], task_id: str, before: float) -> int:
    return sum(task.task_id == task_id and task.at < before for task in refused)


def _with_failed_task(gate: Gate, failure: CallFailure, now: float) -> Gate:
    """Return the gate with the task that met the failure recorded."""
    if failure.reason in FAULT_REASONS and (
        failure.task_id not in gate.failed_task_ids or not failure.task_id
    ):
        return replace(gate, failed_task_ids=(*gate.failed_task_ids, failure.task_id)[:2])
    if failure.reason is Reason.OVERLOADED and failure.task_id:
        others = tuple([task for task in gate.overloaded_tasks if task.task_id != failure.task_id])
        kept = (*others, RefusedTask(failure.task_id, now))[-MAX_REFUSED_TASKS:]
        return replace(gate, overloaded_tasks=kept)
    if failure.reason is Reason.RATE_LIMIT and failure.task_id and gate.state is GateState.FLOWING:
        since = math.inf if gate.last_success_at is None else gate.last_success_at
        if all(task.task_id != failure.task_id or task.at < since for task in gate.rate_limited_tasks):
            limited = (*gate.rate_limited_tasks, RefusedTask(failure.task_id, now))
            return replace(gate, rate_limited_tasks=limited[-MAX_REFUSED_TASKS:])
    return gate


def apply_call_success(gate: Gate, now: float) -> Gate:
    """Return the gate after a single call that succeeded.

    The success shows that the upstream answers, so its failures are forgotten. The gate stays closed, because
    only a probe opens it. The learned rate stays the same, because it counts runs.
    """
    gate = replace(gate, failed_task_ids=(), last_success_at=now)
    if gate.state is not GateState.FLOWING or gate.failures == 0:
        return gate
    return replace(gate, failures=0, probe_at=None)


def apply_success(
    gate: Gate,
    limits: Limits,
    now: float,
    *,
    seconds: float,
    successes: int,
    is_probe: bool,
    calls: int | None = None,
) -> Gate:
    """Return the gate after runs that succeeded, or that failed for a reason outside the upstream.

    Args:
        gate: The gate before.
        limits: The upstream's limits.
        now: The current time by the store's clock.
        seconds: How many seconds a run took on average.
        successes: How many runs there were.
        is_probe: Whether one of them was a probe.
        calls: How many of their calls succeeded; None for one call each.
    """
    gate = replace(
        gate,
        typical_seconds=0.8 * gate.typical_seconds + 0.2 * seconds,
        rate_limited_since_at=None,
        learned_rate=rate_learning.count_successes(gate.learned_rate, calls or successes, now),
        failed_task_ids=(),
        last_success_at=now,
    )
    if gate.state is not GateState.FLOWING:
        may_open = is_probe and gate.parked_by is ParkedBy.FAILURES
        return open_gate(gate, limits, now) if may_open else gate
    if gate.slow_start_at is not None:
        over = now - gate.slow_start_at >= limits.slow_start_seconds
        gate = replace(
            gate, successes=gate.successes + successes, slow_start_at=None if over else gate.slow_start_at
        )
    return gate if gate.failures == 0 else replace(gate, failures=0, probe_at=None)


def open_gate(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate flowing again, with a slow start if it was parked after many failures."""
    was_long = gate.failures >= limits.failures_to_park and limits.slow_start_seconds > 0
    return Gate(
        since_at=now,
        slow_start_at=now if was_long else None,
        last_opened_at=now,
        overloaded_tasks=gate.overloaded_tasks,
        rate_limited_tasks=gate.rate_limited_tasks,
        last_success_at=gate.last_success_at,
        answered_at=gate.answered_at,
        rate_limited_since_at=gate.rate_limited_since_at,
        typical_seconds=gate.typical_seconds,
        reason=gate.reason,
        message=gate.message,
        message_task_id=gate.message_task_id,
        learned_limits=gate.learned_limits,
        learned_rate=rate_learning.resume(gate.learned_rate, now),
        in_flight=gate.in_flight,
        token_estimates=gate.token_estimates,
    )


def open_by_person(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate opened by a person. Exhausted limits that headers showed are ignored from now on."""
    gate = open_gate(gate, limits, now)
    learned_limits = tuple(replace(limit, opens_at=None) for limit in gate.learned_limits)
    return replace(gate, rate_limited_since_at=None, learned_limits=learned_limits)


def open_with_key(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate of an upstream after a person opened the gate of one of its keys.

    If the upstream was parked because no key could be used, it opens: calls can use that key.
    """
    lacked_keys = (
        gate.parked_by not in (None, ParkedBy.PERSON) and gate.reason in CAPACITY_REASONS | ACCOUNT_REASONS
    )
    return open_by_person(gate, limits, now) if lacked_keys else gate


def park_by_person(gate: Gate, now: float, seconds: float | None, why: str) -> Gate:
    """Return the gate parked by a person, for some seconds or until a person opens it (`seconds` is None)."""
    return Gate(
        state=GateState.PARKED,
        parked_by=ParkedBy.PERSON,
        message=why,
        since_at=now,
        until_at=None if seconds is None else now + seconds,
        failures=gate.failures,
        overloaded_tasks=gate.overloaded_tasks,
        rate_limited_tasks=gate.rate_limited_tasks,
        last_success_at=gate.last_success_at,
        answered_at=gate.answered_at,
        typical_seconds=gate.typical_seconds,
        learned_limits=gate.learned_limits,
        learned_rate=gate.learned_rate,
        in_flight=gate.in_flight,
        token_estimates=gate.token_estimates,
    )


def request_probe(gate: Gate, now: float) -> Gate:
    """Return the gate changed so that the next task of the upstream probes it, and opens it on success.

    Any task may be the probe, even one on its last attempt: the probe counts as long overdue.
    """
    if gate.state is GateState.FLOWING:
        return gate
    probe_at = now - probes.MAX_LAST_ATTEMPT_SECONDS
    return replace(
        gate, state=GateState.PARKED, parked_by=ParkedBy.FAILURES, until_at=None, probe_at=probe_at
    )


def gate_at(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate at this time: open if the time until which it was parked is over."""
    if gate.state is GateState.FLOWING or gate.until_at is None or gate.until_at > now:
        return gate
    return open_gate(gate, limits, gate.until_at)


def started_before_reopening(gate: Gate, began_at: float | None) -> bool:
    """Whether a run that began at `began_at` began before the gate last opened."""
    return began_at is not None and gate.last_opened_at is not None and began_at < gate.last_opened_at


def slow_start_share(gate: Gate, limits: Limits, now: float) -> float:
    """Return the share of its rate that an upstream may use now.

    The share is below 1 only during a slow start.
    """
    if gate.slow_start_at is None or limits.slow_start_seconds <= 0:
        return 1.0
    part = max(0.0, now - gate.slow_start_at) / limits.slow_start_seconds
    return min(1.0, FIRST_SHARE + (1 - FIRST_SHARE) * part)


def _with_slower_start(gate: Gate, limits: Limits, now: float) -> Gate:
    """Halve the share of a gate in slow start: its failure shows that calls came too fast."""
    if gate.slow_start_at is None:
        return gate
    part = (max(FIRST_SHARE, slow_start_share(gate, limits, now) / 2) - FIRST_SHARE) / (1 - FIRST_SHARE)
    return replace(gate, slow_start_at=now - part * limits.slow_start_seconds, successes=gate.successes // 2)


def _is_placeholder_wait(gate: Gate, failure: CallFailure, now: float) -> bool:
    """Whether a named wait is a placeholder that does not predict when calls succeed again.

    Servers and proxies that are down keep naming the same short wait, some with a 429. If the gate opened
    fully after each wait, every task would call again and use up the number of times that it may be parked.
    """
    if failure.reason is Reason.OVERLOADED:
        return True
    if failure.reason is not Reason.RATE_LIMIT or gate.rate_limited_since_at is None:
        return False
    credible_seconds = max(
        PLACEHOLDER_WAIT_SECONDS, PLACEHOLDER_WAITS * (failure.wait_seconds or 0.0), 2 * gate.typical_seconds
    )
    return gate.parked_by is ParkedBy.FAILURES or now - gate.rate_limited_since_at > credible_seconds


def _parked_until(gate: Gate, failure: CallFailure, now: float) -> float:
    wait = min(max(0.0, failure.wait_seconds or 0.0), MAX_PARK_SECONDS)
    until_at = now + wait + min(PARK_JITTER * wait, MAX_PARK_JITTER_SECONDS) * failure.jitter
    return max(until_at, gate.until_at or 0.0) if gate.parked_by is ParkedBy.SERVER else until_at


def _parked(
    gate: Gate,
    by: ParkedBy,
    failure: CallFailure,
    now: float,
    *,
    until_at: float | None = None,
    probe_at: float | None = None,
) -> Gate:
    is_new = gate.state is GateState.FLOWING or gate.parked_by is not by
    return replace(
        _with_cause(gate, failure),
        state=GateState.PARKED,
        parked_by=by,
        since_at=now if is_new else gate.since_at,
        until_at=until_at,
        probe_at=probe_at,
    )
