"""`tidegate ops`: list, show, abort and undo operations on many dead letters."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.operation_rendering import (
    letter_json,
    operation_json,
    print_letters,
    print_operation,
    print_operations,
)
from tidegate.cli.output import print_json, print_message
from tidegate.operations import bulk
from tidegate.operations.pauses import current_user
from tidegate.store.operation_rows import LetterState, OperationKind, OperationRow

id_argument = click.argument("operation_id", metavar="ID")


@click.group()
def command() -> None:
    """List, show, abort and undo operations: redrives and purges of dead letters."""


@command.command("ls")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="ID", help="Start after this operation.")
@location_options
@json_option
def list_command(limit: int, after: str | None, location: StoreLocation, as_json: bool) -> None:
    """List operations, the latest first."""
    run(_list(location, limit, after, as_json))


async def _list(location: StoreLocation, limit: int, after: str | None, as_json: bool) -> None:
    async with opened_store(location) as store:
        last = None if after is None else (await bulk.get_operation(store, after)).id
        rows = await store.list_operations(after=last, limit=limit)
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(operation_json(row))
    elif rows:
        print_operations(rows, now)
    else:
        print_message("no operation yet: `tidegate dead redrive` and `dead purge` start one")
    if len(rows) == limit:
        print_message(f"more: --after {rows[-1].id}")


@command.command("show")
@id_argument
@click.option(
    "--letters",
    "letter_state",
    type=click.Choice(["all", *(str(state) for state in LetterState)]),
    help="Also list the letters of the operation in this state, or all.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="List at most this many."
)
@click.option("--after", metavar="TASK", help="List letters after this task.")
@location_options
@json_option
def show_command(
    operation_id: str,
    letter_state: str | None,
    limit: int,
    after: str | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Show one operation: who started it, its progress, what it waits for, how it ended."""
    run(_show(location, operation_id, letter_state, limit, after, as_json))


async def _show(
    location: StoreLocation,
    operation_id: str,
    letter_state: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    async with opened_store(location) as store:
        row = await bulk.get_operation(store, operation_id)
        letters = []
        if letter_state is not None:
            state = None if letter_state == "all" else LetterState(letter_state)
            letters = await store.list_letters(row.id, state=state, after=after, limit=limit)
    if as_json:
        listed = {"letters": [letter_json(letter) for letter in letters]} if letter_state else {}
        print_json(operation_json(row) | listed)
        return
    print_operation(row)
    if letters:
        print_letters(letters)
    if len(letters) == limit:
        print_message(f"more: --after {letters[-1].task_id}")


@command.command("abort")
@id_argument
@location_options
@json_option
def abort_command(operation_id: str, location: StoreLocation, as_json: bool) -> None:
    """Stop an operation: it sends or deletes no more letters. Letters that were sent go on."""
    run(_change(location, operation_id, as_json, undo=False))


@command.command("undo")
@id_argument
@location_options
@json_option
def undo_command(operation_id: str, location: StoreLocation, as_json: bool) -> None:
    """Stop a redrive, and turn the letters that have not started back into dead letters."""
    run(_change(location, operation_id, as_json, undo=True))


async def _change(location: StoreLocation, operation_id: str, as_json: bool, *, undo: bool) -> None:
    async with opened_store(location) as store:
        row = await bulk.get_operation(store, operation_id)
        act = bulk.undo if undo else bulk.abort
        row = await act(store, row.id, by=current_user("command line"))
    if as_json:
        print_json(operation_json(row))
    else:
        click.echo(f"{row.id}  {row.state}")
    print_message(_describe_end(row))


def _describe_end(row: OperationRow) -> str:
    verb = "sent" if row.kind is OperationKind.REDRIVE else "deleted"
    undone = f", {row.undone} undone" if row.undone else ""
    return f"{row.sent} of {row.preview} letters were {verb}{undone}"
