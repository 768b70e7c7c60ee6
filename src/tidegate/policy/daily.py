"""Computes when a daily event is due, in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tidegate.domain.readers import wrong
from tidegate.policy.ticks import timezone_option

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class DailyTime:
    """A time of day in a time zone."""

    hour: int = 8
    minute: int = 0
    timezone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.hour:02}:{self.minute:02} {self.timezone}"

    def last_due(self, now: float) -> tuple[str, float]:
        """Return the date and the moment at which the event was due last.

        A time that the clock skips in spring is due at the moment it would have had without the change. A
        time that the clock has twice in autumn is due the first time.
        """
        here = datetime.fromtimestamp(now, UTC).astimezone(self._zone()).date()
        for days in range(3):
            date = here - timedelta(days=days)
            due = datetime(date.year, date.month, date.day, self.hour, self.minute, tzinfo=self._zone())
            if due.timestamp() <= now:
                return date.isoformat(), due.timestamp()
        raise AssertionError("a day has more than two days")

    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


def daily_time_option(option: str, time: str, timezone: str) -> DailyTime:
    """Return the time of day.

    Raises:
        OptionError: The time is not written as `08:00`, or there is no such time zone.
    """
    found = _TIME.fullmatch(time.strip())
    if found is None:
        raise wrong(option, time, 'write hours and minutes: "08:00"; or "off"')
    return DailyTime(int(found[1]), int(found[2]), timezone_option(f"{option}_timezone", timezone))
