"""What happened: counters of tasks and runs, and deaths over time by reason and by fingerprint.

Events are counted when they happen, so a redrive or a purge does not change the counts.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal, TypedDict

from tidegate.domain.readers import (
    Seconds,
    choice_option,
    instant_from_text,
    instant_option,
    require_names,
    seconds_option,
)
from tidegate.errors import OptionError
from tidegate.operations.fingerprints import optional_fingerprint
from tidegate.store.history_rows import (
    DeathCountRow,
    HistoryRange,
    StatisticsRow,
    TenantStatisticsRow,
)
from tidegate.store.protocol import Store

Step = Literal["minute", "hour", "day"]
"""The length of a period. Days are UTC days."""

STEP_MINUTES = {"minute": 1, "hour": 60, "day": 1440}
MAX_PERIODS = 3_000
"""The most periods in one result: two days of minutes, four months of hours."""
DEFAULT_SINCE = "24h"


class HistoryFilters(TypedDict, total=False):
    """Which part of the history; every given filter must match."""

    since: datetime | Seconds | None
    """The start; a duration is an age: `"7d"` for the last week. Default: the last 24 hours."""
    until: datetime | Seconds | None
    """The end; a duration is an age. Default: now."""
    queue: str | None
    function: str | None
    """The full name of the task function."""


class DeathFilters(HistoryFilters, total=False):
    """Which dead tasks are counted; every given filter must match."""

    reason: str | None
    """A value of `Reason`: `content_policy`, `crash`…"""
    error_class: str | None
    """The dotted name of the exception class."""
    fingerprint: str | None
    """The 16 hex digits of a fingerprint, or the first digits of a known one."""
    tenant: str | None
    """Count only the tasks of this tenant that are still dead: counters of deaths have no tenant."""


class GroupFilters(DeathFilters, total=False):
    """Which groups of failures; every given filter must match."""


class StatisticsFilters(HistoryFilters, total=False):
    """Which counters; every given filter must match."""

    upstream: str | None


By = Literal["time", "queue", "function", "upstream"]
"""What each line of a summary is about."""

_WHOLE_TIME = 1_000_000 * STEP_MINUTES["day"]


async def read_statistics(
    store: Store, filters: StatisticsFilters, *, step: str, by: By | None = None
) -> list[StatisticsRow]:
    """Return counters of tasks and runs by period, queue, function and upstream, oldest first.

    Args:
        store: Holds the counters.
        filters: Which counters.
        step: The length of a period: `minute`, `hour` or `day`.
        by: The sum's only key: the period, or one name over the whole time. The other names of each row are
            then empty. None sums nothing.

    Raises:
        OptionError: A value is invalid, or the result would have too many periods.
    """
    minutes = STEP_MINUTES[choice_option("step", step, STEP_MINUTES)]
    require_names(filters, StatisticsFilters.__annotations__)
    which = await range_of(store, filters)
    which = replace(which, upstream=filters.get("upstream"))
    if by in (None, "time"):
        require_few_periods(which, minutes)
    if by is None:
        return await store.get_statistics(which, step_minutes=minutes)
    if by == "time":
        return await store.get_statistics(which, step_minutes=minutes, apart=())
    return await store.get_statistics(which, step_minutes=_WHOLE_TIME, apart=(by,))


async def read_tenant_statistics(
    store: Store, filters: HistoryFilters, *, tenant: str | None, limit: int
) -> list[TenantStatisticsRow]:
    """Return counters of tenants over the whole time, those with the most tasks first.

    Raises:
        OptionError: A value is invalid.
    """
    return await store.get_tenant_statistics(await range_of(store, filters), tenant=tenant, limit=limit)


async def count_deaths(store: Store, filters: DeathFilters, *, step: str) -> list[DeathCountRow]:
    """Return how many tasks died by period, queue, function and reason, oldest first.

    Raises:
        OptionError: A value is invalid, or the result would have too many periods.
    """
    minutes = STEP_MINUTES[choice_option("step", step, STEP_MINUTES)]
    which = await history_range(store, filters)
    require_few_periods(which, minutes)
    return await store.count_deaths(
        which,
        step_minutes=minutes,
        error_class=filters.get("error_class"),
        fingerprint=await optional_fingerprint(store, filters.get("fingerprint")),
        tenant=filters.get("tenant"),
    )


async def history_range(store: Store, filters: DeathFilters) -> HistoryRange:
    """Return the range of time. Ages count back from the store's present time.

    Raises:
        OptionError: A value is invalid.
    """
    require_names(filters, DeathFilters.__annotations__)
    return replace(await range_of(store, filters), reason=filters.get("reason"))


async def range_of(store: Store, filters: HistoryFilters) -> HistoryRange:
    """Return the time, queue and function. Ages count back from the store's present time.

    Raises:
        OptionError: A value is invalid.
    """
    now = await store.now()
    since = past_moment("since", filters.get("since") or DEFAULT_SINCE, now)
    given_until = filters.get("until")
    until = now if given_until is None else past_moment("until", given_until, now)
    if since >= until:
        raise OptionError(
            "since is not before until",
            fix="choose an earlier since or a later until",
            option="since",
            value=filters.get("since"),
        )
    return HistoryRange(since, until, filters.get("queue"), filters.get("function"))


def require_few_periods(which: HistoryRange, step_minutes: int) -> None:
    """Raise if a result with this step has too many periods.

    Raises:
        OptionError: The result would have more than `MAX_PERIODS` periods.
    """
    periods = (which.until - which.since) / (60.0 * step_minutes)
    if periods > MAX_PERIODS:
        raise OptionError(
            f"the range has {periods:,.0f} periods",
            fix=f"choose a longer step or a later since; an answer has at most {MAX_PERIODS:,}",
            option="step",
            value=step_minutes,
        )


def past_moment(option: str, value: datetime | Seconds, now: float) -> float:
    """Return the moment, in seconds since the epoch, of a datetime, an ISO 8601 text or an age."""
    if isinstance(value, datetime):
        return instant_option(option, value)
    if isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-":
        return instant_option(option, instant_from_text(option, value))
    return now - seconds_option(option, value)
