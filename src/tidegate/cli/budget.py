"""`tidegate budget`: how much of each retry budget is used, and which tasks wait for it."""

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

    ALLOWED is how many re-runs may start in any period of length IN: a tenth may start at once, the others
    evenly spread. USED counts the re-runs since SINCE, when the count last restarted at zero. NEXT is when
    one more re-run may start.

    HELD counts due tasks that wait for a budget. `tidegate tasks ls --state retrying` shows when each task is
    expected to run.
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
