"""Decides whether a single call that no claim has charged may start, and when."""

from __future__ import annotations

from tidegate.domain.failure import Reason
from tidegate.domain.usage import NOTHING_EXPECTED, ExpectedTokens
from tidegate.limits import gate as gates
from tidegate.limits import probes, tokens
from tidegate.limits.admission import GateCheck
from tidegate.limits.values import CallSlot, GateRow


def take_call_slot(
    row: GateRow,
    *,
    max_wait_seconds: float,
    now: float,
    in_flight: int = 0,
    on_last_attempt: bool = False,
    expected: ExpectedTokens = NOTHING_EXPECTED,
) -> tuple[CallSlot, GateRow]:
    """Return the slot of one call that no claim has charged, and the gate's row after it.

    The slot is refused, and nothing is charged, if the gate is closed and another call is probing it, if the
    slot is further away than the caller can wait, or if `max_in_flight` calls are running.

    Args:
        row: The gate's row.
        max_wait_seconds: How long the caller can wait.
        now: The current time by the store's clock.
        in_flight: The number of runs and calls in flight; 0 if the call's own run is already counted for it.
        on_last_attempt: Whether a failure would cost the caller's task its last attempt. Like a run on its
            last attempt, such a call probes a gate only if a probe has been due for long.
        expected: What is known of the call's tokens.
    """
    max_in_flight = row.limits.max_in_flight
    gate = gates.gate_at(row.gate, row.limits, now)
    needed = tokens.expected_tokens(gate.token_estimates, expected)
    gate_check = GateCheck(row, 0, now).with_tokens(needed)
    wait, flows = gate_check.wait(), not probes.admits_only_probes(gate)
    may_go = flows or probes.may_probe(gate, now, on_last_attempt=on_last_attempt)
    if on_last_attempt and not flows and wait is not None and gate.probe_at is not None:
        wait = max(0.0, gate.probe_at + probes.last_attempt_delay(gate, now) - now)
    if may_go and max_in_flight is not None and in_flight >= max_in_flight:
        return CallSlot(False, gate.typical_seconds, str(Reason.RATE_LIMIT), is_at_capacity=True), row
    if may_go and wait is not None and wait <= max_wait_seconds:
        admitted = gate_check.admit()
        slot = CallSlot(True, admitted.wait_seconds, is_probe=admitted.is_probe, charged=admitted.charged)
        return slot, gate_check.row
    reason = str(Reason.RATE_LIMIT) if flows else gate.reason
    opens_by_probe = not flows and gate.probe_at is not None
    message = "" if flows else gate.message
    return CallSlot(False, wait, reason, opens_by_probe=opens_by_probe, message=message), row
