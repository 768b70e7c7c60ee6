"""Formats durations for people."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """Return a duration in one unit: `0.25 s`, `42 s`, `10 min`, `2.5 h`, `3 d`."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds >= size and seconds % size == 0):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
