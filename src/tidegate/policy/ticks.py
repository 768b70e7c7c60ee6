"""The moments at which a schedule ticks. cronsim reads cron; the rule for clock changes is Debian's.

cronsim is loaded when it is first used: most processes import this module, and few have a schedule.

A rule whose minute or hour field starts with `*` follows real time: each moment that matches fires, once. Any
other rule names times of day, and fires once for each date and time. A time that the clocks skip fires at the
first moment after the gap. A time that comes twice fires the first time only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tidegate.domain.readers import wrong
from tidegate.domain.schedule import ScheduleRule

LONGEST_INTERVAL_SECONDS = 366 * 86_400
_LOOK_BACK_SECONDS = (120.0, 7_200.0, 2 * 86_400.0, 32 * 86_400.0, 370 * 86_400.0, 9 * 366 * 86_400.0)
"""The periods that are searched for the latest ticks, shortest first, so that frequent and rare rules both
take few steps."""

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NO_ZONES = ("posix", "right", "localtime")
"""Files of a system that are copies of its zones, or whose zone differs from machine to machine."""
_FIELDS = "minute, hour, day of the month, month, day of the week"
_CRON_FIX = f'write five fields: {_FIELDS}, such as "0 7 * * 1-5"'


def cron_option(option: str, text: str) -> str:
    """Return a cron expression in its stored form: five fields, separated by one space.

    Raises:
        OptionError: The text is not a cron expression, or no date matches it.
    """
    from cronsim import CronSim, CronSimError

    if not isinstance(text, str):
        raise wrong(option, text, _CRON_FIX)
    fields = _ALIASES.get(text.strip().lower(), text).upper().split()
    if len(fields) == 6:
        raise wrong(option, text, f'{_CRON_FIX}; for seconds write an interval, such as "every 10s"')
    if len(fields) != 5 or not text.isascii():
        raise wrong(option, text, _CRON_FIX)
    cron = " ".join(fields)
    try:
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except CronSimError as error:
        minute, hour, day, month, weekday = fields
        if _is_valid(f"0 0 {day} * *") and _is_valid(f"{minute} {hour} * {month} {weekday}"):
            raise wrong(option, text, "name a date that exists: no month of the rule has that day") from None
        raise wrong(option, text, f"{_what_is_bad(error)}: {_CRON_FIX}") from None
    except StopIteration:
        raise wrong(option, text, "name a date that exists: no day of the next 50 years matches") from None
    except (AssertionError, ValueError, OverflowError):
        raise wrong(option, text, _CRON_FIX) from None
    return cron


def _is_valid(cron: str) -> bool:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC))
    except (CronSimError, AssertionError, ValueError):
        return False
    return True


def _what_is_bad(error: Exception) -> str:
    """Return which field is wrong: `the minute is wrong`."""
    field = str(error).removeprefix("Bad ").replace("day-of-month", "day of the month")
    return f"the {field.replace('day-of-week', 'day of the week')} is wrong"


def timezone_option(option: str, name: str) -> str:
    """Return the name of a time zone, written exactly as in the IANA database.

    Raises:
        OptionError: There is no such zone, or this machine has no data of time zones.
    """
    fix = 'use a name of the IANA database, such as "Europe/Berlin", with its capitals, or "UTC"'
    if not isinstance(name, str) or not name:
        raise wrong(option, name, fix)
    if name == "UTC" or _is_known_here(name):
        return name
    known = {zone for zone in available_timezones() if not zone.startswith(_NO_ZONES)}
    if name in known:
        return name
    if not known:
        raise wrong(option, name, "install time zone data on this machine: pip install tzdata")
    same = next((each for each in known if each.lower() == name.lower()), None)
    raise wrong(option, name, fix if same is None else f'write "{same}"')


def _is_known_here(name: str) -> bool:
    """Return whether this machine has a zone of exactly this name: quicker than a list of all zones."""
    if name.startswith(_NO_ZONES):
        return False
    for root in map(Path, TZPATH):
        path = root
        for part in name.split("/"):
            if not path.is_dir() or part not in {entry.name for entry in path.iterdir()}:
                break
            path /= part
        else:
            return path.is_file() and _loads(name)
    return False


def _loads(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def zone(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        OptionError: This machine does not have the zone.
    """
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise wrong("timezone", name, "this machine does not have it: pip install tzdata") from None


def ticks_after(rule: ScheduleRule, after: float) -> Iterator[float]:
    """Yield the ticks after a moment, in order. A rule that never ticks again yields none."""
    if rule.every_seconds:
        first = math.floor(after / rule.every_seconds) + 1
        yield from (float(number * rule.every_seconds) for number in itertools.count(first))
    from cronsim import CronSim

    last = after
    for local in CronSim(rule.cron, datetime.fromtimestamp(after, zone(rule.timezone))):
        at = local.timestamp()
        if at > last:  # two times of day can be one moment, where the clocks skip an hour or repeat one
            last = at
            yield at


def next_tick(rule: ScheduleRule, after: float) -> float | None:
    """Return the first tick after a moment; None if there is none."""
    return next(ticks_after(rule, after), None)


def latest_ticks(rule: ScheduleRule, *, after: float, until: float, count: int) -> list[float]:
    """Return the latest ticks after one moment and up to another, in order, at most `count`."""
    found: list[float] = []
    for seconds in (*_LOOK_BACK_SECONDS, math.inf):
        start = max(after, until - seconds)
        found = list(itertools.takewhile(lambda tick: tick <= until, ticks_after(rule, start)))
        if len(found) >= count or start == after:
            break
    return found[-count:]


def count_ticks(rule: ScheduleRule, *, after: float, until: float, most: int) -> int:
    """Return how many ticks are after one moment and up to another, at most `most`."""
    if rule.every_seconds:
        return min(most, math.floor(until / rule.every_seconds) - math.floor(after / rule.every_seconds))
    ticks = itertools.takewhile(lambda tick: tick <= until, ticks_after(rule, after))
    return sum(1 for _ in itertools.islice(ticks, most))


def describe(rule: ScheduleRule) -> str:
    """Return when a rule ticks, in words."""
    if rule.every_seconds:
        return f"Every {rule.every_seconds} s"
    from cronsim import CronSim

    return CronSim(rule.cron, datetime(2024, 1, 1, tzinfo=UTC)).explain()


@dataclass(frozen=True, slots=True)
class PreviewedTick:
    """One tick of a preview."""

    at: float
    """Seconds since the epoch."""
    local: datetime
    """The same moment in the rule's time zone."""
    mark: str = ""
    """What a change of the clocks does to the tick; empty if it has no effect."""


def preview(rule: ScheduleRule, after: float, count: int) -> list[PreviewedTick]:
    """Return the next ticks after a moment, each with what a change of the clocks does to it."""
    place, found = zone(rule.timezone), []
    before = datetime.fromtimestamp(after, place)
    for at in itertools.islice(ticks_after(rule, after), count):
        local = datetime.fromtimestamp(at, place)
        found.append(PreviewedTick(at, local, _mark(rule, before, local)))
        before = local
    return found


def _mark(rule: ScheduleRule, before: datetime, local: datetime) -> str:
    marks = []
    if before.utcoffset() != local.utcoffset():
        marks.append(f"the clocks changed from UTC{format_offset(before)} to UTC{format_offset(local)}")
    if rule.cron and _is_moved(rule, local):
        marks.append("its time of day does not exist on this date: it fires after the gap")
    if _comes_twice(local):
        times = "both times" if _follows_real_time(rule) else "the first time only"
        marks.append(f"this time of day comes twice on this date: it fires {times}")
    return "; ".join(marks)


def format_offset(local: datetime) -> str:
    """Return an offset from UTC: `+02:00`."""
    return local.isoformat()[-6:]


def _is_moved(rule: ScheduleRule, local: datetime) -> bool:
    """Return whether a tick is at another time of day than its rule names: after a gap."""
    if _follows_real_time(rule):
        return False
    from cronsim import CronSim

    fields = CronSim(rule.cron, local)
    return local.minute not in fields.minutes or local.hour not in fields.hours


def _comes_twice(local: datetime) -> bool:
    return local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset() and not _is_gap(local)


def _is_gap(local: datetime) -> bool:
    return local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) != local.replace(tzinfo=None)


def _follows_real_time(rule: ScheduleRule) -> bool:
    minute, hour, *_ = rule.cron.split() if rule.cron else ("*", "*")
    return bool(rule.every_seconds) or minute.startswith("*") or hour.startswith("*")
