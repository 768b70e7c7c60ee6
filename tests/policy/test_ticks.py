"""The moments at which schedules tick: cron with Debian's rule for clock changes, and intervals."""

from __future__ import annotations

import itertools
import time
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.domain.schedule import ScheduleRule
from tidegate.errors import OptionError
from tidegate.policy.ticks import (
    count_ticks,
    cron_option,
    latest_ticks,
    next_tick,
    preview,
    ticks_after,
    timezone_option,
)

NEW_YORK, BERLIN, LONDON = "America/New_York", "Europe/Berlin", "Europe/London"
LORD_HOWE, ADELAIDE, KOLKATA = "Australia/Lord_Howe", "Australia/Adelaide", "Asia/Kolkata"


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def rule(cron: str, zone: str = "UTC") -> ScheduleRule:
    return ScheduleRule(cron=cron, timezone=zone)


def utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, tz=datetime.fromisoformat("2026-01-01T00:00Z").tzinfo).strftime(
        "%Y-%m-%dT%H:%MZ"
    )


def following(cron: str, zone: str, after: str, count: int) -> list[str]:
    return [utc(tick) for tick in itertools.islice(ticks_after(rule(cron, zone), at(after)), count)]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # a daily time inside the gap of spring fires at the first moment after it
        ("30 2 * * *", NEW_YORK, "2026-03-07T05:00Z", "2026-03-07T07:30Z 2026-03-08T07:00Z 2026-03-09T06:30Z"),
        ("15 2 * * 0", BERLIN, "2026-03-22T23:00Z", "2026-03-29T01:00Z 2026-04-05T00:15Z"),
        ("30 1 * * *", LONDON, "2026-03-28T00:00Z", "2026-03-28T01:30Z 2026-03-29T01:00Z 2026-03-30T00:30Z"),
        # a daily time that comes twice in autumn fires the first time only
        ("30 1 * * *", NEW_YORK, "2026-10-31T04:00Z", "2026-10-31T05:30Z 2026-11-01T05:30Z 2026-11-02T06:30Z"),
        ("15 2 * * *", BERLIN, "2026-10-24T10:00Z", "2026-10-25T00:15Z 2026-10-26T01:15Z"),
        # a first start between the two times of day: nothing until the next day
        ("30 1 * * *", NEW_YORK, "2026-11-01T06:10Z", "2026-11-02T06:30Z"),
        # hourly and half-hourly rules follow real time
        ("0 * * * *", NEW_YORK, "2026-03-08T05:30Z", "2026-03-08T06:00Z 2026-03-08T07:00Z 2026-03-08T08:00Z"),
        ("0 * * * *", NEW_YORK, "2026-11-01T04:30Z", "2026-11-01T05:00Z 2026-11-01T06:00Z 2026-11-01T07:00Z"),
        ("*/30 * * * *", BERLIN, "2026-10-24T23:30Z", "2026-10-25T00:00Z 2026-10-25T00:30Z 2026-10-25T01:00Z"),
        ("*/30 * * * *", BERLIN, "2026-03-29T00:00Z", "2026-03-29T00:30Z 2026-03-29T01:00Z 2026-03-29T01:30Z"),
        # several times of day: two that meet after the gap are one tick
        ("0 1-3 * * *", NEW_YORK, "2026-03-08T05:30Z", "2026-03-08T06:00Z 2026-03-08T07:00Z 2026-03-09T05:00Z"),
        ("0 0-3 * * *", NEW_YORK, "2026-11-01T03:30Z", "2026-11-01T04:00Z 2026-11-01T05:00Z 2026-11-01T07:00Z"),
        # clocks that change by half an hour, and zones half an hour off
        ("15 2 * * *", LORD_HOWE, "2026-10-02T20:00Z", "2026-10-03T15:30Z 2026-10-04T15:15Z"),
        ("45 1 * * *", LORD_HOWE, "2026-04-03T20:00Z", "2026-04-04T14:45Z 2026-04-05T15:15Z"),
        ("30 2 * * *", ADELAIDE, "2026-10-02T20:00Z", "2026-10-03T16:30Z 2026-10-04T16:00Z"),
        ("0 7 * * *", KOLKATA, "2026-03-29T00:00Z", "2026-03-29T01:30Z 2026-03-30T01:30Z"),
        # days away from the change stay right
        ("0 20 * * *", "Europe/Paris", "2022-10-30T00:00+02:00", "2022-10-30T19:00Z 2022-10-31T19:00Z"),
        ("0 0 * * *", "Europe/Warsaw", "2017-03-26T00:00+01:00", "2017-03-26T22:00Z 2017-03-27T22:00Z"),
        ("0 0 * * *", "Europe/Warsaw", "2017-10-29T00:00+02:00", "2017-10-29T23:00Z 2017-10-30T23:00Z"),
        # leap day; and day of the month or day of the week
        ("0 0 29 2 *", "UTC", "2025-03-01T00:00Z", "2028-02-29T00:00Z 2032-02-29T00:00Z"),
        ("0 0 13 * 5", "UTC", "2026-02-01T00:00Z", "2026-02-06T00:00Z 2026-02-13T00:00Z 2026-02-20T00:00Z"),
    ],
)  # fmt: skip
def test_cron_ticks_by_the_stated_rule(cron: str, zone: str, after: str, expected: str) -> None:
    assert following(cron, zone, after, len(expected.split())) == expected.split()


@settings(max_examples=60, deadline=None)
@given(
    cron=st.sampled_from(["30 2 * * *", "0 1-3 * * *", "15 */2 * * *", "*/20 * * * *", "45 1 * * 0,3"]),
    zone=st.sampled_from([NEW_YORK, BERLIN, LORD_HOWE, ADELAIDE, "UTC", "Africa/Cairo"]),
    start=st.integers(1_760_000_000, 1_800_000_000),
)
def test_each_tick_is_found_from_the_one_before_it(cron: str, zone: str, start: int) -> None:
    each = rule(cron, zone)
    ticks = list(itertools.islice(ticks_after(each, start), 12))

    one_by_one = [float(start)]
    while len(one_by_one) <= len(ticks):
        found = next_tick(each, one_by_one[-1])
        assert found is not None
        one_by_one.append(found)

    assert one_by_one[1:] == ticks
    assert ticks == sorted(set(ticks))
    assert latest_ticks(each, after=start, until=ticks[-1], count=5) == ticks[-5:]
    assert count_ticks(each, after=start, until=ticks[-1], most=100) == 12


def test_every_date_of_a_year_has_one_firing_of_a_daily_time() -> None:
    for zone in (NEW_YORK, BERLIN, LORD_HOWE, ADELAIDE):
        for cron in ("30 2 * * *", "30 1 * * *", "15 2 * * *"):
            local = [tick.local.date() for tick in preview(rule(cron, zone), at("2026-01-01T12:00Z"), 400)]
            assert len(set(local)) == 400, (zone, cron)


def test_a_moment_inside_a_second_finds_the_tick_at_its_end() -> None:
    assert next_tick(rule("* * * * *"), 59.25) == 60.0
    assert next_tick(rule("* * * * *"), 60.0) == 120.0


def test_an_interval_ticks_at_its_multiples_since_1970() -> None:
    every = ScheduleRule(every_seconds=90)
    assert list(itertools.islice(ticks_after(every, 0.0), 3)) == [90.0, 180.0, 270.0]
    assert next_tick(every, 89.9) == 90.0
    assert latest_ticks(every, after=0.0, until=1_000.0, count=1) == [990.0]
    assert count_ticks(every, after=90.0, until=1_000.0, most=100) == 10


def test_the_latest_tick_of_a_rare_rule_is_found() -> None:
    leap = rule("0 0 29 2 *")
    assert [utc(tick) for tick in latest_ticks(leap, after=0.0, until=at("2027-06-01T00:00Z"), count=1)] == [
        "2024-02-29T00:00Z"
    ]
    assert latest_ticks(leap, after=at("2025-01-01T00:00Z"), until=at("2027-06-01T00:00Z"), count=1) == []


# --- preview ---------------------------------------------------------------------------------------------


def marks(cron: str, zone: str, after: str, count: int) -> list[str]:
    return [tick.mark for tick in preview(rule(cron, zone), at(after), count)]


def test_a_preview_marks_a_time_that_the_clocks_skip() -> None:
    before, changed, later = marks("30 2 * * *", BERLIN, "2026-03-27T12:00Z", 3)
    assert (before, later) == ("", "")
    assert "does not exist on this date" in changed
    assert "from UTC+01:00 to UTC+02:00" in changed


def test_a_preview_marks_a_time_that_comes_twice() -> None:
    fixed = marks("30 2 * * *", BERLIN, "2026-10-24T12:00Z", 2)
    assert "comes twice" in fixed[0]
    assert "the first time only" in fixed[0]
    assert "from UTC+02:00 to UTC+01:00" in fixed[1]
    hourly = marks("30 * * * *", BERLIN, "2026-10-25T00:00Z", 3)
    assert ["both times" in mark for mark in hourly] == [True, True, False]


def test_a_preview_away_from_changes_has_no_marks() -> None:
    assert set(marks("0 7 * * *", BERLIN, "2026-06-01T00:00Z", 30)) == {""}
    assert set(marks("*/5 * * * *", "UTC", "2026-03-29T00:00Z", 30)) == {""}


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("61 * * * *", "the minute is wrong"),
        ("0 24 * * *", "the hour is wrong"),
        ("0 0 32 * *", "the day of the month is wrong"),
        ("0 0 * 13 *", "the month is wrong"),
        ("0 0 * * 8", "the day of the week is wrong"),
        ("*/0 * * * *", "the minute is wrong"),
        ("5-1 * * * *", "the minute is wrong"),
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "every 10s"),
        ("@reboot", "five fields"),
        ("every day", "five fields"),
        ("0 0 30 2 *", "a date that exists"),
        ("0 0 31 4 *", "a date that exists"),
        ("0 0 31 2,4,6,9,11 *", "a date that exists"),
        ("٠ 0 * * *", "five fields"),
    ],
)
def test_a_wrong_cron_expression_is_refused_with_what_is_wrong(cron: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        cron_option("schedule", cron)
    assert says in caught.value.fix
    assert caught.value.option == "schedule"


def test_an_impossible_date_is_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(OptionError):
        cron_option("schedule", "0 0 30 2 *")
    assert time.process_time() - began < 0.1


def test_words_and_blanks_are_stored_as_five_fields() -> None:
    assert cron_option("schedule", "@daily") == "0 0 * * *"
    assert cron_option("schedule", "  0   7 * * mon-fri ") == "0 7 * * MON-FRI"


@pytest.mark.parametrize("zone", ["Mars/Base", "UTC+2", "../../etc/passwd", "", "localtime", "posix/UTC", 5])
def test_a_wrong_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(OptionError) as caught:
        timezone_option("timezone", zone)
    assert "Europe/Berlin" in caught.value.fix


def test_a_time_zone_is_written_with_its_capitals_on_every_platform() -> None:
    with pytest.raises(OptionError) as caught:
        timezone_option("timezone", "europe/berlin")
    assert caught.value.fix == 'write "Europe/Berlin"'
    assert timezone_option("timezone", "EST") == "EST"


def test_a_time_zone_that_only_the_package_of_zones_has_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.policy.ticks.TZPATH", ())
    assert timezone_option("timezone", "Europe/Berlin") == "Europe/Berlin"
