"""What becomes of due ticks: catch-up after an outage, overlap with earlier tasks, and ticks that are too late."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.schedule import CatchUp, Overlap, ScheduleRule, TickOutcome
from tidegate.policy.due_ticks import MOST_COUNTED, decide_due_ticks
from tidegate.policy.ticks import ticks_after

DOWN = datetime.fromisoformat("2026-06-10T02:30:30Z").timestamp()
BACK = datetime.fromisoformat("2026-06-10T03:47:30Z").timestamp()
FIRST = DOWN + 30.0


def minutely(**changes: Any) -> ScheduleRule:
    return ScheduleRule(**{"cron": "* * * * *", "overlap": Overlap.ALLOW} | changes)


def decided(
    rule: ScheduleRule, next_at: float | None, now: float, **more: Any
) -> list[tuple[str, str, float, int]]:
    """Return (outcome, reason, minutes after 02:30, ticks) of each decided tick."""
    decision = decide_due_ticks(rule, next_at, now, **{"is_busy": False} | more)
    return [
        (tick.outcome.value, tick.reason, (tick.at - DOWN + 30.0) / 60.0, tick.ticks)
        for tick in decision.ticks
    ]


# --- on time ---------------------------------------------------------------------------------------------


def test_a_tick_that_is_due_fires() -> None:
    decision = decide_due_ticks(minutely(), FIRST, FIRST + 0.4, is_busy=False)

    assert [(tick.outcome, tick.reason, tick.at) for tick in decision.ticks] == [("fired", "", FIRST)]
    assert decision.next_at == FIRST + 60.0


def test_before_its_moment_nothing_is_decided() -> None:
    decision = decide_due_ticks(minutely(), FIRST, FIRST - 0.1, is_busy=False)

    assert (decision.ticks, decision.next_at) == ((), FIRST)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_short_takeover_loses_no_tick_with_any_policy(catch_up: CatchUp) -> None:
    rule = ScheduleRule(every_seconds=1, overlap=Overlap.ALLOW, catch_up=catch_up)

    decision = decide_due_ticks(rule, FIRST, FIRST + 9.5, is_busy=False)

    assert [tick.at - FIRST for tick in decision.ticks] == [float(second) for second in range(10)]
    assert {tick.outcome for tick in decision.ticks} == {TickOutcome.FIRED}


# --- catch-up --------------------------------------------------------------------------------------------


def test_none_records_what_was_missed_and_waits_for_the_next_tick() -> None:
    rule = minutely(catch_up=CatchUp.NONE)

    assert decided(rule, FIRST, BACK) == [("missed", "catch-up", 1.0, 77)]
    assert decide_due_ticks(rule, FIRST, BACK, is_busy=False).next_at == BACK + 30.0


def test_one_fires_the_latest_late_with_its_planned_moment() -> None:
    rule = minutely(catch_up=CatchUp.ONE)

    assert decided(rule, FIRST, BACK) == [("missed", "catch-up", 1.0, 76), ("fired", "late", 77.0, 1)]


def test_one_fires_a_daily_tick_that_was_missed() -> None:
    daily = ScheduleRule(cron="0 3 * * *")

    assert decided(daily, DOWN + 1_770.0, BACK) == [("fired", "late", 30.0, 1)]


def test_one_makes_nothing_up_when_a_tick_is_on_time() -> None:
    rule = minutely(catch_up=CatchUp.ONE)

    assert decided(rule, FIRST, FIRST + 120.5) == [("missed", "catch-up", 1.0, 2), ("fired", "", 3.0, 1)]


def test_all_fires_each_in_order() -> None:
    rule = minutely(catch_up=CatchUp.ALL)

    assert decided(rule, FIRST, BACK) == [("fired", "late", float(minute), 1) for minute in range(1, 78)]


def test_all_keeps_the_latest_up_to_its_limit_and_records_the_cut() -> None:
    rule = minutely(catch_up=CatchUp.ALL, catch_up_limit=10)

    assert decided(rule, FIRST, BACK) == [
        ("missed", "limit", 1.0, 67),
        *(("fired", "late", float(minute), 1) for minute in range(68, 78)),
    ]


def test_all_makes_up_its_window_only() -> None:
    rule = minutely(catch_up=CatchUp.ALL, catch_up_window=600.0, catch_up_limit=4)

    assert decided(rule, FIRST, BACK) == [
        ("missed", "window", 1.0, 67),
        ("missed", "limit", 68.0, 6),
        *(("fired", "late", float(minute), 1) for minute in range(74, 78)),
    ]


def test_all_with_nothing_in_its_window_records_everything_as_missed() -> None:
    daily = ScheduleRule(cron="0 3 * * *", catch_up=CatchUp.ALL, catch_up_window=60.0, overlap=Overlap.QUEUE)

    assert decided(daily, DOWN + 1_770.0, BACK) == [("missed", "window", 30.0, 1)]


def test_a_long_outage_is_counted_up_to_a_bound() -> None:
    month = DOWN + 30 * 86_400.0

    assert decided(minutely(catch_up=CatchUp.NONE), FIRST, month) == [
        ("missed", "catch-up", 1.0, MOST_COUNTED)
    ]


def test_a_tick_later_than_allowed_is_skipped_and_recorded() -> None:
    daily = ScheduleRule(cron="0 3 * * *", not_later_than=1_800.0)

    assert decided(daily, DOWN + 1_770.0, BACK) == [("skipped", "too late", 30.0, 1)]
    assert decided(daily, DOWN + 1_770.0, BACK - 1_100.0) == [("fired", "late", 30.0, 1)]


@settings(max_examples=150, deadline=None)
@given(
    every=st.sampled_from([1, 7, 60, 3_600]),
    gap=st.integers(0, 160_000).map(lambda quarters: quarters / 4),
    catch_up=st.sampled_from(list(CatchUp)),
    limit=st.integers(1, 120),
    window=st.floats(1.0, 50_000.0),
    late=st.none() | st.floats(1.0, 10_000.0),
    overlap=st.sampled_from(list(Overlap)),
    is_busy=st.booleans(),
)
def test_every_due_tick_is_decided_once(
    every: int,
    gap: float,
    catch_up: CatchUp,
    limit: int,
    window: float,
    late: float | None,
    overlap: Overlap,
    is_busy: bool,
) -> None:
    rule = ScheduleRule(
        every_seconds=every,
        catch_up=catch_up,
        catch_up_limit=limit,
        catch_up_window=window,
        overlap=overlap,
        not_later_than=late,
    )
    first = next(ticks_after(rule, DOWN))
    now = first + gap

    decision = decide_due_ticks(rule, first, now, is_busy=is_busy)

    covered: list[float] = []
    for tick in decision.ticks:
        number = round((tick.until_at - tick.at) / every) + 1
        assert tick.ticks == min(number, MOST_COUNTED)
        covered += [tick.at + every * step for step in range(number)]
    due = [first + every * step for step in range(int(gap // every) + 1)]
    assert covered == due
    assert decision.next_at == due[-1] + every
    fired = [tick for tick in decision.ticks if tick.outcome is TickOutcome.FIRED]
    if overlap is not Overlap.ALLOW:
        assert len(fired) <= (0 if is_busy else 1)


# --- overlap ---------------------------------------------------------------------------------------------


def test_skip_fires_no_tick_while_an_earlier_task_is_unfinished() -> None:
    rule = minutely(overlap=Overlap.SKIP)

    assert decided(rule, FIRST, FIRST, is_busy=True) == [("skipped", "overlap", 1.0, 1)]
    assert decided(rule, FIRST, FIRST, is_busy=False) == [("fired", "", 1.0, 1)]


def test_allow_fires_although_an_earlier_task_is_unfinished() -> None:
    assert decided(minutely(), FIRST, FIRST, is_busy=True) == [("fired", "", 1.0, 1)]


def test_queue_lets_one_tick_wait_and_skips_the_next() -> None:
    rule = minutely(overlap=Overlap.QUEUE)

    assert decided(rule, FIRST, FIRST, is_busy=True) == [("queued", "overlap", 1.0, 1)]
    assert decided(rule, FIRST + 60.0, FIRST + 60.0, is_busy=True, queued=[FIRST]) == [
        ("skipped", "overlap", 2.0, 1)
    ]


def test_queue_releases_the_waiting_tick_first() -> None:
    rule = minutely(overlap=Overlap.QUEUE)

    assert decided(rule, FIRST + 60.0, FIRST + 30.0, queued=[FIRST]) == [("fired", "overlap", 1.0, 1)]
    assert decided(rule, FIRST + 60.0, FIRST + 60.0, queued=[FIRST]) == [
        ("fired", "overlap", 1.0, 1),
        ("queued", "overlap", 2.0, 1),
    ]


def test_queue_with_all_lets_as_many_wait_as_it_makes_up() -> None:
    rule = minutely(catch_up=CatchUp.ALL, overlap=Overlap.QUEUE, catch_up_limit=5)

    assert [(outcome, minute) for outcome, _, minute, _ in decided(rule, FIRST, BACK, is_busy=True)] == [
        ("missed", 1.0),
        *(("queued", float(minute)) for minute in range(73, 78)),
    ]


def test_a_waiting_tick_stays_as_it_is_while_the_task_is_unfinished() -> None:
    rule = minutely(overlap=Overlap.QUEUE)

    assert decided(rule, FIRST + 60.0, FIRST + 30.0, is_busy=True, queued=[FIRST]) == []


def test_after_a_change_to_allow_waiting_ticks_fire() -> None:
    rule = minutely(overlap=Overlap.ALLOW)

    assert decided(rule, FIRST + 60.0, FIRST + 30.0, is_busy=True, queued=[FIRST]) == [
        ("fired", "overlap", 1.0, 1)
    ]
