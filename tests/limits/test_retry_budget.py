"""The retry budget: no window exceeds its amount, and a part is reserved for urgent retries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.spec import Window
from tidegate.limits.promotion import Promotion
from tidegate.limits.retry_budget import RetryBudget, per_minute, used_retries
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import GateRow

NOW = 1_800_000_000.0


def spent(limits: Limits, steps: list[tuple[float, int]], *, urgent: bool = False) -> list[float]:
    """The moments at which re-runs leave when so many ask after each gap."""
    row, now, left = GateRow(GateKind.SYSTEM, "", limits), NOW, []
    for gap, asking in steps:
        now += gap
        budget = RetryBudget(row, now)
        for _ in range(asking):
            if budget.wait(urgent=urgent) == 0:
                budget.spend(urgent=urgent)
                left.append(now)
        row = budget.row
    return left


@given(
    amount=st.integers(1, 600),
    window=st.sampled_from([1.0, 10.0, 60.0]),
    steps=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 50)), max_size=60),
    urgent=st.booleans(),
)
def test_no_window_lets_out_more_retries_than_the_budget(amount, window, steps, urgent):
    limits = Limits(retries_per_minute=amount * 60 / window, retry_window_seconds=window)
    left = spent(limits, steps, urgent=urgent)
    for at in left:
        assert sum(1 for other in left if at <= other < at + window * 0.9999) <= amount


def test_a_burst_of_failures_uses_most_of_the_budget_and_not_all_at_once():
    limits = Limits(retries_per_minute=1_200.0, retry_window_seconds=1.0)
    left = spent(limits, [(0.01, 100)] * 1_000, urgent=True)
    assert 150 <= len(left) <= 200
    assert max(left.count(at) for at in left) <= 2


def test_a_part_of_the_budget_is_reserved_for_urgent_retries():
    limits = Limits(retries_per_minute=600.0)
    plain = len(spent(limits, [(0.1, 100)] * 600))
    urgent = len(spent(limits, [(0.1, 100)] * 600, urgent=True))
    assert plain == pytest.approx(0.8 * urgent, rel=0.05)


def test_the_default_budget_of_an_upstream_is_a_fifth_of_its_requests():
    minute = Window("requests_per_minute", 500, 60.0)
    upstream = GateRow(GateKind.UPSTREAM, "u", Limits(windows=(minute,)))
    assert per_minute(upstream) == 100
    assert per_minute(GateRow(GateKind.UPSTREAM, "u", Limits((minute,), retries_per_minute=7.0))) == 7
    assert per_minute(GateRow(GateKind.UPSTREAM, "u")) is None
    assert per_minute(GateRow(GateKind.SYSTEM, "")) == 600


def test_postponed_retries_are_spread_out():
    budget = RetryBudget(GateRow(GateKind.SYSTEM, "", Limits(retries_per_minute=60.0)), NOW)
    while budget.wait(urgent=False) == 0:
        budget.spend(urgent=False)
    waits = [budget.postpone(urgent=False) for _ in range(10)]
    assert waits == sorted(set(waits))
    assert waits[-1] - waits[0] >= 8.0


def test_a_retry_spends_the_budget_of_its_upstream_and_of_the_system():
    rows = [
        GateRow(GateKind.SYSTEM, "", Limits(retries_per_minute=60.0)),
        GateRow(GateKind.UPSTREAM, "u", Limits(retries_per_minute=10.0)),
    ]
    plan = Promotion(rows, NOW)
    assert plan.charge_or_hold("u", urgent=True) is None
    held = plan.charge_or_hold("u", urgent=True)
    assert held is not None
    assert held.by == "upstream"
    assert plan.charge_or_hold("other", urgent=True) is None
    assert {row.name: used_retries(row, NOW) for row in plan.changed()} == {"": 2, "u": 1}
