"""Gates of upstreams that answer nobody: when they park, and that any answer opens them."""

from __future__ import annotations

import pytest

from tidegate.domain.failure import CallFailure, Reason
from tidegate.limits import gate as gates
from tidegate.limits import gate_rows, probes
from tidegate.limits.gate_rows import SuccessfulRuns
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.silence import NOT_ANSWERING
from tidegate.limits.values import Gate, GateRow, GateState

NOW = 1_800_000_000.0
SILENT = CallFailure(Reason.TIMEOUT, message="no call was answered for 60 s", silent_seconds=60.0)


def a_row(last_success_at: float | None = NOW - 70.0) -> GateRow:
    return GateRow(GateKind.UPSTREAM, "u", Limits(), Gate(last_success_at=last_success_at))


def parked() -> GateRow:
    row = gate_rows.apply_failure(a_row(), SILENT, NOW)
    assert (row.gate.state, row.gate.reason) == (GateState.PARKED, NOT_ANSWERING)
    return row


def test_a_silent_upstream_is_probed_after_a_second():
    gate = parked().gate
    assert not probes.may_probe(gate, NOW + 0.9)
    assert probes.may_probe(gate, NOW + 1.0)


def test_a_gate_flows_on_if_another_process_was_answered_meanwhile():
    assert gate_rows.apply_failure(a_row(NOW - 20.0), SILENT, NOW).gate.state is GateState.FLOWING
    answered = gate_rows.apply_failure(a_row(), CallFailure(Reason.SERVER_ERROR), NOW - 5.0)
    assert gate_rows.apply_failure(answered, SILENT, NOW).gate.state is GateState.FLOWING


def test_a_call_that_succeeds_opens_the_gate_with_a_slow_start():
    gate = gate_rows.apply_call_success(parked(), NOW + 5.0).gate
    assert (gate.state, gate.slow_start_at) == (GateState.FLOWING, NOW + 5.0)


def test_a_run_that_succeeds_opens_the_gate():
    gate = gate_rows.apply_success(parked(), NOW + 5.0, SuccessfulRuns(65.0, 1, is_probe=False)).gate
    assert gate.state is GateState.FLOWING


def test_a_500_is_an_answer_too():
    failure = CallFailure(Reason.SERVER_ERROR, task_id="a")
    assert gate_rows.apply_failure(parked(), failure, NOW + 5.0).gate.state is GateState.FLOWING


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.NETWORK])
def test_calls_that_end_without_an_answer_leave_the_gate_parked_for_its_reason(reason):
    row = gate_rows.apply_failure(parked(), CallFailure(reason, task_id="a"), NOW + 5.0)
    row = gate_rows.apply_failure(row, CallFailure(reason, task_id="b"), NOW + 6.0)
    assert (row.gate.state, row.gate.reason) == (GateState.PARKED, NOT_ANSWERING)


def test_a_gate_that_a_person_parked_keeps_its_reason():
    row = GateRow(GateKind.UPSTREAM, "u", Limits(), gates.park_by_person(Gate(), NOW, None, "deploy"))
    assert gate_rows.apply_failure(row, SILENT, NOW).gate == row.gate


def test_successes_of_calls_are_written_every_ten_seconds_only():
    row = gate_rows.apply_call_success(a_row(NOW - 9.0), NOW)
    assert row.gate.last_success_at == NOW - 9.0
    assert gate_rows.apply_call_success(row, NOW + 1.0).gate.last_success_at == NOW + 1.0
