"""`tidegate doubts`: list, show and decide calls that were sent and have no definite answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tidegate.cli.common import (
    StoreLocation,
    dry_run_option,
    json_option,
    location_options,
    opened_store,
    run,
)
from tidegate.cli.formatting import format_since, moment
from tidegate.cli.output import jsonable, print_facts, print_json, print_message
from tidegate.cli.rendering import short_ids
from tidegate.cli.table import print_table
from tidegate.cli.tasks import exit_code_of
from tidegate.cli.values import as_task_id, strict_json
from tidegate.domain.step import DoubtState, idempotency_key
from tidegate.domain.text import counted
from tidegate.operations import doubts
from tidegate.operations.doubts import Decision, DoubtChoice, DoubtFilters
from tidegate.operations.pauses import current_user
from tidegate.store.step_rows import DoubtRow

Command = TypeVar("Command", bound=Callable[..., Any])

_NUMBER = click.IntRange(1)
_FILTERS = (
    click.option("--task", metavar="ID", type=as_task_id, help="Only this task."),
    click.option("--function", metavar="NAME", help="Only this task function, by its full name."),
    click.option("--upstream", metavar="NAME", help="Only calls to this upstream."),
    click.option("--tenant", metavar="NAME", help="Only this tenant."),
    click.option(
        "--before",
        "--older-than",
        "before",
        metavar="WHEN",
        help="Only calls sent before this time (ISO 8601 with offset), or longer ago than this age (1d).",
    ),
)


def _filter_options(command: Command) -> Command:
    """Add the options that filter doubts; the command receives them as its argument `filters`."""

    @functools.wraps(command)
    def with_filters(
        *args: Any,
        task: str | None,
        function: str | None,
        upstream: str | None,
        tenant: str | None,
        before: str | None,
        **options: Any,
    ) -> Any:
        filters = DoubtFilters(task=task, function=function, upstream=upstream, tenant=tenant, before=before)
        return command(*args, filters=filters, **options)

    decorated: Any = with_filters
    for option in reversed(_FILTERS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@click.group()
def command() -> None:
    """List, show and decide doubts: calls that were sent and have no definite answer."""


@command.command("ls")
@_filter_options
@click.option(
    "--state",
    type=click.Choice([*(str(state) for state in DoubtState), "all"]),
    default=str(DoubtState.OPEN),
    show_default=True,
    help="Only this state.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="NUMBER", type=_NUMBER, help="Start after this doubt.")
@location_options
@json_option
def list_command(
    filters: DoubtFilters, state: str, limit: int, after: int | None, location: StoreLocation, as_json: bool
) -> None:
    """List doubts, the oldest first."""
    wanted = None if state == "all" else DoubtState(state)
    run(_list(location, filters, wanted, after, limit, as_json))


async def _list(
    location: StoreLocation,
    filters: DoubtFilters,
    state: DoubtState | None,
    after: int | None,
    limit: int,
    as_json: bool,
) -> None:
    async with opened_store(location) as store:
        rows = await doubts.list_doubts(store, filters, state=state, after=after, limit=limit)
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(_json(row))
    elif rows:
        _print_rows(rows, now)
    else:
        print_message("no doubt matches")
    if len(rows) == limit:
        print_message(f"there may be more: --after {rows[-1].id}")


@command.command("show")
@click.argument("doubt_id", metavar="NUMBER", type=_NUMBER)
@location_options
@json_option
def show_command(doubt_id: int, location: StoreLocation, as_json: bool) -> None:
    """Show one doubt: the call, why it is in doubt, and what became of it."""
    run(_show(location, doubt_id, as_json))


async def _show(location: StoreLocation, doubt_id: int, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await doubts.get_doubt(store, doubt_id)
    if as_json:
        print_json(_json(row))
    else:
        print_facts(_facts(row))


@command.command("resolve")
@click.argument("doubt_ids", metavar="[NUMBER]...", nargs=-1, type=_NUMBER)
@_filter_options
@click.option(
    "--repeat", is_flag=True, help="Do the step again. If the call was processed, it is paid twice."
)
@click.option("--accept", "result", metavar="JSON", help="Use this as the result of the step.")
@click.option("--fail", is_flag=True, help="Do not do the step again. Its task fails.")
@click.option("--note", default="", metavar="TEXT", help="Why; kept with the decision.")
@dry_run_option
@location_options
@json_option
def resolve_command(
    doubt_ids: Sequence[int],
    filters: DoubtFilters,
    repeat: bool,
    result: str | None,
    fail: bool,
    note: str,
    dry_run: bool,
    location: StoreLocation,
    as_json: bool,
) -> int:
    """Decide about open doubts, by number or by filter.

    A task that became a dead letter for its doubts goes on when each of them is decided.
    """
    decision = _decision(repeat, result, fail)
    return run(_resolve(location, doubt_ids or None, filters, decision, note, dry_run, as_json))


def _decision(repeat: bool, result: str | None, fail: bool) -> Decision:
    if repeat + fail + (result is not None) != 1:
        raise click.UsageError("give one of --repeat, --accept JSON and --fail")
    if result is None:
        return doubts.REPEAT if repeat else doubts.FAIL
    try:
        return doubts.accept(strict_json(result))
    except ValueError as error:
        raise click.UsageError(f"--accept is not JSON: {error}") from None


async def _resolve(
    location: StoreLocation,
    doubt_ids: Sequence[int] | None,
    filters: DoubtFilters,
    decision: Decision,
    note: str,
    dry_run: bool,
    as_json: bool,
) -> int:
    async with opened_store(location) as store:
        choice = await doubts.choose(store, doubt_ids, filters)
        if dry_run:
            return _preview(choice, decision, as_json)
        report = await doubts.resolve_recorded(
            store, choice, decision, by=current_user("command line"), note=note
        )
    for doubt_id, answer in report.answers.items():
        if as_json:
            print_json({"doubt_id": doubt_id, "answer": answer})
        else:
            click.echo(f"{doubt_id}  {answer}")
    if not report.answers:
        print_message("no open doubt matches")
    for line in doubts.describe_report(report):
        print_message(line)
    return exit_code_of(report.answers.values())


def _preview(choice: DoubtChoice, decision: Decision, as_json: bool) -> int:
    fit = [row for row in choice.rows if row.state is DoubtState.OPEN]
    if as_json:
        print_json({"would": decision.word, "count": len(fit)})
    print_message(
        f"{counted(len(fit), 'open doubt')} would be {decision.word}, "
        f"of {counted(len({row.task_id for row in fit}), 'task')}; nothing was changed"
    )
    return 0


def _json(row: DoubtRow) -> dict[str, Any]:
    fields = jsonable(row)
    return {"doubt_id": fields.pop("id"), **fields}


def _print_rows(rows: Sequence[DoubtRow], now: float) -> None:
    print_table(
        ["NUMBER", "STATE", "STEP", "TASK", "FUNCTION", "UPSTREAM", "SENT", "REQUEST", "TOKENS", "CAUSE"],
        [
            [
                row.id,
                row.state,
                row.step,
                task_id,
                row.function,
                row.upstream or "-",
                format_since(row.sent_at, now),
                row.request_id or "-",
                _tokens(row) or "-",
                row.cause,
            ]
            for task_id, row in zip(short_ids([row.task_id for row in rows]), rows, strict=True)
        ],
        numbers=["NUMBER"],
        optional=["CAUSE", "TOKENS", "REQUEST", "UPSTREAM", "FUNCTION"],
        shorten=["FUNCTION", "CAUSE"],
    )


def _tokens(row: DoubtRow) -> str:
    """Return the tokens that are known of a call; empty if none are."""
    if row.input_tokens is None and row.output_tokens is None:
        return ""
    return f"{row.input_tokens or 0:,} in, {row.output_tokens or 0:,} out"


def _facts(row: DoubtRow) -> Mapping[str, object]:
    resolved = f"{moment(row.resolved_at)}{f' by {row.resolved_by}' if row.resolved_by else ''}"
    return {
        "doubt": row.id,
        "state": row.state,
        "task": row.task_id,
        "function": row.function,
        "queue": row.queue,
        "tenant": row.tenant,
        "step": row.step,
        "run": row.run,
        "in doubt": row.on_doubt,
        "cause": row.cause,
        "upstream": row.upstream,
        "request": row.request_id,
        "tokens": _tokens(row),
        "idempotency key": idempotency_key(row.task_id, row.key),
        "sent": moment(row.sent_at),
        "found": moment(row.found_at),
        "resolved": None if row.resolved_at is None else resolved,
        "note": row.note,
    }
