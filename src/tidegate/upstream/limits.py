"""What an application says of limits, checked, and limits in the names users give them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from tidegate.domain.upstream import Limits, Window
from tidegate.errors import OptionError

WINDOW_SECONDS: Mapping[str, float] = {
    "requests_per_second": 1.0,
    "requests_per_minute": 60.0,
    "requests_per_hour": 3600.0,
    "requests_per_day": 86_400.0,
}
"""The windows an upstream may have, several at once."""
COUNTED_BY_THE_DAY = "requests_per_day"
"""Counted from midnight to midnight UTC; shorter ones are paced evenly unless `fixed_windows` is set."""
MOST = 10_000_000
_UNITS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3_600.0),
    **dict.fromkeys(("d", "day"), 86_400.0),
}
_RATE = re.compile(r"([0-9]+)\s*/\s*([a-z]+)")


class UpstreamLimits(TypedDict, total=False):
    """What may be said of an upstream; what is left out, or None, does not limit."""

    requests_per_second: int | None
    requests_per_minute: int | None
    requests_per_hour: int | None
    requests_per_day: int | None
    max_in_flight: int | None
    """Runs at once."""
    retries_per_minute: float | None
    """Re-runs: a fifth of the requests a minute unless given."""
    retry_window: float
    """Seconds over which the retry budget holds: 60."""
    slow_start: float
    """Seconds from a tenth of its pace to all of it after an outage: 45; 0 for none."""
    failures_to_park: int
    """Network and server failures in a row: 5."""
    fixed_windows: bool
    """The provider counts from edge to edge; days are always counted so."""


def make_limits(**given: Unpack[UpstreamLimits]) -> Limits:
    """Return checked limits.

    Raises:
        OptionError: There is no such limit, it is no whole number from 1, or a time cannot work.
    """
    _known(given)
    asked: Mapping[str, Any] = given
    fixed = bool(given.get("fixed_windows"))
    in_flight, retries = given.get("max_in_flight"), given.get("retries_per_minute")
    return Limits(
        windows=tuple(
            Window(name, _whole(name, asked[name]), seconds, fixed=fixed or name == COUNTED_BY_THE_DAY)
            for name, seconds in WINDOW_SECONDS.items()
            if asked.get(name) is not None
        ),
        max_in_flight=None if in_flight is None else _whole("max_in_flight", in_flight),
        retries_per_minute=None if retries is None else _rate(retries),
        retry_window_seconds=_seconds("retry_window", given.get("retry_window", 60.0), least=0.1),
        slow_start_seconds=_seconds("slow_start", given.get("slow_start", 45.0), least=0.0),
        failures_to_park=_whole("failures_to_park", given.get("failures_to_park", 5)),
    )


def changed_limits(limits: Limits, changes: Mapping[str, float | None]) -> Limits:
    """Return limits with some set anew; None lifts one, or gives it its usual value.

    Raises:
        OptionError: There is no such limit, or the value cannot work.
    """
    whole = {name: _as_whole(value) for name, value in changes.items()}
    given: dict[str, Any] = {**facts(limits), **whole}
    given = {name: value for name, value in given.items() if value is not None}
    made = make_limits(**given)
    fixed = {window.name for window in limits.windows if window.fixed}
    return replace(
        made,
        windows=tuple(replace(window, fixed=window.fixed or window.name in fixed) for window in made.windows),
    )


def rate_window(text: str) -> Window:
    """Return the window that a function's `rate_limit`, such as `50/min`, names.

    Raises:
        OptionError: It cannot be read.
    """
    match = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in _UNITS or not 1 <= int(match[1]) <= MOST:
        raise OptionError(
            f"rate_limit={text!r}",
            fix='use text such as "50/min": a number, /, and s, min, h or d (or second, minute, hour, day)',
        )
    return Window("rate_limit", int(match[1]), _UNITS[match[2]])


def differences(declared: Limits, stored: Limits) -> list[str]:
    """Return in words where limits differ: `requests_per_minute is 600, declared here as 500`."""
    ours, theirs = facts(declared), facts(stored)
    numbers = [
        f"{name} is {_shown(theirs.get(name))}, declared here as {_shown(ours.get(name))}"
        for name in dict.fromkeys([*theirs, *ours])
        if ours.get(name) != theirs.get(name)
    ]
    counted = {window.name: window.fixed for window in stored.windows}
    ways = [
        f"{window.name} is {_counted(not window.fixed)}, declared here as {_counted(window.fixed)}"
        for window in declared.windows
        if counted.get(window.name, window.fixed) is not window.fixed
    ]
    return numbers + ways


def facts(limits: Limits) -> dict[str, float]:
    """Return the limits that are set, by the names users give them."""
    found: dict[str, float] = {window.name: window.amount for window in limits.windows}
    if limits.max_in_flight is not None:
        found["max_in_flight"] = limits.max_in_flight
    if limits.retries_per_minute is not None:
        found["retries_per_minute"] = limits.retries_per_minute
    found["retry_window"] = limits.retry_window_seconds
    found["slow_start"] = limits.slow_start_seconds
    found["failures_to_park"] = limits.failures_to_park
    return found


def _shown(value: float | None) -> str:
    return "not limited" if value is None else f"{value:g}"


def _counted(fixed: bool) -> str:
    return "counted from edge to edge" if fixed else "paced evenly"


def _as_whole(value: float | None) -> float | None:
    return int(value) if value is not None and float(value).is_integer() else value


def _known(given: Mapping[str, object]) -> None:
    for name in given:
        if name not in UpstreamLimits.__annotations__:
            raise OptionError(
                f"there is no limit {name!r}", fix=f"use one of {', '.join(UpstreamLimits.__annotations__)}"
            )


def _rate(value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST:
        raise OptionError(f"retries_per_minute={value!r}", fix="use a number above 0")
    return float(value)


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise OptionError(
            f"{name}={value!r}", fix=f"use a whole number from 1 to {MOST}; leave it out for no limit"
        )
    return value


def _seconds(name: str, value: float, *, least: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not least <= value <= 86_400:
        raise OptionError(f"{name}={value!r}", fix=f"use seconds from {least:g} to 86400")
    return float(value)
