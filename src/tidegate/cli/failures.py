"""`tidegate failures`: failures of attempts, including tasks that succeeded later."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.dead_statistics import range_options
from tidegate.cli.formatting import format_since
from tidegate.cli.output import print_json, print_message
from tidegate.cli.rendering import join_parts
from tidegate.cli.table import print_table
from tidegate.domain.text import counted
from tidegate.operations.failure_groups import (
    UnknownFailure,
    list_unknown,
    mark_reviewed,
    unknown_fields,
)
from tidegate.operations.history import HistoryFilters
from tidegate.operations.pauses import current_user


@click.group()
def command() -> None:
    """List failures that no rule classifies, and mark them as reviewed."""


@command.command("unknown")
@range_options
@click.option("--function", metavar="NAME", help="Only this task function, by its full name.")
@click.option("--all", "with_reviewed", is_flag=True, help="Also list groups that were reviewed.")
@click.option(
    "--reviewed",
    metavar="FINGERPRINT",
    multiple=True,
    help="Mark this group as reviewed instead, by its fingerprint or its first digits. Repeatable.",
)
@click.option("--note", default="", metavar="TEXT", help="With --reviewed: a note on what was found.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many."
)
@location_options
@json_option
def unknown_command(
    since: str,
    until: str | None,
    function: str | None,
    with_reviewed: bool,
    reviewed: Sequence[str],
    note: str,
    limit: int,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Group the failed attempts that no rule classifies, the largest group first.

    The attempts of all stored tasks count, even if the task succeeded later. RULE is the line of code that
    adds a rule for the failure: `on` if another run helped most of its tasks, otherwise `discard`. A reviewed
    failure is left out. The same failure from a different frame of your code has a different fingerprint, so
    it is listed.
    """
    if reviewed:
        run(_review(location, reviewed, note))
        return
    filters = HistoryFilters(since=since, until=until, function=function)
    run(_unknown(location, filters, limit, with_reviewed, as_json))


async def _review(location: StoreLocation, fingerprints: Sequence[str], note: str) -> None:
    async with opened_store(location) as store:
        for found in await mark_reviewed(store, fingerprints, by=current_user("command line"), note=note):
            print_message(f"{found}: reviewed")


async def _unknown(
    location: StoreLocation, filters: HistoryFilters, limit: int, with_reviewed: bool, as_json: bool
) -> None:
    async with opened_store(location) as store:
        found = await list_unknown(store, filters, limit=limit, with_reviewed=with_reviewed)
        now = await store.now()
    if as_json:
        for each in found:
            print_json(unknown_fields(each))
    elif found:
        _print_unknown(found, now)
    else:
        print_message("no failure without a rule in this time")
    if len(found) == limit:
        print_message(f"{counted(limit, 'group')} shown; --limit shows more")


def _print_unknown(found: Sequence[UnknownFailure], now: float) -> None:
    rows = []
    for each in found:
        row = each.row
        frame = f" ({row.frame})" if row.frame else ""
        rows.append(
            [
                row.attempts,
                row.tasks,
                row.succeeded,
                format_since(row.last_at, now),
                format_since(row.first_at, now),
                row.fingerprint[:8] + (" (reviewed)" if each.reviewed else ""),
                ", ".join(row.functions),
                each.rule,
                join_parts(row.error_class, row.sample) + frame,
            ]
        )
    heads = ["ATTEMPTS", "TASKS", "SUCCEEDED", "LAST", "FIRST", "FINGERPRINT", "FUNCTION", "RULE", "FAILURE"]
    print_table(
        heads,
        rows,
        numbers=heads[:3],
        optional=["FIRST", "FUNCTION", "LAST"],
        shorten=["FUNCTION", "RULE"],
    )
