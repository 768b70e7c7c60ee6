"""Limits of tokens: estimates per function, settlement with real usage, and how much of a quota they use."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.domain.spec import Window
from tidegate.domain.usage import CallTokens, Dimension, ExpectedTokens, Tokens, TokenUse
from tidegate.limits import token_bucket
from tidegate.limits.admission import GateCheck
from tidegate.limits.options import make_limits
from tidegate.limits.settings import GateKind
from tidegate.limits.tokens import (
    FIRST_ESTIMATE,
    MAX_FUNCTIONS,
    estimated_tokens,
    expected_tokens,
    settle_tokens,
)
from tidegate.limits.values import GateRow, TokenBucket

START = 1_800_000_000.0
MINUTE = Window("tokens_per_minute", 60_000, 60.0, dimension=Dimension.TOKENS)


def a_row(**limits: int) -> GateRow:
    return GateRow(GateKind.UPSTREAM, "u", make_limits(**limits))  # type: ignore[arg-type]


def a_use(function: str, charged: Tokens, used: Tokens) -> TokenUse:
    return TokenUse(function, charged, CallTokens(used, used))


def test_a_function_is_estimated_by_its_own_calls_and_a_new_one_by_those_of_the_others():
    row = settle_tokens(
        a_row(tokens_per_minute=60_000),
        [a_use("f", Tokens(), Tokens(100, 10)), a_use("f", Tokens(), Tokens(300, 30)),
         a_use("g", Tokens(), Tokens(1_000, 100))],
        START,
    )  # fmt: skip
    estimates = row.gate.token_estimates
    assert estimated_tokens(estimates, "f") == Tokens(200, 20)
    assert estimated_tokens(estimates, "g") == Tokens(1_000, 100)
    assert estimated_tokens(estimates, "new") == Tokens(600, 60)
    assert estimated_tokens((), "new") == FIRST_ESTIMATE


def test_a_request_that_states_its_size_is_estimated_by_that():
    usual = settle_tokens(a_row(), [a_use("f", Tokens(), Tokens(100, 50))], START).gate.token_estimates
    assert expected_tokens(usual, ExpectedTokens("f", input=900)) == Tokens(900, 50)
    assert expected_tokens(usual, ExpectedTokens("f", input=900, most_output=20)) == Tokens(900, 20)
    assert expected_tokens(usual, ExpectedTokens("f", output=400, most_output=400)) == Tokens(100, 400)


def test_only_so_many_functions_are_remembered_those_that_called_last():
    row = a_row(tokens_per_minute=60_000)
    for number in range(MAX_FUNCTIONS + 5):
        row = settle_tokens(row, [a_use(f"f{number}", Tokens(), Tokens(number, 0))], START + number)
    known = {each.function for each in row.gate.token_estimates}
    assert known == {f"f{number}" for number in range(5, MAX_FUNCTIONS + 5)}


@given(st.integers(0, 100_000), st.integers(-200_000, 200_000), st.floats(0.0, 300.0))
def test_settling_never_gives_back_slots_of_the_past(charged: int, difference: int, later: float):
    before = token_bucket.charge(MINUTE, TokenBucket(), START, amount=charged)
    after = token_bucket.settle(MINUTE, before, START + later, difference, charged_at=START)
    assert after.next_at >= min(before.next_at, START + later)
    if difference >= 0:
        assert after.next_at == pytest.approx(before.next_at + difference / 1_000)


@given(
    st.lists(
        st.tuples(st.integers(1, 9_000), st.integers(1, 9_000), st.floats(0, 40)), min_size=1, max_size=20
    )
)
def test_a_fixed_window_never_starts_more_than_it_has(calls: list[tuple[int, int, float]]):
    window, bucket, now = replace(MINUTE, amount=10_000, is_fixed=True), TokenBucket(), START
    started: dict[int, int] = {}
    for charged, used, gap in calls:
        now += gap
        at = token_bucket.next_slot_at(window, bucket, now, amount=charged)
        bucket = token_bucket.charge(window, bucket, at, amount=charged)
        bucket = token_bucket.settle(window, bucket, at, min(used, charged) - charged, charged_at=at)
        started[int(at // 60)] = started.get(int(at // 60), 0) + min(used, charged)
        now = max(now, at)
    assert max(started.values()) <= 10_000


@pytest.mark.parametrize("seed", range(5))
def test_calls_of_very_different_size_use_the_quota_and_meet_no_429(seed: int):
    """100 to 8,000 tokens a call, log-uniform; claims every 0.1 s; the provider holds 10 s of its quota."""
    rng, per_second = random.Random(seed), 30_000.0
    row, seconds = a_row(tokens_per_minute=round(60 * per_second)), 120.0
    level, filled_at, spent, refused, calls = 10 * per_second, START, 0.0, 0, 0
    events: list[tuple[float, int, TokenUse | None, int]] = []
    now, number = START, 0
    while now < START + seconds:
        check = GateCheck(row, 0, now).for_function("f")
        while check.is_open:
            admitted, number = check.admit(), number + 1
            size = round(math.exp(rng.uniform(math.log(100), math.log(8_000))))
            at = now + admitted.wait_seconds
            assert admitted.charged is not None
            used = Tokens(size - size // 4, size // 4)
            heapq.heappush(events, (at, number, None, size))
            heapq.heappush(events, (at + 1.0, number, a_use("f", admitted.charged, used), size))
        row, now = check.row, now + 0.1
        while events and events[0][0] <= now:
            at, _, use, size = heapq.heappop(events)
            if use is not None:
                row = settle_tokens(row, [use], at)
                continue
            level, filled_at = min(10 * per_second, level + (at - filled_at) * per_second), at
            calls += 1
            if level < size:
                refused += 1
            else:
                level, spent = level - size, spent + size
    assert spent / (per_second * seconds) >= 0.97
    assert refused / calls <= 0.001


def test_a_count_of_tokens_that_cannot_be_right_changes_nothing():
    row = a_row(tokens_per_minute=60_000)
    assert settle_tokens(row, [a_use("f", Tokens(500, 500), Tokens(10**9, 0))], START) == row
