"""`tidegate functions`: list task functions, pause and resume them."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import print_json, print_message
from tidegate.cli.pauses import resume_named, why_option
from tidegate.cli.table import print_table
from tidegate.limits.pauses import PauseKind
from tidegate.operations.pauses import current_user, pause, read_pauses, require_declared
from tidegate.store.live_workers import declared_functions

name_argument = click.argument("name", metavar="FUNCTION")


@click.group()
def command() -> None:
    """List task functions, and pause and resume them. Names are full: `app:summarize`."""


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List the task functions that applications declared here, and show which functions are paused."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        pauses, now = await read_pauses(store), await store.now()
        names = sorted({*await declared_functions(store, location.functions), *pauses.functions})
    if as_json:
        for name in names:
            print_json({"function": name, "pause": pauses.of_function(name)})
    elif names:
        found = [(name, pauses.of_function(name)) for name in names]
        rows = [[name, "" if pause is None else pause.describe(now)] for name, pause in found]
        print_table(["FUNCTION", "PAUSED"], rows, shorten=["FUNCTION"])
    else:
        print_message("no function yet: a worker adds the functions that its application declares")


@command.command("pause")
@name_argument
@why_option
@location_options
def pause_command(name: str, why: str, location: StoreLocation) -> None:
    """Start no more tasks of this function, in any queue and worker, until it is resumed.

    Running tasks continue, waiting tasks keep their place, and new tasks are accepted. The pause survives all
    restarts.
    """
    run(_pause(location, name, why))


async def _pause(location: StoreLocation, name: str, why: str) -> None:
    async with opened_store(location) as store:
        await require_declared(store, name, location.functions)
        is_new = await pause(store, PauseKind.FUNCTION, name, by=current_user("command line"), why=why)
    print_message(f"{name}: {'paused' if is_new else 'it was paused already'}")


@command.command("resume")
@name_argument
@location_options
def resume_command(name: str, location: StoreLocation) -> None:
    """Let the tasks of this function start again."""
    run(resume_named(location, PauseKind.FUNCTION, name))
