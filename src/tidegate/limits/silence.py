"""Parks the gate of an upstream that answers nobody although calls are in flight.

Each process watches its own calls (`calls/silence.py`) and reports when none of them was answered for long.
Here the report is compared with what other processes saw. The calls in flight go on; only new ones wait.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.domain.failure import CallFailure, Reason
from tidegate.limits import gate as gates
from tidegate.limits import probes
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, GateState, ParkedBy

NOT_ANSWERING = "not_answering"
"""The reason of a gate that is parked because its upstream answers nobody."""
SHARE_SECONDS = 10.0
"""Successful calls are written to a gate at least this often, so that other processes know of them."""


def is_silent(gate: Gate) -> bool:
    """Whether the gate is parked because its upstream answers nobody."""
    return gate.state is not GateState.FLOWING and gate.reason == NOT_ANSWERING


def park_silent(gate: Gate, failure: CallFailure, limits: Limits, now: float) -> Gate:
    """Return the gate after a process reported that no call was answered for `failure.silent_seconds`.

    Nothing changes if the gate does not flow, or if calls of another process were answered meanwhile. A probe
    or any other answer opens the gate, with a slow start.
    """
    answered_at = max(gate.last_success_at or 0.0, gate.answered_at or 0.0)
    is_answered = now - answered_at < (failure.silent_seconds or 0.0) - SHARE_SECONDS
    if gate.state is not GateState.FLOWING or is_answered:
        return gate
    return replace(
        gate,
        state=GateState.PARKED,
        parked_by=ParkedBy.FAILURES,
        reason=NOT_ANSWERING,
        message=failure.message,
        message_task_id="",
        since_at=now,
        until_at=None,
        probe_at=now + probes.PROBE_SECONDS,
        failures=max(gate.failures, limits.failures_to_park),
    )


def after_answer(gate: Gate, limits: Limits, now: float) -> Gate:
    """Return the gate after any answer of its upstream: open if it was parked because no answer came."""
    return gates.open_gate(gate, limits, now) if is_silent(gate) else gate


def is_answer(failure: CallFailure) -> bool:
    """Whether the upstream itself answered with this failure."""
    return failure.reason not in (Reason.NETWORK, Reason.TIMEOUT)


def keep_cause(before: Gate, after: Gate) -> Gate:
    """Return the gate with its reason kept: the end of a hanging call is not an answer."""
    if not is_silent(before) or after.parked_by is not ParkedBy.FAILURES:
        return after
    return replace(
        after, reason=before.reason, message=before.message, message_task_id=before.message_task_id
    )
