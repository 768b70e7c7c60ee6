"""`tidegate dead`: list, show, redrive and purge dead letters, by id or by filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tidegate.cli.common import (
    StoreLocation,
    dry_run_option,
    json_option,
    known_functions,
    location_options,
    opened_store,
    run,
)
from tidegate.cli.dead_letter_filters import DeadLetterSelection, filter_options
from tidegate.cli.error_report import CONFLICT
from tidegate.cli.output import print_json, print_message
from tidegate.cli.rendering import dead_letter_json, print_dead_letters, show_task
from tidegate.cli.tasks import exit_code_of, print_answers
from tidegate.cli.values import as_task_id, strict_json
from tidegate.deadletter.redrive import (
    BulkResult,
    purge_matching,
    purge_tasks,
    redrive_matching,
    redrive_tasks,
    require_declared,
)
from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.errors import TaskNotFoundError
from tidegate.operations.tasks import full_id, read_dead_task
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus

if TYPE_CHECKING:
    from tidegate.core import Core

ids_argument = click.argument("task_ids", metavar="[ID]...", nargs=-1, type=as_task_id)
all_option = click.option("--all", "everything", is_flag=True, help="Select every dead letter.")


@click.group()
def command() -> None:
    """List, show, redrive and purge dead letters."""


@command.command("ls")
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="ID", type=as_task_id, help="Start after this task.")
@location_options
@json_option
def list_command(
    selection: DeadLetterSelection, limit: int, after: str | None, location: StoreLocation, as_json: bool
) -> None:
    """List dead letters, the latest failure first."""
    run(_list(location, selection, after, limit, as_json))


async def _list(
    location: StoreLocation, selection: DeadLetterSelection, after: str | None, limit: int, as_json: bool
) -> None:
    async with opened_store(location) as store:
        which = await selection.filter(store)
        after = None if after is None else await full_id(store, after)
        dead_letters = await store.list_dead_letters(which, after=after, limit=limit)
        if as_json:
            for dead_letter in dead_letters:
                print_json(dead_letter_json(dead_letter))
        elif dead_letters:
            print_dead_letters(dead_letters, await store.now())
        count = await store.count_dead_letters(which)
        print_message(
            f"{len(dead_letters)} of {counted(count, 'dead letter')}" if count else "no dead letter matches"
        )
        if len(dead_letters) == limit and count > limit:
            print_message(f"more: --after {dead_letters[-1].task_id}")


@command.command("show")
@click.argument("task_id", metavar="ID", type=as_task_id)
@click.option("--args", "with_args", is_flag=True, help="Also show the arguments; they may be private.")
@location_options
@json_option
def show_command(task_id: str, with_args: bool, location: StoreLocation, as_json: bool) -> None:
    """Show one dead letter with its full history."""
    run(_show(location, task_id, with_args, as_json))


async def _show(location: StoreLocation, task_id: str, with_args: bool, as_json: bool) -> None:
    async with opened_store(location) as store:
        task_id = await full_id(store, task_id)
        await read_dead_task(store, task_id)
        await show_task(store, task_id, with_args=with_args, as_json=as_json)


@command.command("redrive")
@ids_argument
@filter_options
@all_option
@click.option(
    "--args",
    "new_args",
    metavar="JSON",
    help="New arguments for one task: an array, or an object by name.",
)
@dry_run_option
@location_options
@json_option
def redrive_command(
    selection: DeadLetterSelection,
    new_args: str | None,
    dry_run: bool,
    location: StoreLocation,
    as_json: bool,
) -> int:
    """Send dead letters back to their queue, by id, by filter, or with --all.

    Redrives only tasks whose function is declared by the application of --app, or by one whose workers have
    used this database. Attempts and other counters restart at zero; the history stays.
    """
    selection.require_choice()
    if new_args is not None and (len(selection.task_ids) != 1 or location.application is None):
        raise click.UsageError(
            "--args needs exactly one id, and --app to check the arguments against the signature"
        )
    return run(_redrive(location, selection, new_args, dry_run, as_json))


async def _redrive(
    location: StoreLocation,
    selection: DeadLetterSelection,
    new_args: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    async with opened_store(location) as store:
        selection = await selection.with_full_ids(store)
        if dry_run:
            return await _preview(store, selection, "redrive", as_json)
        declared = await known_functions(store, location)
        if not selection.task_ids:
            return await _redrive_matching(store, selection, declared, as_json)
        args = None
        if new_args is not None and location.application is not None:
            task_id = selection.task_ids[0]
            args = {task_id: await _checked_args(store, task_id, new_args, location.application)}
        answers = await redrive_tasks(store, selection.task_ids, declared, args=args)
        return _print_answers(selection.task_ids, answers, as_json)


async def _redrive_matching(
    store: Store, selection: DeadLetterSelection, declared: frozenset[str], as_json: bool
) -> int:
    if selection.which.function is not None:
        require_declared({selection.which.function}, declared)
    which = await selection.filter(store)
    on_progress = _progress(await store.count_dead_letters(which))
    return _print_bulk_result(
        await redrive_matching(store, which, declared, on_progress=on_progress), "redriven", as_json
    )


@command.command("purge")
@ids_argument
@filter_options
@all_option
@click.option("--yes", is_flag=True, help="Confirm the deletion.")
@dry_run_option
@location_options
@json_option
def purge_command(
    selection: DeadLetterSelection, yes: bool, dry_run: bool, location: StoreLocation, as_json: bool
) -> int:
    """Delete dead letters with their arguments and history, by id, by filter, or with --all."""
    selection.require_choice()
    return run(_purge(location, selection, yes, dry_run, as_json))


async def _purge(
    location: StoreLocation, selection: DeadLetterSelection, yes: bool, dry_run: bool, as_json: bool
) -> int:
    async with opened_store(location) as store:
        selection = await selection.with_full_ids(store)
        if dry_run or not yes:
            code = await _preview(store, selection, "purge", as_json)
            if not dry_run:
                raise click.UsageError("a purge cannot be undone: add --yes")
            return code
        if selection.task_ids:
            return _print_answers(selection.task_ids, await purge_tasks(store, selection.task_ids), as_json)
        which = await selection.filter(store)
        on_progress = _progress(await store.count_dead_letters(which))
        return _print_bulk_result(
            await purge_matching(store, which, on_progress=on_progress), "purged", as_json
        )


async def _checked_args(store: Store, task_id: str, text: str, core: Core) -> tuple[bytes, str]:
    """Return new arguments as a payload, after checking them against the function's signature."""
    from tidegate.codec import CODEC

    try:
        given = strict_json(text)
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}") from None
    if not isinstance(given, list | dict):
        raise click.UsageError("--args must be a JSON array (by position) or object (by name)")
    rows = await store.read_tasks([task_id])
    if task_id not in rows:
        raise TaskNotFoundError(f"no task has the id {task_id}", fix="check the id", task_id=task_id)
    payload = json.dumps({"a": given} if isinstance(given, list) else {"k": given})
    signature = core.function(rows[task_id].function).signature
    return signature.accept(payload.encode()), CODEC


def _progress(count: int) -> Callable[[BulkResult], None]:
    def print_progress(result: BulkResult) -> None:
        seen = result.done + result.refused + result.undeclared.total()
        if count > seen:
            print_message(f"{seen} of {count}…")

    return print_progress


async def _preview(store: Store, selection: DeadLetterSelection, verb: str, as_json: bool) -> int:
    """Print how many dead letters a command would change, and change nothing."""
    if selection.task_ids:
        rows = await store.read_tasks(selection.task_ids)
        count = sum(row.state is State.DEAD for row in rows.values())
    else:
        count = await store.count_dead_letters(await selection.filter(store))
    if as_json:
        print_json({"would": verb, "count": count})
    print_message(f"would {verb} {counted(count, 'dead letter')}; nothing was changed")
    return 0


def _print_bulk_result(result: BulkResult, done: str, as_json: bool) -> int:
    if as_json:
        print_json({done: result.done, "refused": result.refused, "undeclared": result.undeclared})
    else:
        click.echo(f"{done} {result.done}")
    if result.refused:
        print_message(f"{result.refused} refused: no longer dead, or another task has their unique name")
    for function, count in sorted(result.undeclared.items()):
        print_message(
            f"{count} skipped: no application declares {function} "
            "→ start a worker that declares it, or give --app"
        )
    return CONFLICT if result.undeclared else 0


def _print_answers(task_ids: Sequence[str], answers: Mapping[str, ActionStatus], as_json: bool) -> int:
    print_answers(task_ids, answers, as_json)
    return exit_code_of(answers.values())
