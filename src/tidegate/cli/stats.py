"""`tidegate stats`: what happened to tasks, by time, queue, function, upstream or tenant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.dead_statistics import format_period, range_options
from tidegate.cli.formatting import format_duration
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.operations import history
from tidegate.operations.history import STEP_MINUTES, By, StatisticsFilters
from tidegate.operations.statistics import Summary, read_summaries, summary
from tidegate.store.history_rows import Counts, TenantStatisticsRow

_COUNTS = {
    "ENQUEUED": "enqueued",
    "STARTED": "started",
    "SUCCEEDED": "succeeded",
    "DEAD": "dead",
    "CANCELLED": "cancelled",
    "RETRIED": "retried",
    "RELEASED": "released",
}
_USAGE = {"CALLS": "calls", "TOKENS IN": "input_tokens", "TOKENS OUT": "output_tokens"}
_TIMES = {"RUN P50": "run_p50", "RUN P95": "run_p95", "WAIT P50": "wait_p50", "WAIT P95": "wait_p95"}
_OPTIONAL = ("RELEASED", "CANCELLED", "CALLS", "TOKENS IN", "TOKENS OUT", "RETRIED", "WAIT P50", "RUN P50")
_MOST_TENANTS = 100


@click.command()
@range_options
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--function", metavar="NAME", help="Only this task function, by its full name.")
@click.option("--upstream", metavar="NAME", help="Only tasks of this upstream.")
@click.option(
    "--by",
    type=click.Choice(["time", "queue", "function", "upstream", "tenant"]),
    default="time",
    show_default=True,
    help="What each line is about. Counters of tenants are kept by the hour, and not by queue or function.",
)
@click.option(
    "--step",
    type=click.Choice(list(STEP_MINUTES)),
    default="hour",
    show_default=True,
    help="The length of a period. Counters are kept by the minute for two days, by the hour for 35 days.",
)
@location_options
@json_option
def command(
    since: str,
    until: str | None,
    queue: str | None,
    function: str | None,
    upstream: str | None,
    by: str,
    step: str,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Show what happened over hours and days: counts, times, tokens.

    Events are counted when they happen: a redrive or a purge does not change the counts. P50 and P95 are
    estimated times that 50 % and 95 % of the runs did not exceed. With --json: one line for each period,
    queue, function and upstream, or for each tenant.
    """
    filters = StatisticsFilters(since=since, until=until, queue=queue, function=function, upstream=upstream)
    if by == "tenant":
        if queue or function or upstream:
            raise click.UsageError("tenants are not counted by queue, function or upstream")
        run(_show_tenants(location, filters, as_json))
    else:
        run(_show(location, filters, cast(By, by), step, as_json))


async def _show(
    location: StoreLocation, filters: StatisticsFilters, by: By, step: str, as_json: bool
) -> None:
    async with opened_store(location) as store:
        if as_json:
            for row in await history.read_statistics(store, filters, step=step):
                sums = summary(row.at, row)
                print_json(statistics_json(row.at, row.queue, row.function, row.upstream, sums))
            return
        found = await read_summaries(store, filters, by=by, step=step)
    if found:
        rows = [
            [format_period(each.key, step) if by == "time" else each.key or "-", *_cells(each)]
            for each in found
        ]
        heads = ["FROM (UTC)" if by == "time" else by.upper(), *_COUNTS, *_TIMES, *_USAGE]
        print_table(heads, rows, numbers=heads[1:], optional=_OPTIONAL, shorten=heads[:1])
    else:
        print_message("nothing happened in this time")


async def _show_tenants(location: StoreLocation, filters: StatisticsFilters, as_json: bool) -> None:
    async with opened_store(location) as store:
        found: Sequence[TenantStatisticsRow] = await history.read_tenant_statistics(
            store, filters, tenant=None, limit=_MOST_TENANTS
        )
    if as_json:
        for row in found:
            print_json({"tenant": row.tenant} | asdict(row.counts))
    elif found:
        heads = ["TENANT", *_COUNTS, *_USAGE]
        rows = [[row.tenant, *_count_cells(row.counts, _COUNTS | _USAGE)] for row in found]
        print_table(heads, rows, numbers=heads[1:], optional=_OPTIONAL[:-2], shorten=heads[:1])
    else:
        print_message("no task of a tenant in this time")


def statistics_json(at: float, queue: str, function: str, upstream: str, found: Summary) -> dict[str, Any]:
    """Return counters of one channel and period as JSON values."""
    times = {name: getattr(found, name) for name in _TIMES.values()}
    return (
        {"at": at, "queue": queue, "function": function, "upstream": upstream} | asdict(found.counts) | times
    )


def _cells(found: Summary) -> list[object]:
    times = [format_duration(getattr(found, name)) for name in _TIMES.values()]
    return [*_count_cells(found.counts, _COUNTS), *times, *_count_cells(found.counts, _USAGE)]


def _count_cells(counts: Counts, columns: dict[str, str]) -> list[object]:
    return [getattr(counts, name) for name in columns.values()]
