"""Checks the limits that an application or a person sets, and names them as users do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from tidegate.domain.readers import (
    MOST,
    Seconds,
    flag_option,
    number_option,
    rate_option,
    seconds_option,
    shown,
    whole_option,
    wrong,
)
from tidegate.domain.spec import Window
from tidegate.domain.usage import MOST_TOKENS, Dimension
from tidegate.errors import OptionError
from tidegate.limits.settings import Limits

WINDOW_SECONDS: Mapping[str, float] = {
    "requests_per_second": 1.0,
    "requests_per_minute": 60.0,
    "requests_per_hour": 3600.0,
    "requests_per_day": 86_400.0,
}
"""The windows of requests that an upstream may have, several at once."""
TOKEN_WINDOWS: Mapping[str, tuple[float, Dimension]] = {
    f"{dimension.value}_per_{period}": (seconds, dimension)
    for period, seconds in (("minute", 60.0), ("day", 86_400.0))
    for dimension in (Dimension.TOKENS, Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS)
}
"""The windows of tokens that an upstream may have, several at once, each with what it counts."""
DURATIONS = ("retry_window", "slow_start")
"""The settings of an upstream that are durations; all other settings are numbers."""
DAY_SECONDS = 86_400.0
"""Windows of a day are counted from midnight to midnight UTC. Shorter windows are paced evenly unless
`fixed_windows` is set."""


_WINDOWS = {name: (seconds, Dimension.REQUESTS) for name, seconds in WINDOW_SECONDS.items()} | dict(
    TOKEN_WINDOWS
)


class UpstreamLimits(TypedDict, total=False):
    """The limits of an upstream, as keyword arguments. A limit that is missing or None does not apply."""

    requests_per_second: int | None
    requests_per_minute: int | None
    requests_per_hour: int | None
    requests_per_day: int | None
    tokens_per_minute: int | None
    """Input and output tokens together."""
    tokens_per_day: int | None
    input_tokens_per_minute: int | None
    input_tokens_per_day: int | None
    output_tokens_per_minute: int | None
    output_tokens_per_day: int | None
    max_in_flight: int | None
    """The most runs and calls in flight at once."""
    retries_per_minute: float | None
    """Retries per minute. Default: a fifth of the requests per minute."""
    retry_window: Seconds
    """The window of the retry budget. Default: 60 s."""
    slow_start: Seconds
    """The time from a tenth of the rate to the full rate after an outage. Default: 45 s; 0 turns it off."""
    failures_to_park: int
    """How many network or server failures in a row park the gate. Default: 5."""
    fixed_windows: bool
    """Whether the provider counts in fixed windows instead of refilling evenly. Default: False; days are
    always fixed."""


def make_limits(**given: Unpack[UpstreamLimits]) -> Limits:
    """Return checked limits.

    Raises:
        OptionError: There is no such limit, a number is not a whole number from 1, or a time is out of range.
    """
    _known(given)
    asked: Mapping[str, Any] = given
    is_fixed = flag_option("fixed_windows", given.get("fixed_windows", False))
    in_flight, retries = given.get("max_in_flight"), given.get("retries_per_minute")
    return Limits(
        windows=tuple(
            Window(
                name,
                _whole(name, asked[name], most=MOST if dimension is Dimension.REQUESTS else MOST_TOKENS),
                seconds,
                is_fixed=is_fixed or seconds == DAY_SECONDS,
                dimension=dimension,
            )
            for name, (seconds, dimension) in _WINDOWS.items()
            if asked.get(name) is not None
        ),
        max_in_flight=None if in_flight is None else _whole("max_in_flight", in_flight),
        retries_per_minute=None if retries is None else _rate(retries),
        retry_window_seconds=_seconds("retry_window", given.get("retry_window", 60.0), least=0.1),
        slow_start_seconds=_seconds("slow_start", given.get("slow_start", 45.0), least=0.0),
        failures_to_park=_whole("failures_to_park", given.get("failures_to_park", 5)),
    )


def changed_limits(limits: Limits, changes: Mapping[str, float | None]) -> Limits:
    """Return the limits after a person changed some. The value None removes a limit, or restores its default.

    Raises:
        OptionError: There is no such limit, or the value is out of range.
    """
    whole = {name: _as_whole(value) for name, value in changes.items()}
    given: dict[str, Any] = {**facts(limits), **whole}
    given = {name: value for name, value in given.items() if value is not None}
    _known(changes)
    made = make_limits(**given)
    fixed_names = {window.name for window in limits.windows if window.is_fixed}
    return replace(
        made,
        windows=tuple(
            replace(window, is_fixed=window.is_fixed or window.name in fixed_names) for window in made.windows
        ),
        set_by_person=tuple(dict.fromkeys([*limits.set_by_person, *changes])),
    )


def handed_back(limits: Limits, names: Collection[str], declared: Limits | None) -> Limits:
    """Return the limits after some were handed back to the code, so that the values in the code apply again.

    Args:
        limits: The stored limits.
        names: The names of the limits to hand back.
        declared: The limits in the code. None if this process does not know them: the values then stay until
            a worker starts.

    Raises:
        OptionError: There is no such limit.
    """
    _known(names)
    kept = replace(limits, set_by_person=tuple(name for name in limits.set_by_person if name not in names))
    return kept if declared is None else kept.merged_with(declared)


def rate_window(option: str, text: str) -> Window:
    """Return the window of a function's `rate_limit`, such as `50/min`.

    Raises:
        OptionError: The text cannot be read.
    """
    amount, seconds = rate_option(option, text)
    return Window(option, amount, seconds)


def differences(declared: Limits, stored: Limits) -> dict[str, str]:
    """Return a text for each limit that differs: `requests_per_minute is 600, declared here as 500`."""
    return {
        name: f"{name} is {theirs}, declared here as {ours}"
        for name, ours, theirs in _compared(declared, stored)
    }


def changes(before: Limits, after: Limits) -> list[str]:
    """Return a text for each change: `requests_per_minute was 120, is 900 now`."""
    return [f"{name} was {old}, is {new} now" for name, old, new in _compared(before, after)]


def _compared(one: Limits, other: Limits) -> list[tuple[str, str, str]]:
    """Return the name and both values, as text, of each limit that differs."""
    first, second = facts(one), facts(other)
    numbers = [
        (name, _shown(first.get(name)), _shown(second.get(name)))
        for name in dict.fromkeys([*second, *first])
        if first.get(name) != second.get(name)
    ]
    counted = {window.name: window.is_fixed for window in other.windows}
    modes = [
        (window.name, _counted(window.is_fixed), _counted(not window.is_fixed))
        for window in one.windows
        if counted.get(window.name, window.is_fixed) is not window.is_fixed
    ]
    return numbers + modes


def facts(limits: Limits) -> dict[str, float]:
    """Return the limits that are set, by the names that users use."""
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


def _counted(is_fixed: bool) -> str:
    return "counted in fixed windows" if is_fixed else "paced evenly"


def _as_whole(value: float | None) -> float | None:
    return int(value) if value is not None and float(value).is_integer() else value


def _known(given: Iterable[str]) -> None:
    for name in given:
        if name not in UpstreamLimits.__annotations__:
            raise OptionError(
                f"there is no limit {shown(name)}",
                fix=f"use one of {', '.join(UpstreamLimits.__annotations__)}",
                option=name,
            )


def _rate(value: float) -> float:
    if number_option("retries_per_minute", value, least=0.0, most=MOST) == 0:
        raise wrong("retries_per_minute", value, "use a number above 0")
    return float(value)


def _whole(name: str, value: int, *, most: int = MOST) -> int:
    return whole_option(name, value, most=most)


def _seconds(name: str, value: Seconds, *, least: float) -> float:
    return seconds_option(name, value, least=least, most=86_400.0)
