"""`tidegate dead surges`, and the lines about surges in `tidegate dead stats`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.deadletter.surges import (
    DEFAULT_WINDOW,
    SURGE_KEYS,
    GroupSurge,
    find_surges,
    surge_fields,
)
from tidegate.policy.surge import SurgeComparison


@click.command("surges")
@click.option(
    "--by",
    type=click.Choice(SURGE_KEYS),
    default="function",
    show_default=True,
    help="How to group the deaths.",
)
@click.option(
    "--window",
    metavar="DURATION",
    default=DEFAULT_WINDOW,
    show_default=True,
    help="The length of the present period: a minute (1m) to a day (24h).",
)
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--function", metavar="NAME", help="Only this task function, by its full name.")
@click.option("--reason", metavar="WORD", help="Only this reason: content_policy, crash…")
@click.option("--fingerprint", metavar="HEX", help="Only this fingerprint.")
@location_options
@json_option
def surges_command(
    by: str,
    window: str,
    queue: str | None,
    function: str | None,
    reason: str | None,
    fingerprint: str | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Compare the deaths of the last hour with those of the same hours of earlier days.

    Lists every group that had a death, surges first. In a surge, both the count of deaths and their share of
    the ended tasks are high. The exit code is 0 with and without surges.
    """

    async def surges() -> Sequence[GroupSurge]:
        async with opened_store(location) as store:
            return await find_surges(
                store,
                by=by,
                window=window,
                queue=queue,
                function=function,
                reason=reason,
                fingerprint=fingerprint,
            )

    found = run(surges())
    if as_json:
        for each in found:
            print_json(surge_fields(each))
    elif found:
        print_surges(found)
    else:
        print_message("no task died in this time")


def print_surges(found: Sequence[GroupSurge]) -> None:
    """Print a table of groups."""
    rows = [
        [
            _kind(each),
            f"{each.surge.count.now:.0f}",
            _expected(each.surge.count, percent=False),
            f"{each.surge.share.now * 100:.1f}%",
            _expected(each.surge.share, percent=True),
            each.key,
            each.surge.why,
        ]
        for each in found
    ]
    heads = ["SURGE", "DEATHS", "EXPECTED", "SHARE", "USUAL SHARE", found[0].by.upper(), "WHY"]
    print_table(
        heads, rows, numbers=heads[1:5], optional=["USUAL SHARE", "SHARE", "EXPECTED"], shorten=[heads[5]]
    )


def _kind(each: GroupSurge) -> str:
    kinds = [name for name in ("count", "share") if getattr(each.surge, name).surges]
    return "+".join(kinds) or "-"


def _expected(comparison: SurgeComparison, *, percent: bool) -> str:
    if comparison.expected is None:
        return "-"
    return f"{comparison.expected * 100:.1f}%" if percent else f"{comparison.expected:.1f}"
