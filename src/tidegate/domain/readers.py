"""Reads option values: durations, sizes, rates, names and numbers.

Code, `tidegate.toml`, environment variables, the command line and the HTTP API all read values here, so all
accept the same forms. Each reader returns a plain value or raises `OptionError`. The message quotes the
option and its value in one line, and the fix states which values are valid.
"""

from __future__ import annotations

import math
import re
import reprlib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from tidegate.errors import OptionError

F = TypeVar("F")

Seconds = float | int | timedelta | str
"""A duration as users write it: seconds, a timedelta, or text such as `500ms`, `90s`, `15m`, `1h`, `7d`."""
Deadline = Seconds | datetime
"""A deadline as users write it: a duration from the enqueue, or a datetime with a time zone."""
Size = int | str
"""A number of bytes as users write it: a whole number, or text such as `300MiB`, `2GB`."""

MOST = 10_000_000
"""The largest number of requests, tasks and the like that an option accepts."""
LONGEST_SECONDS = 100 * 366 * 86_400.0
LONGEST_WAIT_SECONDS = 366 * 86_400.0

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d|w)?")
_DURATION_UNITS = {
    "ms": 0.001, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]i?)?B?")
_SIZE_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4} | {
    "ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4
}  # fmt: skip
_LARGEST_SIZE = 2**60
_RATE = re.compile(r"([0-9]{1,9})\s*/\s*([a-z]+)")
_RATE_UNITS = {
    **dict.fromkeys(("s", "sec", "second"), 1.0),
    **dict.fromkeys(("m", "min", "minute"), 60.0),
    **dict.fromkeys(("h", "hour"), 3_600.0),
    **dict.fromkeys(("d", "day"), 86_400.0),
}
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
_MOST_CHARACTERS_SHOWN = 80

_DURATION_FIX = 'use a number of seconds, or text such as "30s", "5m", "1h", "7d"'


def shown(value: object) -> str:
    """Return a value as text for errors: its repr in one line of at most 80 characters.

    Control characters, and characters that change the direction of text, are escaped.
    """
    quoting = reprlib.Repr()
    quoting.maxstring = quoting.maxother = quoting.maxlong = _MOST_CHARACTERS_SHOWN
    try:
        quoted = quoting.repr(value)
    except ValueError:  # Python refuses to format very long numbers
        quoted = f"<{type(value).__name__}>"
    text = "".join(_escaped(character) for character in quoted)
    if len(text) <= _MOST_CHARACTERS_SHOWN:
        return text
    return text[: _MOST_CHARACTERS_SHOWN - 1] + "…"


def _escaped(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character.encode("unicode_escape").decode()
    return character


def wrong(option: str, value: object, fix: str) -> OptionError:
    """Return the error for an invalid value of an option."""
    return OptionError(f"{option}={shown(value)}", fix=fix, option=_last(option), value=value)


def seconds_option(
    option: str, value: Seconds, *, least: float = 0.0, most: float = LONGEST_SECONDS
) -> float:
    """Return a duration in seconds.

    Args:
        option: The option's name, for the error.
        value: Seconds, a timedelta, or text such as `500ms`, `90s`, `15m`, `1h`, `7d`.
        least: The shortest valid duration.
        most: The longest valid duration. Default: a century.

    Raises:
        OptionError: The value is not a duration, is NaN, or is out of these bounds.
    """
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds):
        raise wrong(option, value, _DURATION_FIX)
    if not least <= seconds <= most:
        raise wrong(option, value, f"{_DURATION_FIX}, from {least:g} to {format_bound(most)}")
    return seconds


def wait_option(option: str, value: Seconds) -> float:
    """Return a duration in seconds of any size. A task may compute it, so it may be below 0 or not a number.

    Raises:
        OptionError: It is no duration.
    """
    seconds = _seconds(value)
    if seconds is None:
        raise wrong(option, value, _DURATION_FIX)
    return seconds


def positive_option(option: str, value: Seconds, *, most: float = LONGEST_SECONDS) -> float:
    """Return a duration in seconds that must be above 0."""
    seconds = seconds_option(option, value, most=most)
    if seconds <= 0:
        raise wrong(option, value, f"{_DURATION_FIX}, above 0")
    return seconds


def limit_option(option: str, value: Seconds | None) -> float:
    """Return a time limit in seconds, above 0. `NO_LIMIT` means no limit; None is refused."""
    if value is None:
        raise wrong(option, value, f"write {option}=tidegate.NO_LIMIT to turn the limit off")
    return math.inf if _is_endless(value) else positive_option(option, value)


def duration_deadline(option: str, value: Seconds) -> float:
    """Return the seconds from the enqueue until a deadline. A datetime is refused, as it would pass."""
    if isinstance(value, datetime):
        raise wrong(option, value, "use a duration here; set a datetime for one task: using(deadline=…)")
    return limit_option(option, value)


def kept_option(option: str, value: Seconds) -> float:
    """Return a retention time in seconds. Infinity (`inf` in the file) means that nothing is deleted."""
    return math.inf if _is_endless(value) else seconds_option(option, value)


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and value == math.inf


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _as_float(value)
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) * _DURATION_UNITS[match[2] or ""] if match else None


def _as_float(value: float) -> float:
    """Return a number as a float, or infinity if it is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def format_bound(seconds: float) -> str:
    """Return a bound of a duration: `3600 s`, `366 days`, `a century`."""
    if seconds >= LONGEST_SECONDS:
        return "a century"
    return f"{seconds / 86_400:g} days" if seconds > 86_400 else f"{seconds:g} s"


def size_option(option: str, value: Size) -> int:
    """Return a number of bytes, 1 or more, from a whole number or text such as `300MiB`, `2GB`."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        size: object = int(min(float(match[1]) * _SIZE_UNITS[(match[2] or "").lower()], 2 * _LARGEST_SIZE))
    else:
        size = value
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= _LARGEST_SIZE:
        raise wrong(option, value, 'use a number of bytes above 0, or text such as "300MiB", "2GiB", "2GB"')
    return size


def rate_option(option: str, value: str) -> tuple[int, float]:
    """Return the number and the seconds of a rate: `(50, 60.0)` for `50/min`."""
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in _RATE_UNITS or not 1 <= int(match[1]) <= MOST:
        fix = 'use text such as "50/min": a number, /, and s, min, h or d (or second, minute, hour, day)'
        raise wrong(option, value, fix)
    return int(match[1]), _RATE_UNITS[match[2]]


def whole_option(option: str, value: int, *, least: int = 1, most: int = MOST) -> int:
    """Return a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(option, value, "use a whole number")
    if not least <= value <= most:
        raise wrong(option, value, f"use a whole number from {least} to {most}")
    return value


def concurrency_option(option: str, value: int | Literal["auto"]) -> int | Literal["auto"]:
    """Return the number of tasks at once: a whole number, or `auto`."""
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        raise wrong(option, value, 'use a whole number, or "auto"')
    return whole_option(option, value)


def number_option(option: str, value: float, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_as_float(value)):
        raise wrong(option, value, "use a number")
    if not least <= value <= most:
        bounds = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of {least:g} or more"
        raise wrong(option, value, f"use a number {bounds}")
    return float(value)


def flag_option(option: str, value: bool) -> bool:
    """Return a boolean. No other value is accepted for one."""
    if not isinstance(value, bool):
        raise wrong(option, value, "use true or false")
    return value


def choice_option(option: str, value: str, choices: Iterable[str]) -> str:
    """Return the value if it is a valid choice."""
    words = tuple(choices)
    if not isinstance(value, str) or value not in words:
        raise wrong(option, value, f"use one of {', '.join(words)}")
    return value


def attempts_option(option: str, value: int) -> int:
    """Return a number of attempts: 1 to 1,000."""
    return whole_option(option, value, most=1_000)


def callable_option(option: str, value: F) -> F:
    """Return the value if it can be called."""
    if not callable(value):
        raise wrong(option, value, "pass a function")
    return value


def name_option(option: str, value: str) -> str:
    """Return a queue, tenant or label name: 1 to 128 characters, no control characters, no outer blanks."""
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value != value.strip():
        raise wrong(option, value, "use 1 to 128 printable characters, without blanks at the ends")
    return encodable(option, value)


def key_option(option: str, value: str) -> str:
    """Return an idempotency key: text of 1 to 255 characters."""
    if not isinstance(value, str):
        raise wrong(option, value, f'use text, such as {option}="{shown(value)[:40]}"')
    if not value:
        raise wrong(option, value, "use text of 1 to 255 characters, or leave it out")
    if len(value) > 255:
        raise wrong(option, value, f"use text of 1 to 255 characters; this has {len(value):,}: hash it")
    return encodable(option, value)


def encodable(option: str, value: str) -> str:
    """Return text that can be stored.

    Raises:
        OptionError: The text contains a lone surrogate.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong(option, value, "it is not valid text: remove the lone surrogates") from None
    return value


def text_option(option: str, value: str) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise wrong(option, value, "write text in quotes")
    return value


def short_text_option(option: str, value: str, *, most: int) -> str:
    """Return text of 1 to this many characters, which can be stored."""
    text_option(option, value)
    if len(value) > most:
        raise wrong(option, value, f"use text of 1 to {most} characters")
    return encodable(option, value)


def names_option(option: str, value: Sequence[str]) -> tuple[str, ...]:
    """Return a list of different names, in the order written. A single text is refused."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise wrong(option, value, f'write a list: {_last(option)} = ["default"], or ["*"] for all')
    names = tuple(name_option(option, name) for name in value)
    if len(set(names)) < len(names):
        raise wrong(option, value, "write each name once")
    return names


def texts_option(option: str, value: Sequence[str]) -> tuple[str, ...]:
    """Return a list of texts, which may be empty. An empty text is refused: all texts contain it."""
    if not _is_list(value) or not all(isinstance(text, str) and text for text in value):
        raise wrong(option, value, f'write a list of texts: {_last(option)} = ["CUDA error"], or [] for none')
    return tuple(value)


def devices_option(option: str, value: Sequence[int | str]) -> tuple[int | str, ...]:
    """Return a list of devices by number or name. The list may be empty."""
    if not _is_list(value) or not all(_is_device(device) for device in value):
        fix = f'write a list of numbers or UUIDs: {_last(option)} = [0, 1], or ["GPU-8a3f…"]'
        raise wrong(option, value, fix)
    return tuple(value)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_device(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return False
    return value >= 0 if isinstance(value, int) else bool(value)


def _last(option: str) -> str:
    """Return the option's own name: `queues` for `pool llm: queues`."""
    return option.rpartition(": ")[2]


def instant_option(option: str, value: datetime) -> float:
    """Return the seconds since the epoch of a datetime with a time zone. A naive datetime is refused.

    A time in the gap of a clock change is read with the offset before it. In a repeated hour `fold` decides.
    """
    if not isinstance(value, datetime):
        raise wrong(option, value, "pass a datetime with a time zone")
    if value.tzinfo is None or value.utcoffset() is None:
        raise OptionError(
            f"{option}={value.isoformat()} has no time zone",
            fix="add one, such as tzinfo=datetime.UTC or a zoneinfo zone",
            option=_last(option),
            value=value,
        )
    if not 2000 <= value.year <= 2200:
        raise OptionError(
            f"{option}={value.isoformat()}",
            fix="use a time between the years 2000 and 2200",
            option=_last(option),
            value=value,
        )
    return value.timestamp()


def instant_from_text(option: str, text: str) -> datetime:
    """Return the UTC datetime of an ISO 8601 text, which must have an offset or Z."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong(option, text, "use ISO 8601 with an offset: 2026-06-01T12:00+02:00") from None
    instant_option(option, moment)
    return moment.astimezone(UTC)


def require_before_deadline(wait_seconds: float, deadline_seconds: float | None) -> None:
    """Refuse a task whose deadline passes before it is due.

    Args:
        wait_seconds: Seconds from the enqueue until the task is due.
        deadline_seconds: Seconds from the enqueue until the deadline; None without a deadline.

    Raises:
        OptionError: The task could never run.
    """
    if deadline_seconds is None:
        return
    if deadline_seconds <= 0:
        raise OptionError(
            f"the deadline passed {-deadline_seconds:g} s ago",
            fix="set a time in the future",
            option="deadline",
            value=deadline_seconds,
        )
    if 0 < wait_seconds >= deadline_seconds:
        raise OptionError(
            f"the deadline, in {deadline_seconds:g} s, comes before the task is due, in {wait_seconds:g} s",
            fix="set a later deadline, or a shorter delay",
            option="deadline",
            value=deadline_seconds,
        )


def require_names(given: Mapping[str, object], names: Collection[str]) -> None:
    """Raise `OptionError` unless all these options exist."""
    for name, value in given.items():
        if name not in names:
            fix = f"use one of {', '.join(names)}"
            raise OptionError(f"there is no option {shown(name)}", fix=fix, option=name, value=value)


def set_fields(instance: object, **values: Any) -> None:
    """Set the fields of a frozen dataclass. Call this in its `__init__` only."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
