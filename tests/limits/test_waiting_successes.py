"""Which gates need not be written at each success."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.limits.gate_rows import can_wait_for_successes
from tidegate.limits.values import Gate, GateState, RefusedTask

NOW = 1_000.0
CALM = Gate(last_success_at=NOW - 0.5)


def test_a_gate_that_only_counts_successes_can_wait_for_the_next_ones() -> None:
    assert can_wait_for_successes(CALM, NOW)


@pytest.mark.parametrize(
    "gate",
    [
        Gate(),
        replace(CALM, last_success_at=NOW - 1),
        replace(CALM, state=GateState.PARKED),
        replace(CALM, failures=1),
        replace(CALM, failed_task_ids=("a",)),
        replace(CALM, slow_start_at=NOW - 10),
        replace(CALM, rate_limited_since_at=NOW - 3),
        replace(CALM, overloaded_tasks=(RefusedTask("a", NOW - 0.4),)),
        replace(CALM, rate_limited_tasks=(RefusedTask("a", NOW - 0.4),)),
    ],
)
def test_a_gate_that_a_success_changes_cannot_wait(gate: Gate) -> None:
    assert not can_wait_for_successes(gate, NOW)


def test_a_refusal_before_the_latest_success_does_not_matter_any_more() -> None:
    assert can_wait_for_successes(replace(CALM, rate_limited_tasks=(RefusedTask("a", NOW - 0.6),)), NOW)
