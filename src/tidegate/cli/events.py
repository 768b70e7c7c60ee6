"""`tidegate events`: send events to the tasks that wait for them."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import print_json, print_message
from tidegate.cli.values import as_seconds, json_or_text
from tidegate.domain.text import counted
from tidegate.operations.send_event import KEPT_SECONDS, send_event


@click.group()
def command() -> None:
    """Send events to the tasks that wait for them by `ctx.wait_event`."""


@command.command("send")
@click.argument("name")
@click.argument("data", required=False, default="null")
@click.option("--tenant", metavar="NAME", default="", help="The tenant whose tasks get it.")
@click.option("--key", metavar="TEXT", help="The same name and key are the same event.")
@click.option(
    "--keep",
    metavar="SPAN",
    type=as_seconds,
    default=KEPT_SECONDS,
    help="How long it is kept for tasks that begin to wait later; default: 7d.",
)
@location_options
@json_option
def send_command(
    name: str,
    data: str,
    tenant: str,
    key: str | None,
    keep: float,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Send the event NAME (`order:123:paid`) with DATA, and print how many tasks waited for it.

    DATA is read as JSON if it is valid JSON, otherwise as text.
    """
    run(_send(location, name, data, tenant, key, keep, as_json))


async def _send(
    location: StoreLocation, name: str, data: str, tenant: str, key: str | None, keep: float, as_json: bool
) -> None:
    async with opened_store(location) as store:
        delivered = await send_event(store, name, json_or_text(data), tenant=tenant, key=key, keep=keep)
    if as_json:
        print_json({"name": name, "delivered": delivered})
    else:
        print_message(f"event {name}: {counted(delivered, 'task')} waited for it")
