"""`tidegate dead summary`: compare the deaths of the last 24 hours with the day before."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import printable
from tidegate.cli.output import jsonable, print_json
from tidegate.deadletter.daily_summary import DailySummary, read_summary


@click.command("summary")
@location_options
@json_option
def summary_command(location: StoreLocation, as_json: bool) -> None:
    """Summarise the deaths of the last 24 hours by reason and function, compared with the day before.

    The summary also lists surges, and groups of failures that are new, reopened, or still open after a death
    in the last seven days. Workers report the same once a day to the log and to the sinks of alerts: see
    `daily_summary` in the settings of alerts.
    """

    async def summary() -> DailySummary:
        async with opened_store(location) as store:
            return await read_summary(store, await store.now())

    found = run(summary())
    if as_json:
        print_json(jsonable(found))
    else:
        for line in found.lines:
            click.echo(printable(line))
