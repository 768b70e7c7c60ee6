"""The default rules are quiet in everyday traffic, and not when something breaks."""

from __future__ import annotations

import pytest
from traffic import DAY, Line, Traffic

WEEK_DAYS = 7.0


def everyday() -> list[Line]:
    """A busy queue, one of slow tasks with large bursts, and one with few tasks."""
    return [
        Line("realtime", tasks_per_second=1.2, run_seconds=2.0, slots=8),
        Line(
            "batch",
            tasks_per_second=0.15,
            run_seconds=12.0,
            slots=6,
            bursts_per_day=4.0,
            failing=0.05,
            dying=0.01,
        ),
        Line("rare", tasks_per_second=0.01, run_seconds=30.0, slots=2, bursts_per_day=1.0, dying=0.03),
    ]


def require_quiet(traffic: Traffic, days: float) -> None:
    """Fail if a queue had more than one false alarm a week."""
    opened = traffic.opened()
    for line in traffic.lines:
        alarms = sum(count for (_, subject), count in opened.items() if subject == line.name)
        assert alarms <= days / WEEK_DAYS, (line.name, opened)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1])
def test_a_week_of_bursty_traffic_raises_at_most_one_alarm_for_each_queue(seed: int) -> None:
    traffic = Traffic(everyday()[1:2], seed)
    traffic.run(WEEK_DAYS)
    require_quiet(traffic, WEEK_DAYS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1, 6))
def test_thirty_days_of_bursty_traffic_raise_at_most_one_alarm_for_each_queue_and_week(seed: int) -> None:
    traffic = Traffic(everyday(), seed)
    traffic.run(30.0)
    print(f"seed {seed}: {dict(traffic.opened())}")
    require_quiet(traffic, 30.0)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("day", [1.0, pytest.param(3.0, marks=pytest.mark.slow)])
def test_a_broken_provider_is_an_alert_within_three_minutes(day: float) -> None:
    """From the second day on, at noon."""
    start = day * DAY + DAY / 2
    line = Line(
        "realtime",
        tasks_per_second=0.3,
        run_seconds=2.0,
        slots=8,
        break_from=start,
        break_until=start + 1_800.0,
    )
    traffic = Traffic([line], seed=1)
    traffic.run(day + 0.6)
    surges = [(at, word) for at, word, each in traffic.sent if each.rule == "dead_surge" and at >= start]
    (opened_at, opened), (_, ended) = surges
    assert (opened, ended) == ("opened", "ended")
    assert opened_at - start <= 180.0


@pytest.mark.timeout(300)
def test_a_provider_that_becomes_slow_is_an_alert_within_half_an_hour() -> None:
    start = 2.5 * DAY
    line = Line("realtime", tasks_per_second=0.3, run_seconds=2.0, slots=8, slow_from=start)
    traffic = Traffic([line], seed=1)
    traffic.run(2.55)
    (opened_at,) = [at for at, word, each in traffic.sent if each.rule == "run_time" and word == "opened"]
    assert 0.0 <= opened_at - start <= 1_800.0
