"""When one task may test whether a closed gate works again: its probes, and the time between them."""

from __future__ import annotations

from dataclasses import replace

from tidegate.limits.values import Gate, GateState

PROBE_SECONDS = 1.0
"""The least time between two probes."""
PROBE_SHARE = 0.02
"""The time between two probes grows to this share of the time the gate has been parked."""
MAX_PROBE_SECONDS = 10.0
"""The most time between two probes."""
LAST_ATTEMPT_SECONDS = 10.0
MAX_LAST_ATTEMPT_SECONDS = 600.0
"""A task on its last attempt probes a gate only if other tasks could have taken the probe and did not. The
other tasks have half of the time since the gate was parked, at least 10 s and at most 600 s. So only a few
last attempts are spent on an outage, at growing intervals, and the gate stays closed for at most about twice
the outage."""


def admits_only_probes(gate: Gate) -> bool:
    """Whether only probes may start: the gate is parked, or two tasks failed since the last success."""
    return gate.state is not GateState.FLOWING or len(gate.failed_task_ids) > 1


def may_probe(gate: Gate, now: float, *, on_last_attempt: bool = False) -> bool:
    """Whether one task may start now as a probe.

    Args:
        gate: The current gate, from `gate_at`.
        now: The current time by the store's clock.
        on_last_attempt: Whether the task has one attempt left. Such a task probes only if no other does.
    """
    if not admits_only_probes(gate) or gate.probe_at is None:
        return False
    return gate.probe_at + (last_attempt_delay(gate, now) if on_last_attempt else 0.0) <= now


def last_attempt_delay(gate: Gate, now: float) -> float:
    """Return how many seconds a probe must be overdue before a task on its last attempt may be the probe."""
    return min(MAX_LAST_ATTEMPT_SECONDS, max(LAST_ATTEMPT_SECONDS, _parked_seconds(gate, now) / 2))


def start_probe(gate: Gate, now: float) -> Gate:
    """Return the gate after a probe was sent. The next probe may follow once this one had time to finish."""
    probe_at = now + _probe_timeout(gate, now)
    if gate.state is GateState.FLOWING:
        return replace(gate, probe_at=probe_at)
    return replace(gate, state=GateState.PROBING, probe_at=probe_at)


def apply_unfinished_probe(gate: Gate, now: float, *, began_at: float) -> Gate:
    """Return the gate after a probe that ended without a result, for example because its worker died.

    The next probe may start at once, but still one probe interval after this one began. If this probe ended
    so late that another may already run, nothing changes.
    """
    is_last = now - began_at < _probe_timeout(gate, now)
    if gate.probe_at is None or not admits_only_probes(gate) or not is_last:
        return gate
    state = GateState.PARKED if gate.state is GateState.PROBING else gate.state
    probe_at = min(gate.probe_at, max(now, began_at + probe_interval(gate, now)))
    return replace(gate, state=state, probe_at=probe_at)


def probe_interval(gate: Gate, now: float) -> float:
    """Return the seconds between two probes: 1 at first, growing to 10 while the gate is parked."""
    return min(MAX_PROBE_SECONDS, max(PROBE_SECONDS, PROBE_SHARE * _parked_seconds(gate, now)))


def _parked_seconds(gate: Gate, now: float) -> float:
    return 0.0 if gate.state is GateState.FLOWING else now - gate.since_at


def _probe_timeout(gate: Gate, now: float) -> float:
    """Return how many seconds a probe has to finish before the next one may start."""
    return max(probe_interval(gate, now), 2 * gate.typical_seconds)
