"""`tidegate dead`: list, show, redrive and purge dead letters, by id or by filter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import click

from tidegate.cli.common import (
    Where,
    dry_run_option,
    full_id,
    json_option,
    known_functions,
    opened_store,
    run,
    where_options,
)
from tidegate.cli.failure import CONFLICT
from tidegate.cli.filters import Chosen, filter_options
from tidegate.cli.output import print_json, talk
from tidegate.cli.tasks import exit_code_of, print_answers
from tidegate.cli.values import as_task_id, strict_json
from tidegate.cli.views import letter_json, print_letters, show_task
from tidegate.deadletter.redrive import (
    Tally,
    demand_declared,
    purge_matching,
    purge_tasks,
    redrive_matching,
    redrive_tasks,
)
from tidegate.domain.states import State
from tidegate.errors import TaskNotFoundError, WrongStateError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActAnswer

ids_argument = click.argument("task_ids", metavar="[ID]...", nargs=-1, type=as_task_id)
all_option = click.option("--all", "everything", is_flag=True, help="Every dead letter.")


@click.group()
def command() -> None:
    """List, show, redrive and purge dead letters."""


@command.command("ls")
@filter_options
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", type=as_task_id, help="Continue after this task.")
@where_options
@json_option
def list_command(chosen: Chosen, limit: int, after: str | None, where: Where, as_json: bool) -> None:
    """List dead letters, the latest failure first."""
    run(_list(where, chosen, after, limit, as_json))


async def _list(where: Where, chosen: Chosen, after: str | None, limit: int, as_json: bool) -> None:
    async with opened_store(where) as store:
        which = await chosen.filter(store)
        after = None if after is None else await full_id(store, after)
        letters = await store.dead_letters(which, after=after, limit=limit)
        if as_json:
            for letter in letters:
                print_json(letter_json(letter))
        elif letters:
            print_letters(letters, await store.now())
        count = await store.count_dead(which)
        talk(f"{len(letters)} of {count}" if count else "no dead letter matches")
        if len(letters) == limit and count > limit:
            talk(f"more: --after {letters[-1].task_id}")


@command.command("show")
@click.argument("task_id", metavar="ID", type=as_task_id)
@click.option("--args", "with_args", is_flag=True, help="Show the arguments too; they may be private.")
@where_options
@json_option
def show_command(task_id: str, with_args: bool, where: Where, as_json: bool) -> None:
    """Show one dead letter with its whole history."""
    run(_show(where, task_id, with_args, as_json))


async def _show(where: Where, task_id: str, with_args: bool, as_json: bool) -> None:
    async with opened_store(where) as store:
        task_id = await full_id(store, task_id)
        row = (await store.read([task_id])).get(task_id)
        if row is not None and row.state is not State.DEAD:
            raise WrongStateError(
                f"task {task_id} is {row.state}, not dead", fix=f"see `tidegate tasks show {task_id}`"
            )
        await show_task(store, task_id, with_args=with_args, as_json=as_json)


@command.command("redrive")
@ids_argument
@filter_options
@all_option
@click.option(
    "--args", "new_args", metavar="JSON", help="For one id: other arguments, an array or an object by name."
)
@dry_run_option
@where_options
@json_option
def redrive_command(chosen: Chosen, new_args: str | None, dry_run: bool, where: Where, as_json: bool) -> int:
    """Send dead letters back to the main queue, by id, by filter, or with --all.

    Only those whose function some application declares: one that ever ran a worker on this database, or
    the one named by --app. Counters start anew; the history stays.
    """
    chosen.require_choice()
    if new_args is not None and (len(chosen.task_ids) != 1 or where.application is None):
        raise click.UsageError("--args goes with one id, and with --app to check them against the signature")
    return run(_redrive(where, chosen, new_args, dry_run, as_json))


async def _redrive(where: Where, chosen: Chosen, new_args: str | None, dry_run: bool, as_json: bool) -> int:
    async with opened_store(where) as store:
        chosen = await chosen.with_full_ids(store)
        if dry_run:
            return await _preview(store, chosen, "redrive", as_json)
        declared = await known_functions(store, where)
        if not chosen.task_ids:
            return await _redrive_matching(store, chosen, declared, as_json)
        args = None
        if new_args is not None:
            task_id = chosen.task_ids[0]
            args = {task_id: await _checked_args(store, task_id, new_args, where)}
        answers = await redrive_tasks(store, chosen.task_ids, declared, args=args)
        return _tell_answers(chosen.task_ids, answers, as_json)


async def _redrive_matching(store: Store, chosen: Chosen, declared: frozenset[str], as_json: bool) -> int:
    if chosen.which.function is not None:
        demand_declared({chosen.which.function}, declared)
    which = await chosen.filter(store)
    tell = _progress(await store.count_dead(which))
    return _tell_tally(await redrive_matching(store, which, declared, tell=tell), "redriven", as_json)


@command.command("purge")
@ids_argument
@filter_options
@all_option
@click.option("--yes", is_flag=True, help="Really delete.")
@dry_run_option
@where_options
@json_option
def purge_command(chosen: Chosen, yes: bool, dry_run: bool, where: Where, as_json: bool) -> int:
    """Delete dead letters for good, with arguments and history, by id, by filter, or with --all."""
    chosen.require_choice()
    return run(_purge(where, chosen, yes, dry_run, as_json))


async def _purge(where: Where, chosen: Chosen, yes: bool, dry_run: bool, as_json: bool) -> int:
    async with opened_store(where) as store:
        chosen = await chosen.with_full_ids(store)
        if dry_run or not yes:
            code = await _preview(store, chosen, "purge", as_json)
            if not dry_run:
                raise click.UsageError("purging cannot be undone: add --yes")
            return code
        if chosen.task_ids:
            return _tell_answers(chosen.task_ids, await purge_tasks(store, chosen.task_ids), as_json)
        which = await chosen.filter(store)
        tell = _progress(await store.count_dead(which))
        return _tell_tally(await purge_matching(store, which, tell=tell), "purged", as_json)


async def _checked_args(store: Store, task_id: str, text: str, where: Where) -> tuple[bytes, str]:
    """Return new arguments as a payload, after checking them against the function's signature."""
    from tidegate.codec import CODEC

    try:
        given = strict_json(text)
    except ValueError as error:
        raise click.UsageError(f"--args is not JSON: {error}") from None
    if not isinstance(given, list | dict):
        raise click.UsageError("--args must be a JSON array (by position) or object (by name)")
    rows = await store.read([task_id])
    if task_id not in rows:
        raise TaskNotFoundError(f"no task has the id {task_id}", fix="check the id")
    payload = json.dumps({"a": given} if isinstance(given, list) else {"k": given})
    signature = where.application.function(rows[task_id].function).signature
    return signature.accept(payload.encode()), CODEC


def _progress(count: int) -> Callable[[Tally], None]:
    def tell(tally: Tally) -> None:
        seen = tally.done + tally.refused + tally.undeclared.total()
        if count > seen:
            talk(f"{seen} of {count}…")

    return tell


async def _preview(store: Store, chosen: Chosen, verb: str, as_json: bool) -> int:
    """Say how many a command would act on, and do nothing."""
    if chosen.task_ids:
        rows = await store.read(chosen.task_ids)
        count = sum(row.state is State.DEAD for row in rows.values())
    else:
        count = await store.count_dead(await chosen.filter(store))
    if as_json:
        print_json({"would": verb, "count": count})
    talk(f"would {verb} {count}; nothing was done")
    return 0


def _tell_tally(tally: Tally, done: str, as_json: bool) -> int:
    if as_json:
        print_json({done: tally.done, "refused": tally.refused, "undeclared": tally.undeclared})
    else:
        click.echo(f"{done} {tally.done}")
    if tally.refused:
        talk(f"{tally.refused} refused: no longer dead, or a live task holds their unique name")
    for function, count in sorted(tally.undeclared.items()):
        talk(f"{count} left alone: no application declares {function} → start a worker that has it, or --app")
    return CONFLICT if tally.undeclared else 0


def _tell_answers(task_ids: Sequence[str], answers: Mapping[str, ActAnswer], as_json: bool) -> int:
    print_answers(task_ids, answers, as_json)
    return exit_code_of(answers.values())
