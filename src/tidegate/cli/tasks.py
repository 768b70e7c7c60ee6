"""`tidegate tasks`: list, show, cancel and retry tasks, and change their priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import click

from tidegate.cli.common import (
    StoreLocation,
    dry_run_option,
    json_option,
    location_options,
    opened_store,
    run,
)
from tidegate.cli.error_report import CONFLICT, NOT_FOUND
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json, print_message
from tidegate.cli.rendering import print_tasks, show_task, task_json
from tidegate.cli.values import as_labels, as_named_value, as_priority, as_task_id
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.operations.pauses import current_user
from tidegate.operations.tasks import (
    CANCELLABLE,
    PRIORITY_CHANGEABLE,
    RETRYABLE,
    explain,
    full_id,
    read_task,
    retry_tasks,
)
from tidegate.store.rows import ActionStatus, CancelStatus, TaskFilter, TaskRow
from tidegate.store.short_ids import full_ids

_STATES = click.Choice([state.value for state in State])


@click.group()
def command() -> None:
    """List, show, cancel and retry tasks, or change their priority."""


@command.command("ls")
@click.option("--state", "states", type=_STATES, multiple=True, help="Only this state. Repeatable.")
@click.option("--queue", metavar="NAME", help="Only this queue.")
@click.option("--function", metavar="NAME", help="Only this task function, by its full name.")
@click.option("--tenant", metavar="NAME", help="Only this tenant.")
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    type=as_named_value,
    multiple=True,
    help="Only with this label. Repeatable.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="ID", type=as_task_id, help="Start after this task.")
@location_options
@json_option
def list_command(
    states: Sequence[str],
    labels: Sequence[tuple[str, str]],
    limit: int,
    after: str | None,
    location: StoreLocation,
    as_json: bool,
    **fields: str | None,
) -> None:
    """List tasks, the newest first."""
    which = TaskFilter(states=tuple(map(State, states)), labels=as_labels(labels), **fields)  # type: ignore[arg-type]
    run(_list(location, which, after, limit, as_json))


async def _list(
    location: StoreLocation, which: TaskFilter, after: str | None, limit: int, as_json: bool
) -> None:
    async with opened_store(location) as store:
        after = None if after is None else await full_id(store, after)
        rows = await store.list_tasks(which, after=after, limit=limit)
        if as_json:
            for row in rows:
                print_json(task_json(row))
        elif rows:
            print_tasks(rows, await store.now())
        else:
            print_message("no task matches")
        if len(rows) == limit:
            print_message(f"there may be more: --after {rows[-1].id}")


@command.command("show")
@click.argument("task_id", metavar="ID", type=as_task_id)
@click.option(
    "--args", "with_args", is_flag=True, help="Show the arguments and the whole result, which may be private."
)
@location_options
@json_option
def show_command(task_id: str, with_args: bool, location: StoreLocation, as_json: bool) -> None:
    """Show one task with its full history."""
    run(_show(location, task_id, with_args, as_json))


async def _show(location: StoreLocation, task_id: str, with_args: bool, as_json: bool) -> None:
    async with opened_store(location) as store:
        await show_task(store, await read_task(store, task_id), with_args=with_args, as_json=as_json)


@command.command("why")
@click.argument("task_id", metavar="ID", type=as_task_id)
@location_options
@json_option
def why_command(task_id: str, location: StoreLocation, as_json: bool) -> None:
    """Show what a task waits for: a gate, a limit, a budget, its due time, or a worker."""
    run(_why(location, task_id, as_json))


async def _why(location: StoreLocation, task_id: str, as_json: bool) -> None:
    """Print why a task does not run yet, the main reason first.

    Raises:
        TaskNotFoundError: The task does not exist.
    """
    async with opened_store(location) as store:
        row = await read_task(store, task_id)
        reasons = await explain(store, row, location.functions)
    if as_json:
        print_json({"task_id": row.id, "state": row.state, "why": reasons})
        return
    click.echo(f"{row.state}")
    for reason in reasons:
        click.echo(f"  {printable(reason)}")


@command.command("cancel")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=as_task_id)
@click.option("--why", default="", metavar="TEXT", help="The reason; stored in the task's history.")
@click.option("--force", is_flag=True, help="Do not wait for a function that ignores the request to stop.")
@dry_run_option
@location_options
@json_option
def cancel_command(
    task_ids: Sequence[str], why: str, force: bool, dry_run: bool, location: StoreLocation, as_json: bool
) -> int:
    """Cancel tasks in any state. The function of a running task is asked to stop and does not run again."""
    return run(_cancel(location, task_ids, why, force, dry_run, as_json))


async def _cancel(
    location: StoreLocation, task_ids: Sequence[str], why: str, force: bool, dry_run: bool, as_json: bool
) -> int:
    async with opened_store(location) as store:
        task_ids = await full_ids(store, task_ids)
        if dry_run:
            return _preview(await store.read_tasks(task_ids), task_ids, CANCELLABLE, "cancel", as_json)
        return _print_results(task_ids, await store.cancel(task_ids, why=why, force=force), as_json)


@command.command("retry")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=as_task_id)
@dry_run_option
@location_options
@json_option
def retry_command(task_ids: Sequence[str], dry_run: bool, location: StoreLocation, as_json: bool) -> int:
    """Run tasks now: scheduled and retrying tasks become due, dead tasks are redriven, others are refused."""
    return run(_retry(location, task_ids, dry_run, as_json))


async def _retry(location: StoreLocation, task_ids: Sequence[str], dry_run: bool, as_json: bool) -> int:
    async with opened_store(location) as store:
        task_ids = await full_ids(store, task_ids)
        if dry_run:
            return _preview(await store.read_tasks(task_ids), task_ids, RETRYABLE, "retry", as_json)
        answers = await retry_tasks(store, task_ids, location.functions, by=current_user("command line"))
        return _print_results(task_ids, answers, as_json)


@command.command("priority")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True, type=as_task_id)
@click.argument("priority", metavar="PRIORITY", type=as_priority)
@dry_run_option
@location_options
@json_option
def priority_command(
    task_ids: Sequence[str], priority: Priority, dry_run: bool, location: StoreLocation, as_json: bool
) -> int:
    """Give waiting tasks another priority: interactive, normal or bulk."""
    return run(_priority(location, task_ids, priority, dry_run, as_json))


async def _priority(
    location: StoreLocation, task_ids: Sequence[str], priority: Priority, dry_run: bool, as_json: bool
) -> int:
    async with opened_store(location) as store:
        task_ids = await full_ids(store, task_ids)
        if dry_run:
            return _preview(
                await store.read_tasks(task_ids),
                task_ids,
                PRIORITY_CHANGEABLE,
                "change the priority of",
                as_json,
            )
        return _print_results(task_ids, await store.reprioritise(task_ids, priority), as_json)


def _preview(
    rows: Mapping[str, TaskRow], task_ids: Sequence[str], states: frozenset[State], verb: str, as_json: bool
) -> int:
    """Print what a command would do, and change nothing."""
    fit = sum(row.state in states for row in rows.values())
    for task_id in task_ids:
        state = rows[task_id].state.value if task_id in rows else "unknown"
        if as_json:
            print_json(
                {
                    "task_id": task_id,
                    "state": state,
                    "would": task_id in rows and rows[task_id].state in states,
                }
            )
        else:
            click.echo(f"{task_id}  {state}")
    print_message(f"would {verb} {fit} of {counted(len(task_ids), 'task')}; nothing was changed")
    return 0


def _print_results(task_ids: Sequence[str], answers: Mapping[str, StrEnum], as_json: bool) -> int:
    """Print the result for each id and return the exit code."""
    print_answers(task_ids, answers, as_json)
    counts = Counter(answers.values())
    print_message(", ".join(f"{count} {answer}" for answer, count in counts.items()))
    return exit_code_of(answers.values())


def print_answers(task_ids: Sequence[str], answers: Mapping[str, StrEnum], as_json: bool) -> None:
    """Print the result for each id, in the order given."""
    for task_id in task_ids:
        if as_json:
            print_json({"task_id": task_id, "answer": answers[task_id]})
        else:
            click.echo(f"{task_id}  {answers[task_id]}")


def exit_code_of(answers: Iterable[StrEnum]) -> int:
    """Return the exit code for these results.

    The code is 4 if any id was refused, otherwise 3 if any was unknown, otherwise 0.
    """
    given = set(answers)
    if given & {ActionStatus.REFUSED, CancelStatus.FINISHED}:
        return CONFLICT
    return NOT_FOUND if ActionStatus.UNKNOWN in given else 0
