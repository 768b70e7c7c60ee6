"""Reads numbers, durations and dates in headers and messages of servers.

Each function returns `None` if it cannot read the text. None raises.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_GO_UNITS = {
    "d": 86_400,
    "h": 3_600,
    "m": 60,
    "s": 1,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}
_GO_TOKEN = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|μs|ns|d|h|m|s)", re.ASCII)
_GO_DURATION = re.compile(rf"(?:{_GO_TOKEN.pattern})+", re.ASCII)
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_HTTP_DATES = (
    # IMF-fixdate and RFC 850. The weekday is ignored because some servers get it wrong.
    re.compile(
        r"(?:[A-Za-z]+, *)?(?P<day>\d{1,2})[ -](?P<month>[A-Za-z]{3})[ -](?P<year>\d{4}|\d\d) "
        + _CLOCK
        + r"(?: *(?:GMT|UTC|Z|(?P<offset>[+-]\d{4})))?",
        re.ASCII | re.IGNORECASE,
    ),
    # asctime
    re.compile(
        r"[A-Za-z]{3} (?P<month>[A-Za-z]{3}) +(?P<day>\d{1,2}) " + _CLOCK + r" (?P<year>\d{4})(?P<offset>)",
        re.ASCII | re.IGNORECASE,
    ),
)
_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_SPOKEN_UNITS = {"ms": 1e-3, "mil": 1e-3, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPOKEN_STEP = (
    r"\d+(?:\.\d+)?\s?"
    r"(?:milliseconds?|ms|minutes?|mins?|m|seconds?|secs?|s|hours?|hrs?|h|days?|d)(?![a-z])"
)
_SPOKEN_WAIT = re.compile(
    rf"(?:(?:try again|retry|resets?)\s+(?:in|after)|please wait)\s+~?((?:{_SPOKEN_STEP}\s?)+)",
    re.ASCII | re.IGNORECASE,
)
_SPOKEN_MOMENT = re.compile(
    # "resets at 2026-11-09T00:00:00Z"; Claude's plans: "usage limit reached|1762646400"
    r"(?:(?:try again|retry|resets?)\s+(?:at|on)\s+|usage limit reached\|)"
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)|\d{10}(?:\d{3})?)(?!\d)",
    re.ASCII | re.IGNORECASE,
)
_SPOKEN_PART = re.compile(r"(\d+(?:\.\d+)?)\s?([a-z]+)", re.ASCII)
_TEXT_LIMIT = 4_000
_EPOCH_MILLISECONDS = 1e12
_EPOCH_SECONDS = 1e9


def read_number(text: str) -> float | None:
    """Return a non-negative decimal number of ASCII digits with an optional fraction.

    `float()` would also accept `nan`, `inf`, `1e9`, `1_000` and the digits of other scripts.
    """
    text = text.strip()
    return _finite(float(text)) if _NUMBER.fullmatch(text) else None


def read_duration(text: str) -> float | None:
    """Return the seconds of a duration as Go prints it: `120ms`, `6m0s`, `1h2m3.5s`, also `1d2h`."""
    text = text.strip()
    if not _GO_DURATION.fullmatch(text):
        return None
    return _finite(sum(float(number) * _GO_UNITS[unit] for number, unit in _GO_TOKEN.findall(text)))


def read_moment(text: str, *, now: float) -> float | None:
    """Return a date as seconds since the epoch.

    Reads the three forms of RFC 9110 section 5.6.7 and RFC 3339. A date without a zone is UTC. Dates that do
    not exist are refused.

    Args:
        text: The date.
        now: Seconds since the epoch. A year of two digits is taken to be at most 50 years ahead of it.
    """
    text = text.strip()
    try:
        if _RFC3339.fullmatch(text):
            return _timestamp(datetime.fromisoformat(text.upper()))
        for form in _HTTP_DATES:
            if match := form.fullmatch(text):
                return _timestamp(_http_date(match, now=now))
    except (ValueError, OverflowError):
        pass
    return None


def read_reset(text: str, *, now: float) -> float | None:
    """Return the seconds from `now` to a limit's reset; 0 if it has passed.

    The text is a duration, a date or a number. A number from 1e12 on is milliseconds since the epoch, from
    1e9 on seconds since the epoch, otherwise seconds to wait.
    """
    number = read_number(text)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            return max(0.0, number / 1_000 - now)
        return max(0.0, number - now) if number >= _EPOCH_SECONDS else number
    duration = read_duration(text)
    if duration is not None:
        return duration
    moment = read_moment(text, now=now)
    return None if moment is None else max(0.0, moment - now)


def read_spoken_wait(text: str) -> float | None:
    """Return the seconds of a "try again in 7m12s" or "retry after 37 seconds" in a message."""
    found = _SPOKEN_WAIT.search(text[:_TEXT_LIMIT])
    if found is None:
        return None
    parts = _SPOKEN_PART.findall(found.group(1).lower())
    return _finite(sum(float(number) * _spoken_unit(unit) for number, unit in parts))


def read_spoken_reset(text: str, *, now: float) -> float | None:
    """Return the seconds from `now` to the time of a "resets at 2026-11-09T00:00:00Z" in a message.

    A time without a zone is not read, because it may be in the provider's own zone.
    """
    found = _SPOKEN_MOMENT.search(text[:_TEXT_LIMIT])
    return None if found is None else read_reset(found[1], now=now)


def _spoken_unit(unit: str) -> float:
    return next(factor for start, factor in _SPOKEN_UNITS.items() if unit.startswith(start))


def _http_date(match: re.Match[str], *, now: float) -> datetime:
    part = match.groupdict()
    year = int(part["year"])
    if len(part["year"]) == 2:
        this_year = datetime.fromtimestamp(now, UTC).year
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    month = 1 + _MONTHS.index(part["month"].lower())
    clock = int(part["hour"]), int(part["minute"]), int(part["second"])
    return datetime(year, month, int(part["day"]), *clock, tzinfo=_zone(part["offset"]))


def _zone(offset: str | None) -> timezone:
    if not offset:
        return UTC
    size = timedelta(hours=int(offset[1:3]), minutes=int(offset[3:5]))
    return timezone(-size if offset[0] == "-" else size)


def _timestamp(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
