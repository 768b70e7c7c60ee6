"""`tidegate pools`: list the pools of the live workers, and change their concurrency."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.cli.worker_control import apply, wait_option, why_option
from tidegate.domain.readers import whole_option
from tidegate.operations.pauses import current_user
from tidegate.operations.workers import WAIT_SECONDS, read_pools, set_concurrency

_CODE = "code"


@click.group()
def command() -> None:
    """List the pools of the live workers, and change their concurrency."""


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List the pools of the live workers."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        pools = await read_pools(store)
    if as_json:
        for pool in pools:
            print_json(pool)
    elif pools:
        rows = [
            [pool.name, pool.processes, pool.quiet, f"{pool.running}/{pool.slots}", pool.describe()]
            for pool in pools
        ]
        heads = ["POOL", "PROCESSES", "QUIET", "BUSY", "CONCURRENCY"]
        print_table(heads, rows, numbers=heads[1:4], shorten=["POOL"])
    else:
        print_message("no live worker; start one: tidegate worker MODULE:APP")


@command.command("set")
@click.argument("name", metavar="POOL")
@click.option(
    "--concurrency",
    required=True,
    metavar="NUMBER",
    help="How many tasks each process runs at once; `code` restores the number in the code or tidegate.toml.",
)
@why_option
@wait_option(f"{WAIT_SECONDS:g}s")
@location_options
@json_option
def set_command(
    name: str, concurrency: str, why: str, wait: float, location: StoreLocation, as_json: bool
) -> int:
    """Change how many tasks each process of POOL runs at once, in all workers and without a restart.

    The number overrides the code, also after restarts, until `--concurrency code` is set. If more tasks are
    running than the new number, they continue, and no task starts until enough have ended.
    """
    number = None if concurrency == _CODE else whole_option("--concurrency", _as_number(concurrency))
    by = current_user("command line")
    return apply(
        location, lambda store: set_concurrency(store, name, number, by=by, why=why), wait, as_json=as_json
    )


def _as_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.UsageError("--concurrency takes a number, or `code`") from None
