"""`tidegate budget`: what the retry budgets have spent and hold back."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_ago, format_duration
from tidegate.cli.output import jsonable, print_json
from tidegate.cli.table import print_table


@click.command()
@location_options
@json_option
def command(location: StoreLocation, as_json: bool) -> None:
    """Show the retry budgets of the system and of each upstream.

    ALLOWED is the pace, kept in every span of that length: a tenth at once, then evenly. USED counts the
    re-runs that left since SINCE, when the count last began at zero; NEXT is when one more may go.

    HELD are due tasks that a budget keeps in the retry queue; `tidegate tasks ls --state retrying` says
    when each is expected to go.
    """
    run(_show(location, as_json))


async def _show(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        rows = await store.list_retry_budgets()
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(jsonable(row) | {"left": max(0.0, row.amount - row.used)})
        return
    print_table(
        ["BUDGET", "IN", "ALLOWED", "USED", "SINCE", "HELD", "NEXT"],
        [
            [
                row.name or "(system)",
                format_duration(row.window_seconds),
                f"{row.amount:g}",
                row.used,
                format_ago(row.used_since_at, now),
                row.held,
                "now" if row.next_at <= now else format_ago(row.next_at, now),
            ]
            for row in rows
        ],
        numbers=["ALLOWED", "USED", "HELD"],
    )
