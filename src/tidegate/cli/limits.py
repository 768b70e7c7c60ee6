"""`tidegate limits`: rate limits of task functions. `tidegate upstreams` has the limits of upstreams."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.cli.worker_control import why_option
from tidegate.operations.function_limits import read_function_limits, set_function_limit
from tidegate.operations.pauses import current_user, require_declared


@click.group()
def command() -> None:
    """List and set the rate limits of task functions. For upstreams: `tidegate upstreams set`."""


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List the rate limits of task functions, and show which limits people have set."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        limits = (await read_function_limits(store)).values()
    if as_json:
        for limit in limits:
            print_json(limit)
    elif limits:
        print_table(["FUNCTION", "LIMIT"], [[each.function, each.describe()] for each in limits])
    else:
        print_message("no task function has a rate limit")


@command.command("set")
@click.argument("function")
@click.argument("rate")
@why_option
@location_options
def set_command(function: str, rate: str, why: str, location: StoreLocation) -> None:
    """Set the rate limit of FUNCTION (`app:summarize`) to RATE (`80/min`) for all workers, at once.

    RATE may be `none` for no limit. A rate set here overrides the code until RATE is `code`.
    """
    run(_set(location, function, rate, why))


async def _set(location: StoreLocation, function: str, rate: str, why: str) -> None:
    async with opened_store(location) as store:
        await require_declared(store, function, location.functions)
        answer = await set_function_limit(store, function, rate, by=current_user("command line"), why=why)
    print_message(f"{function}: {answer}")
