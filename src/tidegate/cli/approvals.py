"""`tidegate approvals`: list, show and answer the questions that tasks ask people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click

from tidegate.admin.approval_values import link_of
from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_since, moment
from tidegate.cli.output import json_text, jsonable, print_facts, print_json, print_message
from tidegate.cli.rendering import short_ids
from tidegate.cli.table import print_table
from tidegate.cli.values import as_task_id, json_or_text
from tidegate.codec.plain import plain
from tidegate.config import load_config
from tidegate.domain.approval import ApprovalState
from tidegate.domain.links import LinkSettings
from tidegate.domain.text import format_duration
from tidegate.operations import approvals
from tidegate.operations.approvals import ApprovalFilters
from tidegate.operations.pauses import current_user
from tidegate.store.approval_rows import ApprovalRow

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def command() -> None:
    """List, show and answer approvals: questions that tasks ask people by `ctx.approve`."""


@command.command("ls")
@click.option("--task", metavar="ID", type=as_task_id, help="Only this task.")
@click.option("--function", metavar="NAME", help="Only this task function, by its full name.")
@click.option("--tenant", metavar="NAME", help="Only this tenant.")
@click.option(
    "--state",
    type=click.Choice([*(str(state) for state in ApprovalState), "all"]),
    default=str(ApprovalState.OPEN),
    show_default=True,
    help="Only this state.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Show at most this many."
)
@click.option("--after", metavar="NUMBER", type=click.IntRange(1), help="Start after this approval.")
@location_options
@json_option
def list_command(
    task: str | None,
    function: str | None,
    tenant: str | None,
    state: str,
    limit: int,
    after: int | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """List approvals, in the order in which they were first asked."""
    filters = ApprovalFilters(task=task, function=function, tenant=tenant)
    run(_list(location, filters, None if state == "all" else ApprovalState(state), after, limit, as_json))


async def _list(
    location: StoreLocation,
    filters: ApprovalFilters,
    state: ApprovalState | None,
    after: int | None,
    limit: int,
    as_json: bool,
) -> None:
    async with opened_store(location) as store:
        rows = await approvals.list_approvals(store, filters, state=state, after=after, limit=limit)
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(_json(row, None))
    elif rows:
        _print_rows(rows, now)
    else:
        print_message("no approval matches")
    if len(rows) == limit:
        print_message(f"there may be more: --after {rows[-1].number}")


@command.command("show")
@click.argument("task_id", metavar="TASK", type=as_task_id)
@click.argument("key", required=False)
@location_options
@json_option
def show_command(task_id: str, key: str | None, location: StoreLocation, as_json: bool) -> None:
    """Show a question of TASK: its data, its answer, and the link to answer it.

    Give KEY if the task asks several questions at the same time.
    """
    run(_show(location, task_id, key, as_json))


async def _show(location: StoreLocation, task_id: str, key: str | None, as_json: bool) -> None:
    links = load_config().links if location.application is None else location.application.links
    async with opened_store(location) as store:
        row = await approvals.get_approval(store, task_id, key)
    if as_json:
        print_json(_json(row, links))
    else:
        print_facts(_facts(row, links))


def _answer_options(command: Command) -> Command:
    """Add the arguments and options of an answer."""
    decorated: Any = command
    for option in (
        json_option,
        location_options,
        click.option("--data", metavar="JSON", default="null", help="Data for the task: JSON, or text."),
        click.option("--comment", metavar="TEXT", default="", help="Why; the task gets it too."),
        click.argument("key", required=False),
        click.argument("task_id", metavar="TASK", type=as_task_id),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@command.command("approve")
@_answer_options
def approve_command(
    task_id: str, key: str | None, comment: str, data: str, location: StoreLocation, as_json: bool
) -> None:
    """Approve what TASK asks. Give KEY if it asks several questions at the same time."""
    run(_answer(location, task_id, key, comment, data, as_json, approved=True))


@command.command("reject")
@_answer_options
def reject_command(
    task_id: str, key: str | None, comment: str, data: str, location: StoreLocation, as_json: bool
) -> None:
    """Reject what TASK asks. Give KEY if it asks several questions at the same time."""
    run(_answer(location, task_id, key, comment, data, as_json, approved=False))


async def _answer(
    location: StoreLocation,
    task_id: str,
    key: str | None,
    comment: str,
    data: str,
    as_json: bool,
    *,
    approved: bool,
) -> None:
    async with opened_store(location) as store:
        row = await approvals.answer_recorded(
            store,
            task_id,
            key,
            approved=approved,
            by=current_user("command line"),
            comment=comment,
            data=json_or_text(data),
        )
    if as_json:
        print_json(_json(row, None))
    else:
        print_message(f"{row.state}: {row.question}; task {row.task_id} goes on")


def _json(row: ApprovalRow, links: LinkSettings | None) -> dict[str, Any]:
    """Return the same as the HTTP API shows; with settings for links also the link."""
    fields = jsonable(replace(row, data=b"", answer=b""))
    del fields["codec_tag"]
    fields |= {"tenant": row.tenant or None, "data": _value(row.data), "answer": _value(row.answer)}
    fields |= {"to": fields.pop("recipient"), "until": fields.pop("deadline_at")}
    return fields if links is None else {**fields, "link": link_of(row, links)}


def _value(data: bytes | None) -> Any:
    return None if data is None else json.loads(bytes(plain(data)))


def _print_rows(rows: Sequence[ApprovalRow], now: float) -> None:
    print_table(
        ["TASK", "KEY", "STATE", "QUESTION", "TO", "ASKED", "LEFT", "BY", "FUNCTION"],
        [
            [
                task_id,
                row.key,
                row.state,
                row.question,
                row.recipient or "-",
                format_since(row.asked_at, now),
                _left(row, now),
                row.answered_by or "-",
                row.function,
            ]
            for task_id, row in zip(short_ids([row.task_id for row in rows]), rows, strict=True)
        ],
        optional=["FUNCTION", "BY", "TO"],
        shorten=["FUNCTION", "QUESTION"],
    )


def _left(row: ApprovalRow, now: float) -> str:
    if not row.can_be_answered or row.deadline_at is None:
        return "-"
    return format_duration(max(0.0, row.deadline_at - now))


def _facts(row: ApprovalRow, links: LinkSettings | None) -> Mapping[str, object]:
    data, answer = _value(row.data), _value(row.answer)
    answered = f"{moment(row.answered_at)}{f' by {row.answered_by}' if row.answered_by else ''}"
    return {
        "question": row.question,
        "state": row.state,
        "task": row.task_id,
        "key": row.key,
        "function": row.function,
        "queue": row.queue,
        "tenant": row.tenant,
        "task state": row.task_state,
        "data": None if data is None else json_text(data),
        "to": row.recipient,
        "asked": moment(row.asked_at),
        "until": moment(row.deadline_at),
        "answered": None if row.answered_at is None else answered,
        "comment": row.comment,
        "answer": None if answer is None else json_text(answer),
        "link": link_of(row, links),
    }
