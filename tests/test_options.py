"""Good values are taken, bad ones named with a fix."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidegate import NO_LIMIT, OptionError, Priority
from tidegate.domain.readers import instant_from_text, instant_option, limit_option, seconds_option
from tidegate.options import ENQUEUE_OPTIONS, EnqueueOptions, read_options
from tidegate.store.rows import NewTask
from tidegate.web.request_schemas import SubmitRequest

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (datetime(2026, 6, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-06-01T10:00:00+00:00"),
        (datetime(2026, 6, 1, 10, tzinfo=UTC), "2026-06-01T10:00:00+00:00"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=0), "2026-10-25T00:30:00+00:00"),
        (datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1), "2026-10-25T01:30:00+00:00"),
        (datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), "2026-03-29T01:30:00+00:00"),
    ],
)
def test_a_moment_with_a_zone_is_that_instant(moment: datetime, expected: str) -> None:
    assert datetime.fromtimestamp(instant_option("run_at", moment), UTC).isoformat() == expected


def test_a_moment_without_a_zone_is_refused_in_python_and_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    with pytest.raises(OptionError, match="time zone"):
        read_options({"run_at": datetime(2026, 6, 1, 12)})
    with pytest.raises(OptionError, match="time zone"):
        instant_from_text("run_at", "2026-06-01T12:00")
    assert instant_from_text("run_at", "2026-06-01T12:00+02:00") == datetime(2026, 6, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 10**12},
        {"delay": float("nan")},
        {"delay": -5},
        {"delay": "-5s"},
        {"labels": ["a"]},
        {"run_at": datetime(1, 1, 1, tzinfo=UTC)},
        {"delay": 1, "run_at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"priority": "urgent"},
        {"queue": ""},
        {"queue": "two\nlines"},
        {"tenant": " acme"},
        {"deadline": 0},
        {"total_timeout": 0},
        {"timeout": -1},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"key": ""},
        {"key": "x" * 300},
        {"unique": "sometimes"},
        {"labels": {"a": "b\x00"}},
        {"labels": {str(number): "x" for number in range(33)}},
    ],
)
def test_a_value_that_cannot_work_is_refused_with_a_fix(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        read_options(options)
    assert caught.value.fix


@pytest.mark.parametrize("value", ["sometimes", "", "0s", True])
def test_an_invalid_unique_is_refused_with_both_valid_forms(value: Any) -> None:
    with pytest.raises(OptionError, match="unique=") as caught:
        read_options({"unique": value})
    assert "until_final" in caught.value.fix
    assert "1h" in caught.value.fix


def test_a_time_in_the_past_is_due_at_once() -> None:
    assert read_options({"run_at": datetime(2020, 1, 1, tzinfo=UTC)}) == {"run_at": 1_577_836_800}


def test_durations_come_in_several_forms() -> None:
    assert [seconds_option("x", value) for value in (90, timedelta(hours=1), "15m", "1h", "7d", "1.5s")] == [
        90, 3600, 900, 3600, 604_800, 1.5,
    ]  # fmt: skip


def test_no_limit_must_be_written_out() -> None:
    assert limit_option("timeout", NO_LIMIT) == float("inf")
    with pytest.raises(OptionError, match="NO_LIMIT"):
        limit_option("timeout", None)


def test_options_become_the_fields_of_a_new_task() -> None:
    given = {"priority": "bulk", "unique": "1h", "key": "k", "labels": {"doc": "7"}, "queue": None}
    assert read_options(given) == {
        "priority": Priority.BULK, "unique_seconds": 3600, "key": "k", "labels": {"doc": "7"},
    }  # fmt: skip
    assert read_options({"unique": "until_final"}) == {"unique_seconds": None}
    assert read_options({"deadline": "1h"}) == {"deadline_seconds": 3600}
    assert read_options({"deadline": datetime(2030, 1, 1, tzinfo=UTC)}) == {"deadline_at": 1_893_456_000}


def test_each_option_is_typed_and_sets_a_field_of_a_new_task() -> None:
    assert set(ENQUEUE_OPTIONS) == set(EnqueueOptions.__annotations__)
    assert {option.field for option in ENQUEUE_OPTIONS.values()} <= {field.name for field in fields(NewTask)}
    in_requests = [name for option in ENQUEUE_OPTIONS.values() for name in option.http]
    assert {"task", "args", *in_requests} == set(SubmitRequest.__struct_fields__)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(OptionError, match="there is no option 'colour'"):
        read_options({"colour": "red"})
