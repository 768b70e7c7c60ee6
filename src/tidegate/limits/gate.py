"""How a gate moves: what a failure of an upstream does to it, when one task may probe, how it opens.

Two ways to stop. A rate limit's wait, an account that must be mended, or a person's order park the gate.
Failures of two different tasks with no good call between them *hold* it: only single probes start, so no
failure admits the next task. One task alone never does: its request may be what is wrong. Enough failures in
a row, an overload, or rate limits that name wait after wait park the gate, and then only a good probe opens
it, no sooner than the server named. After many failures it opens slowly.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tidegate.domain.failure import ACCOUNT_REASONS, CAPACITY_REASONS, FAULT_REASONS, CallFailure, Reason
from tidegate.limits import rate_learning
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, GateState, OverloadedTask, ParkedBy

MAX_PARK_SECONDS = 86_400.0
"""The longest wait that is believed."""
PROBE_SECONDS = 1.0
"""Between probes at first."""
PROBE_SHARE = 0.02
"""Between probes later: this part of the time it has been parked."""
MAX_PROBE_SECONDS = 10.0
"""The longest an upstream that named no wait is left alone."""
PLACEHOLDER_WAIT_SECONDS = 2.0
"""Where a server names wait after wait for longer than this, and five of them, only a good probe opens."""
PLACEHOLDER_WAITS = 5
FIRST_SHARE = 0.1
"""The part of its pace an upstream begins with after an outage."""
LAST_ATTEMPT_SECONDS = 10.0
MAX_LAST_ATTEMPT_SECONDS = 600.0
"""A task on its last attempt tries a held gate only when a probe has been due for half of the time since the
gate was parked, at least and at most so long, and no other task took it. So few of them try in an outage, at
moments ever further apart, and the upstream stays shut for about twice its outage at most."""
MAX_OVERLOADED_TASKS = 16
"""Tasks that are remembered to have parked a gate by an overload, the latest ones; as many rate limits."""
LONE_LIMITS = 2
"""Rate limits that one task may meet, each time with good calls of others after it, before the next one is
taken for a matter of that task alone: its request is larger than the limit, say."""
PARK_JITTER = 0.1
"""A park is lengthened by up to this part, so that its end is no common instant."""
MAX_PARK_JITTER_SECONDS = 5.0


def apply_failure(gate: Gate, failure: CallFailure, limits: Limits, now: float) -> Gate:
    """Return the gate after a run or call that failed for one of the reasons in `GATE_REASONS`."""
    if failure.needs_person:
        return _parked(gate, ParkedBy.ACCOUNT, failure, now)
    if gate.parked_by in (ParkedBy.ACCOUNT, ParkedBy.PERSON):
        return gate
    if _is_fault_of_task(gate, failure):
        return gate
    gate = _with_failed_task(gate, failure, now)
    if failure.reason in FAULT_REASONS and gate.state is GateState.FLOWING and len(gate.failed_task_ids) < 2:
        return replace(gate, failures=gate.failures + 1, reason=str(failure.reason), message=failure.message)
    is_failure = failure.reason is not Reason.RATE_LIMIT
    if not is_failure:
        gate = rate_learning.slow_down(gate, now)
    is_named = failure.wait_seconds is not None and failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS
    if is_named:
        gate = replace(
            gate,
            rate_limited_since_at=now if gate.rate_limited_since_at is None else gate.rate_limited_since_at,
        )
    if is_named and not _is_placeholder_wait(gate, failure, now):
        gate = replace(gate, failures=gate.failures + is_failure)
        return _parked(gate, ParkedBy.SERVER, failure, now, until_at=_parked_until(gate, failure, now))
    if gate.parked_by is ParkedBy.SERVER and not is_named:
        return gate
    gate = _with_slower_start(replace(gate, failures=gate.failures + is_failure), limits, now)
    # A late word of a call begun long before puts no probe off.
    probe_at = min(gate.probe_at or math.inf, now + probe_interval(gate, now))
    if is_named:
        probe_at = max(probe_at, _parked_until(gate, failure, now))
    is_parked = gate.state is not GateState.FLOWING
    if (
        is_parked
        or failure.reason in CAPACITY_REASONS | ACCOUNT_REASONS
        or gate.failures >= limits.failures_to_park
    ):
        return _parked(gate, ParkedBy.FAILURES, failure, now, probe_at=probe_at)
    return replace(gate, reason=str(failure.reason), message=failure.message, probe_at=probe_at)


def _is_fault_of_task(gate: Gate, failure: CallFailure) -> bool:
    """Whether a refusal says nothing of a flowing upstream: it was parked for this task before.

    Others have been served since. A rate limit is met in turn by many tasks, so one time is not enough.
    """
    if gate.state is not GateState.FLOWING or gate.last_success_at is None or not failure.task_id:
        return False
    last_success_at = gate.last_success_at
    if failure.reason is Reason.RATE_LIMIT:
        return _times(gate.limited_for, failure.task_id, last_success_at) >= LONE_LIMITS
    return (
        failure.reason is Reason.OVERLOADED
        and _times(gate.overloaded_tasks, failure.task_id, last_success_at) > 0
    )


def _times(refused: tuple[OverloadedTask, ...], task_id: str, before: float) -> int:
    return sum(task.task_id == task_id and task.at < before for task in refused)


def _with_failed_task(gate: Gate, failure: CallFailure, now: float) -> Gate:
    """Return the gate knowing which task met the failure."""
    if failure.reason in FAULT_REASONS and (
        failure.task_id not in gate.failed_task_ids or not failure.task_id
    ):
        return replace(gate, failed_task_ids=(*gate.failed_task_ids, failure.task_id)[:2])
    if failure.reason is Reason.OVERLOADED and failure.task_id:
        others = tuple([task for task in gate.overloaded_tasks if task.task_id != failure.task_id])
        kept = (*others, OverloadedTask(failure.task_id, now))[-MAX_OVERLOADED_TASKS:]
        return replace(gate, overloaded_tasks=kept)
    if failure.reason is Reason.RATE_LIMIT and failure.task_id and gate.state is GateState.FLOWING:
        since = math.inf if gate.last_success_at is None else gate.last_success_at
        if all(task.task_id != failure.task_id or task.at < since for task in gate.limited_for):
            limited = (*gate.limited_for, OverloadedTask(failure.task_id, now))
            return replace(gate, limited_for=limited[-MAX_OVERLOADED_TASKS:])
    return gate


def apply_call_success(gate: Gate, now: float) -> Gate:
    """Return the gate after a call that went well and that no end of a run stands for.

    It shows that the upstream answers. Probes open a gate, and its pace is counted by runs.
    """
    gate = replace(gate, failed_task_ids=(), last_success_at=now)
    if gate.state is not GateState.FLOWING or gate.failures == 0:
        return gate
    return replace(gate, failures=0, probe_at=None)


def apply_success(
    gate: Gate, limits: Limits, now: float, *, seconds: float, successes: int, is_probe: bool
) -> Gate:
    """Return the gate after runs that were well, or failed for reasons of their own.

    Args:
        gate: Before.
        limits: Of the upstream.
        now: By the store's clock.
        seconds: How long a run took, for what is typical.
        successes: How many there were.
        is_probe: Whether one of them was sent to try.
    """
    gate = replace(
        gate,
        typical_seconds=0.8 * gate.typical_seconds + 0.2 * seconds,
        rate_limited_since_at=None,
        learned_rate=rate_learning.count_successes(gate.learned_rate, successes, now),
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
    """Return the gate flowing again: slowly at first, if it was parked after many failures."""
    was_long = gate.failures >= limits.failures_to_park and limits.slow_start_seconds > 0
    return Gate(
        since_at=now,
        slow_start_at=now if was_long else None,
        last_opened_at=now,
        overloaded_tasks=gate.overloaded_tasks,
        limited_for=gate.limited_for,
        last_success_at=gate.last_success_at,
        rate_limited_since_at=gate.rate_limited_since_at,
        typical_seconds=gate.typical_seconds,
        reason=gate.reason,
        message=gate.message,
        learned_limits=gate.learned_limits,
        learned_rate=gate.learned_rate,
    )


def open_by_person(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate opened by hand: what headers said of a window that is spent counts no more."""
    gate = open_gate(gate, limits, now)
    learned_limits = tuple(replace(limit, opens_at=None) for limit in gate.learned_limits)
    return replace(gate, rate_limited_since_at=None, learned_limits=learned_limits)


def open_with_key(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate of an upstream after a person opened that of one of its keys: calls go with that."""
    lacked_keys = (
        gate.parked_by not in (None, ParkedBy.PERSON) and gate.reason in CAPACITY_REASONS | ACCOUNT_REASONS
    )
    return open_by_person(gate, limits, now) if lacked_keys else gate


def park_by_person(gate: Gate, now: float, seconds: float | None, why: str) -> Gate:
    """Return the gate parked by hand, for some seconds or until it is opened by hand."""
    return Gate(
        state=GateState.PARKED,
        parked_by=ParkedBy.PERSON,
        message=why,
        since_at=now,
        until_at=None if seconds is None else now + seconds,
        failures=gate.failures,
        overloaded_tasks=gate.overloaded_tasks,
        limited_for=gate.limited_for,
        last_success_at=gate.last_success_at,
        typical_seconds=gate.typical_seconds,
        learned_limits=gate.learned_limits,
        learned_rate=gate.learned_rate,
    )


def request_probe(gate: Gate, now: float) -> Gate:
    """Return the gate so that the next task of the upstream tries whether it works; good, it opens.

    Any task may, also one on its last attempt: the probe counts as long due.
    """
    if gate.state is GateState.FLOWING:
        return gate
    probe_at = now - MAX_LAST_ATTEMPT_SECONDS
    return replace(
        gate, state=GateState.PARKED, parked_by=ParkedBy.FAILURES, until_at=None, probe_at=probe_at
    )


def gate_at(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate as it is now: one whose time has come has opened by itself."""
    if gate.state is GateState.FLOWING or gate.until_at is None or gate.until_at > now:
        return gate
    return open_gate(gate, limits, gate.until_at)


def started_before_reopening(gate: Gate, began_at: float | None) -> bool:
    """Whether a run that began then was sent before the gate last opened."""
    return began_at is not None and gate.last_opened_at is not None and began_at < gate.last_opened_at


def admits_only_probes(gate: Gate) -> bool:
    """Whether only probes may start: it is parked, or two tasks failed since the last good call."""
    return gate.state is not GateState.FLOWING or len(gate.failed_task_ids) > 1


def may_probe(gate: Gate, now: float, *, on_last_attempt: bool = False) -> bool:
    """Whether one task may start to try a held gate.

    Args:
        gate: As it is now.
        now: By the store's clock.
        on_last_attempt: Whether that task has one attempt left: it tries only where nobody else does.
    """
    if not admits_only_probes(gate) or gate.probe_at is None:
        return False
    return gate.probe_at + (last_attempt_delay(gate, now) if on_last_attempt else 0.0) <= now


def last_attempt_delay(gate: Gate, now: float) -> float:
    """Return how long a probe must have been due before a task on its last attempt may be the one."""
    overloaded_tasks = 0.0 if gate.state is GateState.FLOWING else now - gate.since_at
    return min(MAX_LAST_ATTEMPT_SECONDS, max(LAST_ATTEMPT_SECONDS, overloaded_tasks / 2))


def start_probe(gate: Gate, now: float) -> Gate:
    """Return the gate after a probe was sent: the next may follow when this one had time to answer."""
    probe_at = now + _probe_timeout(gate, now)
    if gate.state is GateState.FLOWING:
        return replace(gate, probe_at=probe_at)
    return replace(gate, state=GateState.PROBING, probe_at=probe_at)


def apply_unfinished_probe(gate: Gate, now: float, *, began_at: float) -> Gate:
    """Return the gate after a probe that ended without a word on the upstream: its worker died, say.

    The next may follow at once, but no sooner than probes do. One that ended so late that another may be
    under way by now changes nothing.
    """
    is_last = now - began_at < _probe_timeout(gate, now)
    if gate.probe_at is None or not admits_only_probes(gate) or not is_last:
        return gate
    state = GateState.PARKED if gate.state is GateState.PROBING else gate.state
    probe_at = min(gate.probe_at, max(now, began_at + probe_interval(gate, now)))
    return replace(gate, state=state, probe_at=probe_at)


def probe_interval(gate: Gate, now: float) -> float:
    """Return the seconds between two probes: one at first, more the longer it has been parked."""
    overloaded_tasks = 0.0 if gate.state is GateState.FLOWING else now - gate.since_at
    return min(MAX_PROBE_SECONDS, max(PROBE_SECONDS, PROBE_SHARE * overloaded_tasks))


def _probe_timeout(gate: Gate, now: float) -> float:
    """Return how long a probe has to answer before the next may start."""
    return max(probe_interval(gate, now), 2 * gate.typical_seconds)


def slow_start_share(gate: Gate, limits: Limits, now: float) -> float:
    """Return the part of its pace an upstream may have now: below 1 only during a slow start."""
    if gate.slow_start_at is None or limits.slow_start_seconds <= 0:
        return 1.0
    part = max(0.0, now - gate.slow_start_at) / limits.slow_start_seconds
    return min(1.0, FIRST_SHARE + (1 - FIRST_SHARE) * part)


def free_in_flight(gate: Gate, limits: Limits, in_flight: int) -> int | None:
    """Return how many more runs may be in flight; None: any number.

    An upstream without a limit of requests starts slowly by them instead: two more for each good call.
    """
    rooms = []
    if limits.max_in_flight is not None:
        rooms.append(limits.max_in_flight - in_flight)
    if _ramps_by_successes(gate, limits):
        rooms.append(1 + 2 * gate.successes - in_flight)
    return max(0, min(rooms)) if rooms else None


def limits_in_flight(gate: Gate, limits: Limits) -> bool:
    """Whether there is any need to count what is in flight."""
    return limits.max_in_flight is not None or _ramps_by_successes(gate, limits)


def _ramps_by_successes(gate: Gate, limits: Limits) -> bool:
    return gate.slow_start_at is not None and not any(not window.is_fixed for window in limits.windows)


def _with_slower_start(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return a gate in slow start at half the share it had: a failure there says that it was too fast."""
    if gate.slow_start_at is None:
        return gate
    part = (max(FIRST_SHARE, slow_start_share(gate, limits, now) / 2) - FIRST_SHARE) / (1 - FIRST_SHARE)
    return replace(gate, slow_start_at=now - part * limits.slow_start_seconds, successes=gate.successes // 2)


def _is_placeholder_wait(gate: Gate, failure: CallFailure, now: float) -> bool:
    """Whether a named wait is only a floor, and says nothing of when calls are served again.

    Servers and proxies that are down name the same second all the while, some with a 429. If their gate
    opened to all each time, all would call again, and the parks of their tasks be spent.
    """
    if failure.reason is Reason.OVERLOADED:
        return True
    if failure.reason is not Reason.RATE_LIMIT or gate.rate_limited_since_at is None:
        return False
    believed = max(
        PLACEHOLDER_WAIT_SECONDS, PLACEHOLDER_WAITS * (failure.wait_seconds or 0.0), 2 * gate.typical_seconds
    )
    return gate.parked_by is ParkedBy.FAILURES or now - gate.rate_limited_since_at > believed


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
        gate,
        state=GateState.PARKED,
        parked_by=by,
        reason=str(failure.reason),
        message=failure.message,
        since_at=now if is_new else gate.since_at,
        until_at=until_at,
        probe_at=probe_at,
    )
