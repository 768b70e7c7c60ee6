"""Converts times: stores keep seconds since the epoch, and the public API returns datetimes in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def to_datetime(seconds: float) -> datetime:
    """Return the time this many seconds after the epoch, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def to_datetime_or_none(seconds: float | None) -> datetime | None:
    """Return the time this many seconds after the epoch, in UTC; None for None."""
    return None if seconds is None else to_datetime(seconds)
