"""`tidegate dead`: list, show, redrive, purge and export dead letters, by id or by filter.

Commands that only read the history of deaths are in `dead_statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from tidegate.cli.common import (
    StoreLocation,
    dry_run_option,
    json_option,
    location_options,
    opened_store,
    run,
)
from tidegate.cli.dead_export import export_command
from tidegate.cli.dead_filters import choice_options, filter_options
from tidegate.cli.dead_states import mute_command, reopen_command, resolve_command
from tidegate.cli.dead_statistics import groups_command, stats_command
from tidegate.cli.dead_summary import summary_command
from tidegate.cli.dead_surges import surges_command
from tidegate.cli.operation_rendering import print_started
from tidegate.cli.output import print_json, print_message
from tidegate.cli.redrive_options import redrive_options
from tidegate.cli.rendering import dead_letter_json, print_dead_letters, show_task
from tidegate.cli.tasks import exit_code_of, print_answers
from tidegate.cli.values import as_task_id, strict_json
from tidegate.domain.text import counted
from tidegate.operations import dead_letters
from tidegate.operations.dead_letters import DeadLetterChoice, DeadLetterFilters
from tidegate.operations.pauses import current_user
from tidegate.operations.tasks import full_id, read_dead_task, read_task
from tidegate.store.operation_rows import RedriveSettings
from tidegate.store.protocol import Store

if TYPE_CHECKING:
    from tidegate.application.core import Core


@click.group()
def command() -> None:
    """List, count, group, show, redrive and purge dead letters, or write one as a test."""


command.add_command(stats_command)
command.add_command(groups_command)
command.add_command(surges_command)
command.add_command(resolve_command)
command.add_command(mute_command)
command.add_command(reopen_command)
command.add_command(summary_command)
command.add_command(export_command)


@command.command("ls")
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="ID", type=as_task_id, help="Start after this task.")
@location_options
@json_option
def list_command(
    filters: DeadLetterFilters, limit: int, after: str | None, location: StoreLocation, as_json: bool
) -> None:
    """List dead letters, the latest failure first."""
    run(_list(location, filters, after, limit, as_json))


async def _list(
    location: StoreLocation, filters: DeadLetterFilters, after: str | None, limit: int, as_json: bool
) -> None:
    async with opened_store(location) as store:
        which = await dead_letters.task_filter(store, filters)
        after = None if after is None else await full_id(store, after)
        found = await store.list_dead_letters(which, after=after, limit=limit)
        if as_json:
            for dead_letter in found:
                print_json(dead_letter_json(dead_letter))
        elif found:
            print_dead_letters(found, await store.now())
        count = await store.count_dead_letters(which)
        print_message(
            f"{len(found)} of {counted(count, 'dead letter')}" if count else "no dead letter matches"
        )
        if len(found) == limit and count > limit:
            print_message(f"more: --after {found[-1].task_id}")


@command.command("show")
@click.argument("task_id", metavar="ID", type=as_task_id)
@click.option("--args", "with_args", is_flag=True, help="Also show the arguments, which may be private.")
@location_options
@json_option
def show_command(task_id: str, with_args: bool, location: StoreLocation, as_json: bool) -> None:
    """Show one dead letter with its full history."""
    run(_show(location, task_id, with_args, as_json))


async def _show(location: StoreLocation, task_id: str, with_args: bool, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await read_dead_task(store, task_id)
        await show_task(store, row, with_args=with_args, as_json=as_json)


@command.command("redrive")
@choice_options
@click.option(
    "--args",
    "new_args",
    metavar="JSON",
    help="New arguments for one task: an array, or an object by name.",
)
@redrive_options
@dry_run_option
@location_options
@json_option
def redrive_command(
    task_ids: Sequence[str] | None,
    filters: DeadLetterFilters,
    new_args: str | None,
    settings: RedriveSettings,
    expect: int | None,
    wait: bool,
    dry_run: bool,
    location: StoreLocation,
    as_json: bool,
) -> int:
    """Send dead letters back to their queue, by id, by filter, or with --all.

    Up to 100 ids are sent immediately. A filter starts an operation: a canary of 1% goes first, at least 5
    letters. If too many first attempts of the canary fail, the operation stops. Otherwise the other letters
    follow in small batches. A worker or scheduler must be running for this. `tidegate ops` shows, aborts and
    undoes operations.

    Only tasks whose function is declared are redriven: by the application of --app, or by one whose workers
    have used this database. Counters restart at zero; the history stays.
    """
    if new_args is not None and (len(task_ids or ()) != 1 or location.application is None):
        raise click.UsageError(
            "--args needs exactly one id, and --app to check the arguments against the signature"
        )
    return run(_redrive(location, task_ids, filters, new_args, settings, expect, wait, dry_run, as_json))


async def _redrive(
    location: StoreLocation,
    task_ids: Sequence[str] | None,
    filters: DeadLetterFilters,
    new_args: str | None,
    settings: RedriveSettings,
    expect: int | None,
    wait: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    async with opened_store(location) as store:
        choice = await dead_letters.choose(store, task_ids, filters)
        if dry_run:
            return await _preview(store, choice, "redrive", settings, as_json)
        args = None
        if new_args is not None and location.application is not None:
            args = await _checked_args(store, choice, new_args, location.application)
        report = await dead_letters.redrive(
            store,
            choice,
            location.functions,
            by=current_user("command line"),
            settings=settings,
            args=args,
            expect=expect,
        )
        if choice.task_ids is None or (report.operation_id and not report.answers):
            return await print_started(store, report.operation_id, wait=wait, as_json=as_json)
    print_answers(choice.task_ids, report.answers, as_json)
    return exit_code_of(report.answers.values())


@command.command("purge")
@choice_options
@click.option("--yes", is_flag=True, help="Confirm the deletion.")
@dry_run_option
@location_options
@json_option
def purge_command(
    task_ids: Sequence[str] | None,
    filters: DeadLetterFilters,
    yes: bool,
    dry_run: bool,
    location: StoreLocation,
    as_json: bool,
) -> int:
    """Delete dead letters with their arguments and history, by id, by filter, or with --all."""
    code = run(_purge(location, task_ids, filters, not yes or dry_run, as_json))
    if not (yes or dry_run):
        raise click.UsageError("a purge cannot be undone: add --yes")
    return code


async def _purge(
    location: StoreLocation,
    task_ids: Sequence[str] | None,
    filters: DeadLetterFilters,
    dry_run: bool,
    as_json: bool,
) -> int:
    async with opened_store(location) as store:
        choice = await dead_letters.choose(store, task_ids, filters)
        if dry_run:
            return await _preview(store, choice, "purge", None, as_json)
        on_progress = await _progress(store, choice)
        report = await dead_letters.purge(
            store, choice, by=current_user("command line"), on_progress=on_progress
        )
    if choice.task_ids is not None:
        print_answers(choice.task_ids, report.answers, as_json)
        return exit_code_of(report.answers.values())
    if as_json:
        print_json({"purged": report.done, "refused": report.refused, "operation_id": report.operation_id})
    else:
        click.echo(f"purged {report.done}")
    if report.refused:
        print_message(f"{report.refused} refused: no longer dead")
    return 0


async def _preview(
    store: Store, choice: DeadLetterChoice, verb: str, settings: RedriveSettings | None, as_json: bool
) -> int:
    """Print what a redrive with these settings (without settings: a purge) would do."""
    found = await dead_letters.preview(store, choice, settings)
    if as_json:
        facts = {"would": verb, "count": found.matched}
        if settings is not None and choice.task_ids is None:
            facts |= {"canary": found.canary, "in_doubt": found.in_doubt}
        elif found.in_doubt:
            facts |= {"in_doubt": found.in_doubt}
        print_json(facts)
    if found.in_doubt:
        outcome = "would be left out" if choice.task_ids is None else "would make the redrive fail"
        print_message(
            f"{counted(found.in_doubt, 'dead letter')} in doubt {outcome}: --repeat-doubts sends them"
        )
    first = f", {found.canary} of them first" if found.canary else ""
    print_message(f"would {verb} {counted(found.matched, 'dead letter')}{first}; nothing was changed")
    return 0


async def _checked_args(
    store: Store, choice: DeadLetterChoice, text: str, core: Core
) -> Mapping[str, tuple[bytes, str]]:
    """Return new arguments as a payload, after checking them against the function's signature."""
    from tidegate.codec import CODEC

    try:
        given = strict_json(text)
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}") from None
    if not isinstance(given, list | dict):
        raise click.UsageError("--args must be a JSON array (by position) or object (by name)")
    (task_id,) = choice.task_ids or ()
    row = await read_task(store, task_id)
    payload = json.dumps({"a": given} if isinstance(given, list) else {"k": given})
    return {row.id: (core.function(row.function).signature.accept(payload.encode()), CODEC)}


async def _progress(store: Store, choice: DeadLetterChoice) -> Callable[[int], None]:
    """Return a function that prints how many dead letters of a filter have been read so far."""
    count = 0 if choice.task_ids is not None else await store.count_dead_letters(choice.which)

    def print_progress(seen: int) -> None:
        if count > seen:
            print_message(f"{seen} of {count}…")

    return print_progress
