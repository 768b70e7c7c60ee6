"""What a caller may say of one task when it is enqueued, checked here and turned into plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidegate.domain.spec import Priority
from tidegate.errors import OptionError

Seconds = float | int | timedelta
"""A duration, as users give it."""

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|min|m|h|d|w)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?)?B?")
_SIZE_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4} | {
    "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4
}  # fmt: skip
_LONGEST_SECONDS = 100 * 366 * 86_400.0
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,128}")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one enqueue; what is not given is the task function's own."""

    queue: str | None = None
    priority: Priority | None = None
    tenant: str = ""
    delay_seconds: float = 0.0
    run_at: float | None = None
    deadline_seconds: float | None = None
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    key: str | None = None
    key_seconds: float = 7 * 86_400.0
    unique_seconds: float | None = None
    unique: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def make_options(
    *,
    queue: str | None = None,
    priority: Priority | str | None = None,
    tenant: str | None = None,
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    deadline: Seconds | None = None,
    timeout: Seconds | None = None,
    max_attempts: int | None = None,
    key: str | None = None,
    key_kept: Seconds | str | None = None,
    unique: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Options:
    """Check what a caller gave; see `TaskFunction.using` for the meaning of each.

    Raises:
        OptionError: A value cannot work; it names the option, the value and the fix.
    """
    if delay is not None and run_at is not None:
        raise OptionError("both delay and run_at are given", fix="give one of them")
    return Options(
        queue=None if queue is None else name_option("queue", queue),
        priority=None if priority is None else priority_option(priority),
        tenant="" if tenant is None else name_option("tenant", tenant),
        delay_seconds=0.0 if delay is None else max(0.0, seconds_option("delay", delay)),
        run_at=None if run_at is None else instant_option("run_at", run_at),
        deadline_seconds=None if deadline is None else positive_option("deadline", deadline),
        timeout_seconds=None if timeout is None else positive_option("timeout", timeout),
        max_attempts=None if max_attempts is None else attempts_option(max_attempts),
        key=None if key is None else _key(key),
        key_seconds=7 * 86_400.0 if key_kept is None else positive_option("key_kept", key_kept),
        unique=unique is not None,
        unique_seconds=None if unique is None else _unique_seconds(unique),
        labels=_labels(labels or {}),
    )


def size_option(option: str, value: int | str) -> int:
    """Return a number of bytes from a number or text such as `300MiB`, `2GB`."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        return int(float(match[1]) * _SIZE_FACTORS[(match[2] or "").lower()])
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise OptionError(f"{option}={value!r}", fix='use a number of bytes, or text such as "300MiB", "2GB"')
    return value


def name_option(option: str, value: str) -> str:
    """Check a queue, tenant or label name: 1 to 128 characters, no control characters, no outer blanks."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value != value.strip():
        raise OptionError(
            f"{option}={value!r}", fix="use 1 to 128 printable characters, no blanks at the ends"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{option}={value!r} is not valid text", fix="remove the lone surrogates") from None
    return value


def priority_option(value: Priority | str) -> Priority:
    """Return the priority of that name."""
    if isinstance(value, Priority):
        return value
    try:
        return Priority[value.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(priority.word for priority in Priority)
        raise OptionError(f"priority={value!r}", fix=f"use one of {names}") from None


def seconds_option(option: str, value: Seconds | str) -> float:
    """Return a duration in seconds from a number, a timedelta or text such as `90s`, `15m`, `1h`, `7d`."""
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds) or abs(seconds) > _LONGEST_SECONDS:
        raise OptionError(
            f"{option}={value!r}",
            fix="use seconds, a timedelta, or text such as 90s, 15m, 1h, 7d; a century at most",
        )
    return seconds


def positive_option(option: str, value: Seconds | str) -> float:
    """Return a duration in seconds that must be above 0."""
    seconds = seconds_option(option, value)
    if seconds <= 0:
        raise OptionError(f"{option}={value!r}", fix="use a duration above 0")
    return seconds


def limit_option(option: str, value: Seconds | None) -> float:
    """Return a time limit in seconds; `NO_LIMIT` must be written out, None is refused."""
    if value is None:
        raise OptionError(
            f"{option}=None", fix=f"write {option}=tidegate.NO_LIMIT if you really want no limit"
        )
    if isinstance(value, float) and value == math.inf:
        return value
    return positive_option(option, value)


def choice_option(option: str, value: str, choices: tuple[str, ...]) -> str:
    """Check that a value is one of some words."""
    if value not in choices:
        raise OptionError(f"{option}={value!r}", fix=f"use one of {', '.join(choices)}")
    return value


def attempts_option(value: int) -> int:
    """Check a number of attempts: 1 to 1,000."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000:
        raise OptionError(f"max_attempts={value!r}", fix="use a whole number from 1 to 1000")
    return value


def instant_option(option: str, value: datetime) -> float:
    """Return seconds since the epoch of a moment with a zone; a naive one is refused, never guessed at.

    A moment in the gap of a clock change counts by the offset before it; `fold` chooses in the repeated hour.
    """
    if not isinstance(value, datetime):
        raise OptionError(f"{option}={value!r}", fix="give a datetime with a time zone")
    if value.tzinfo is None or value.utcoffset() is None:
        raise OptionError(
            f"{option}={value.isoformat()} has no time zone",
            fix="add one, such as tzinfo=datetime.UTC or a zoneinfo zone",
        )
    if not 2000 <= value.year <= 2200:
        raise OptionError(f"{option}={value.isoformat()}", fix="use a moment between the years 2000 and 2200")
    return value.timestamp()


def instant_from_text(option: str, text: str) -> datetime:
    """Return the moment an ISO 8601 text names; it must carry an offset or Z."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{option}={text!r}", fix="use ISO 8601 with an offset: 2026-06-01T12:00+02:00"
        ) from None
    instant_option(option, moment)
    return moment.astimezone(UTC)


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= _LONGEST_SECONDS else None
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) * _UNITS[match[2]] if match else None


def _unique_seconds(value: str) -> float | None:
    """Return how long equal tasks are refused; None for until the final state."""
    if value == "until_final":
        return None
    try:
        return positive_option("unique", value)
    except OptionError as error:
        fix = 'use "until_final", or a time above 0 such as 90s, 15m, 1h, 7d; a century at most'
        raise OptionError(error.message, fix=fix) from None


def _key(value: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 255:
        raise OptionError(
            f"key={str(value)[:40]!r}…", fix="use text of 1 to 255 characters; hash longer ones"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"key={value!r} is not valid text", fix="remove the lone surrogates") from None
    return value


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    if len(labels) > 32:
        raise OptionError(f"{len(labels)} labels", fix="use 32 at most; put data into the arguments")
    return {
        name_option("label name", name): name_option(f"label {name}", value) for name, value in labels.items()
    }
