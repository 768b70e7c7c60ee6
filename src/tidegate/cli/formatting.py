"""Formats durations, times and text for a terminal. Pure, and light to import."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _visible(char) for char in text)


def _visible(char: str) -> str:
    return " " if char in "\n\t" else char.encode("unicode_escape").decode("ascii")


def format_duration(seconds: float | None) -> str:
    """Return a duration in one rounded unit: `40 ms`, `12 s`, `3 min`, `2.5 h`, `9 d`; `-` for None."""
    if seconds is None:
        return "-"
    for size, unit in _UNITS:
        if seconds >= (172_800 if unit == "d" else size):
            count = seconds / size
            return f"{count:.1f} {unit}" if unit == "h" and count < 10 else f"{count:.0f} {unit}"
    return f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else f"{seconds:.0f} s"


def format_size(size: int) -> str:
    """Return a number of bytes in one rounded unit: `0 B`, `12 KiB`, `1.5 GiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if unit != "B" and value < 10 else f"{value:.0f} {unit}"


def format_ago(moment: float | None, now: float) -> str:
    """Return a time relative to `now`: `3 min ago`, `in 12 s`; `-` for None."""
    if moment is None:
        return "-"
    return f"in {format_duration(moment - now)}" if moment > now else f"{format_duration(now - moment)} ago"


def format_since(moment: float, now: float) -> str:
    """Return how long ago something happened.

    A time in the future counts as now, because a clock was set back.
    """
    return format_ago(min(moment, now), now)


def moment(seconds: float | None) -> str:
    """Return a time in UTC, to the millisecond; `-` for None."""
    if seconds is None:
        return "-"
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(sep=" ", timespec="milliseconds")
        .replace("+00:00", "Z")
    )
