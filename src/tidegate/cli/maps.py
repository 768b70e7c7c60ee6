"""`tidegate maps`: list and show maps, cancel one, and retry its dead items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_ago, moment
from tidegate.cli.output import print_facts, print_json, print_message
from tidegate.cli.table import print_table
from tidegate.domain.text import counted, format_duration
from tidegate.maps.progress import MapProgress, read_progress
from tidegate.operations import maps
from tidegate.store.map_rows import MapItemRow, MapRow

id_argument = click.argument("map_id", metavar="ID")


@click.group()
def command() -> None:
    """List and show maps: many tasks that were enqueued as one."""


@command.command("ls")
@click.option("--tenant", metavar="NAME", help="Only maps of this tenant.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="ID", help="Start after this map.")
@location_options
@json_option
def list_command(
    tenant: str | None, limit: int, after: str | None, location: StoreLocation, as_json: bool
) -> None:
    """List maps, the latest first."""
    run(_list(location, tenant, limit, after, as_json))


async def _list(
    location: StoreLocation, tenant: str | None, limit: int, after: str | None, as_json: bool
) -> None:
    async with opened_store(location) as store:
        last = None if after is None else (await maps.get_map(store, after)).id
        rows = await store.list_maps(tenant=tenant, after=last, limit=limit)
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(map_json(row))
    elif rows:
        _print_maps(rows, now)
    else:
        print_message("no map yet: `await f.map(items)` makes one")
    if len(rows) == limit:
        print_message(f"more: --after {rows[-1].id}")


@command.command("show")
@id_argument
@click.option("--items", "with_items", is_flag=True, help="Also list its items.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="List at most this many."
)
@click.option("--after", type=click.IntRange(0), metavar="INDEX", help="List items after this one.")
@location_options
@json_option
def show_command(
    map_id: str, with_items: bool, limit: int, after: int | None, location: StoreLocation, as_json: bool
) -> None:
    """Show one map: its progress, when it is expected to end, how it ended."""
    run(_show(location, map_id, with_items, limit, after, as_json))


async def _show(
    location: StoreLocation, map_id: str, with_items: bool, limit: int, after: int | None, as_json: bool
) -> None:
    async with opened_store(location) as store:
        row = await maps.get_map(store, map_id)
        progress = await read_progress(store, row)
        items = []
        if with_items:
            items = await store.list_map_items(row.id, after=-1 if after is None else after, limit=limit)
    if as_json:
        listed = {"list": [_item_json(item) for item in items]} if with_items else {}
        print_json(map_json(row) | _progress_json(progress) | listed)
        return
    _print_map(row, progress)
    if items:
        print_table(
            ["INDEX", "TASK", "STATE", "REASON"],
            [[item.position, item.task_id, item.state, item.reason] for item in items],
            numbers=["INDEX"],
        )
    if items and len(items) == limit:
        print_message(f"more: --after {items[-1].position}")


@command.command("cancel")
@id_argument
@click.option("--why", default="", metavar="TEXT", help="Kept in the history of each item.")
@location_options
@json_option
def cancel_command(map_id: str, why: str, location: StoreLocation, as_json: bool) -> None:
    """Cancel every item that is not final. Running ones are asked to stop."""
    run(_cancel(location, map_id, why, as_json))


async def _cancel(location: StoreLocation, map_id: str, why: str, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await maps.get_map(store, map_id)
        is_first = await maps.cancel_map(store, row.id, why)
        progress = await read_progress(store, row)
    if as_json:
        print_json({"map": row.id, "cancelled_now": is_first} | _progress_json(progress))
        return
    if not is_first:
        print_message("it has ended, or is being cancelled already")
    left = f", {counted(progress.running, 'item')} asked to stop" if progress.running else ""
    click.echo(f"{row.id}  {progress.cancelled} of {counted(row.items, 'item')} cancelled{left}")


@command.command("retry")
@id_argument
@click.option(
    "--repeat-doubts", is_flag=True, help="Also send items whose last call may have been processed."
)
@location_options
@json_option
def retry_command(map_id: str, repeat_doubts: bool, location: StoreLocation, as_json: bool) -> None:
    """Send the dead items back to the main queue, with fresh counters."""
    run(_retry(location, map_id, repeat_doubts, as_json))


async def _retry(location: StoreLocation, map_id: str, repeat_doubts: bool, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await maps.get_map(store, map_id)
        sent, doubts = await maps.retry_failed(store, row.id, repeat_doubts=repeat_doubts)
    if as_json:
        print_json({"map": row.id, "sent": sent, "in_doubt": doubts})
    else:
        click.echo(f"{row.id}  {counted(sent, 'dead item')} sent to the main queue")
    if doubts:
        print_message(
            f"{counted(doubts, 'item')} made calls that may have been processed: check at the provider, then"
            " --repeat-doubts"
        )


def map_json(row: MapRow) -> dict[str, Any]:
    """Return a map as a JSON value."""
    return {
        "map": row.id,
        "name": row.name,
        "state": state_of(row),
        "function": row.function,
        "tenant": row.tenant or None,
        "key": row.key,
        "items": row.items,
        "max_failures": row.max_failures,
        "created_at": moment(row.created_at),
        "cancelled_at": None if row.cancelled_at is None else moment(row.cancelled_at),
        "cancel_why": row.cancel_why,
        "ended_at": None if row.ended_at is None else moment(row.ended_at),
        "callback": row.callback_id,
    }


def state_of(row: MapRow) -> str:
    """Return the state of a map: `running`, `cancelling` or `ended`."""
    if row.ended_at is not None:
        return "ended"
    return "running" if row.cancelled_at is None else "cancelling"


def _progress_json(progress: MapProgress) -> dict[str, Any]:
    return {
        "succeeded": progress.succeeded,
        "dead": progress.dead,
        "cancelled": progress.cancelled,
        "running": progress.running,
        "waiting": progress.waiting,
        "seconds_left": progress.seconds_left,
    }


def _item_json(item: MapItemRow) -> dict[str, Any]:
    return {"index": item.position, "task": item.task_id, "state": item.state, "reason": item.reason}


def _print_maps(rows: Sequence[MapRow], now: float) -> None:
    print_table(
        ["ID", "NAME", "STATE", "ITEMS", "FUNCTION", "TENANT", "CREATED"],
        [
            [
                row.id,
                row.name,
                state_of(row),
                row.items,
                row.function,
                row.tenant,
                format_ago(row.created_at, now),
            ]
            for row in rows
        ],
        numbers=["ITEMS"],
        optional=["TENANT", "CREATED", "FUNCTION"],
        shorten=["NAME", "FUNCTION"],
    )


def _print_map(row: MapRow, progress: MapProgress) -> None:
    print_facts(
        {
            "map": row.id,
            "name": row.name or None,
            "state": f"{state_of(row)}: {row.cancel_why}" if row.cancel_why else state_of(row),
            "function": row.function,
            "tenant": row.tenant or None,
            "key": row.key,
            "items": row.items,
            "succeeded": progress.succeeded,
            "dead": progress.dead or None,
            "cancelled": progress.cancelled or None,
            "running": progress.running or None,
            "waiting": progress.waiting or None,
            "time left": _time_left(progress),
            "created": moment(row.created_at),
            "ended": moment(row.ended_at),
            "callback": row.callback_id,
        }
    )


def _time_left(progress: MapProgress) -> str | None:
    if progress.is_complete:
        return None
    if progress.seconds_left is None:
        return "unknown: no item ended in the last ten minutes"
    return f"about {format_duration(progress.seconds_left)}"
