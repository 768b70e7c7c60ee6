"""When something that happens once a day is due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import OptionError
from tidegate.policy.daily import DailyTime, daily_time_option


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("time", "now", "day", "due"),
    [
        (DailyTime(8), "2026-06-10T07:59:59", "2026-06-09", "2026-06-09T08:00:00"),
        (DailyTime(8), "2026-06-10T08:00:00", "2026-06-10", "2026-06-10T08:00:00"),
        (DailyTime(0, 30, "Europe/Berlin"), "2026-06-10T22:29:00", "2026-06-10", "2026-06-09T22:30:00"),
        (DailyTime(0, 30, "Europe/Berlin"), "2026-06-10T22:31:00", "2026-06-11", "2026-06-10T22:30:00"),
        (DailyTime(2, 30, "Europe/Berlin"), "2026-03-29T12:00:00", "2026-03-29", "2026-03-29T01:30:00"),
        (DailyTime(2, 30, "Europe/Berlin"), "2026-10-25T00:31:00", "2026-10-25", "2026-10-25T00:30:00"),
        (DailyTime(23, 59, "Pacific/Apia"), "2026-06-10T10:58:00", "2026-06-09", "2026-06-09T10:59:00"),
    ],
)
def test_a_day_is_due_at_its_time_in_its_zone(time: DailyTime, now: str, day: str, due: str) -> None:
    assert time.last_due(at(now)) == (day, at(due))


@given(
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]),
    st.floats(at("2012-01-02T00:00:00"), at("2035-01-01T00:00:00")),
)
def test_the_last_due_moment_is_less_than_a_day_and_some_hours_ago(
    hour: int, minute: int, zone: str, now: float
) -> None:
    _, due = DailyTime(hour, minute, zone).last_due(now)
    assert 0 <= now - due <= 26 * 3600


@pytest.mark.parametrize(
    ("time", "zone"), [("24:00", "UTC"), ("8", "UTC"), ("08:60", "UTC"), ("", "UTC"), ("08:00", "Berlin")]
)
def test_a_wrong_time_or_zone_is_refused(time: str, zone: str) -> None:
    with pytest.raises(OptionError):
        daily_time_option("daily_summary", time, zone)
    assert daily_time_option("daily_summary", "8:05", "Europe/Berlin") == DailyTime(8, 5, "Europe/Berlin")
