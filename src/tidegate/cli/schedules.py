"""`tidegate schedules`: show schedules, add and edit them, pause, resume, run and preview them."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from tidegate.cli.common import StoreLocation, json_option, load_app, location_options, opened_store, run
from tidegate.cli.enqueue import arguments_by_name
from tidegate.cli.formatting import moment
from tidegate.cli.output import print_json, print_message
from tidegate.cli.schedule_rendering import (
    preview_json,
    print_preview,
    print_schedule,
    print_schedules,
    print_ticks,
    schedule_json,
    tick_json,
)
from tidegate.cli.values import as_labels, as_named_value, as_priority, json_or_text
from tidegate.domain.ids import IdMaker
from tidegate.operations.pauses import current_user
from tidegate.operations.schedules import (
    MOST_PREVIEWED,
    add_schedule,
    edit_schedule,
    find_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from tidegate.policy.ticks import preview
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import ScheduleRow

C = TypeVar("C", bound=Callable[..., Any])
_PAGE = 200
_SHOWN_TICKS = 10

name_argument = click.argument("name", metavar="NAME")


@click.group()
def command() -> None:
    """Show, add, edit, pause, run and preview schedules."""


# --- showing ---------------------------------------------------------------------------------------------


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List schedules with their next tick and the outcome of the latest one."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        rows: list[ScheduleRow] = []
        while page := await store.list_schedules(after=rows[-1].name if rows else "", limit=_PAGE):
            rows += page
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(schedule_json(row))
    elif rows:
        print_schedules(rows, now)
    else:
        print_message(
            "no schedule yet: a worker adds what its application declares; or use `tidegate schedules add`"
        )


@command.command("show")
@name_argument
@location_options
@json_option
def show_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Show one schedule and its latest ticks."""
    run(_show(location, name, as_json))


async def _show(location: StoreLocation, name: str, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await find_schedule(store, name)
        ticks = await store.list_ticks(name, limit=_SHOWN_TICKS)
    if as_json:
        print_json(schedule_json(row) | {"ticks": [tick_json(tick) for tick in ticks]})
        return
    print_schedule(row)
    if ticks:
        click.echo()
        print_ticks(ticks)


@command.command("preview")
@click.argument("name", metavar="NAME|RULE")
@click.option("--count", type=click.IntRange(1, MOST_PREVIEWED), default=5, help="How many ticks; default 5.")
@click.option("--timezone", metavar="ZONE", help="The time zone of a RULE.")
@location_options
@json_option
def preview_command(
    name: str, count: int, timezone: str | None, location: StoreLocation, as_json: bool
) -> None:
    """Show the next ticks of a schedule, or of a rule that is not stored: "0 7 * * 1-5", "every 30s", @daily.

    A note marks ticks that a change of the clocks affects.
    """
    run(_preview(location, name, timezone, count, as_json))


async def _preview(
    location: StoreLocation, name: str, timezone: str | None, count: int, as_json: bool
) -> None:
    from tidegate.schedule.options import read_rule

    if " " in name or name.startswith("@"):
        ticks = preview(read_rule(name, {"timezone": timezone}), time.time(), count)
    else:
        async with opened_store(location) as store:
            ticks = preview((await find_schedule(store, name)).rule, await store.now(), count)
    for tick in ticks:
        print_json(preview_json(tick)) if as_json else print_preview(tick)


# --- changing --------------------------------------------------------------------------------------------


def _setting_options(command: C) -> C:
    """Add the options that `add` and `edit` share; those that are not given are None."""
    for option in reversed(_SETTING_OPTIONS):
        command = option(command)
    return command


_SETTING_OPTIONS = (
    click.option("--timezone", metavar="ZONE", help="IANA time zone of a cron rule: Europe/Berlin."),
    click.option(
        "--catch-up", metavar="none|one|all", help="What happens to missed ticks; default: one of them fires."
    ),
    click.option(
        "--catch-up-limit",
        type=int,
        metavar="N",
        help="With all: the most missed ticks that fire; default 100.",
    ),
    click.option(
        "--catch-up-window",
        metavar="TIME",
        help="With all: the greatest age of missed ticks that fire; default 1d.",
    ),
    click.option(
        "--overlap",
        metavar="skip|queue|allow",
        help="What happens to a tick while an earlier task is not final; default: skip.",
    ),
    click.option(
        "--not-later-than", metavar="TIME", help="Skip a tick that is later than this; none: skip no tick."
    ),
    click.option("--queue", metavar="NAME", help="The queue of the tasks."),
    click.option("--priority", metavar="PRIORITY", type=as_priority, help="interactive, normal or bulk."),
    click.option("--tenant", metavar="NAME", help="The tenant of the tasks."),
    click.option("--timeout", metavar="TIME", help="The time limit of one attempt."),
    click.option("--total-timeout", metavar="TIME", help="The time limit of a task from its first start."),
    click.option(
        "--deadline", metavar="TIME", help="The time after which a task ends, counted from its enqueue."
    ),
    click.option("--max-attempts", type=int, metavar="N", help="The most charged attempts of a task."),
    click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        type=as_named_value,
        multiple=True,
        callback=lambda _context, _option, pairs: as_labels(pairs) or None,
        help="A label of the tasks. Repeatable.",
    ),
    click.option(
        "--arg",
        "named",
        metavar="NAME=VALUE",
        type=as_named_value,
        multiple=True,
        help="A named argument of the function. Repeatable.",
    ),
    click.option("--kwargs", metavar="JSON", help="Named arguments as one JSON object."),
)


@command.command("add")
@click.argument("function", metavar="FUNCTION")
@click.argument("when", metavar="WHEN")
@click.argument("args", metavar="[ARG]...", nargs=-1)
@click.option("--name", metavar="NAME", help="The schedule's name; default: the function's.")
@_setting_options
@location_options
@json_option
def add_command(
    function: str,
    when: str,
    args: Sequence[str],
    name: str | None,
    named: Sequence[tuple[str, str]],
    kwargs: str | None,
    location: StoreLocation,
    as_json: bool,
    **settings: Any,
) -> None:
    """Add a schedule that enqueues a task of FUNCTION on each tick of WHEN.

    WHEN is cron ("0 7 * * 1-5"), a word (@daily) or an interval ("every 30s"). Each ARG and each value of
    --arg is read as JSON if it is valid JSON, otherwise as text. The first tick is the next one from now. The
    command needs the application: --app, or the configured one.
    """
    from tidegate.application.task_schedule import read_task_options
    from tidegate.schedule.options import read_rule, schedule_name_option
    from tidegate.schedule.scheduled_tasks import scheduled_task

    declared = (location.application or load_app(None)).function(function)
    rule = read_rule(when, settings)
    options = read_task_options(settings)
    positional, keyword = _load(declared.signature, args, arguments_by_name(named, kwargs))
    task = scheduled_task(declared.using(**options).prepare(*positional, **keyword).new_task)
    wanted = schedule_name_option("name", name or declared.spec.name)

    async def add() -> ScheduleRow:
        async with opened_store(location, make=True) as store:
            return await add_schedule(store, wanted, rule, task, by=_by())

    _report(run(add()), "added", as_json)


@command.command("edit")
@name_argument
@click.option("--when", metavar="RULE", help='Other moments: "0 7 * * 1-5", "every 30s", @daily.')
@_setting_options
@location_options
@json_option
def edit_command(
    name: str,
    when: str | None,
    named: Sequence[tuple[str, str]],
    kwargs: str | None,
    location: StoreLocation,
    as_json: bool,
    **settings: Any,
) -> None:
    """Change a schedule; settings that are not given stay the same. The change itself fires no tick.

    New arguments replace all present arguments, and need the application.
    """
    from tidegate.application.task_schedule import changed_task_fields

    given = {option: value for option, value in settings.items() if value is not None}
    if given.get("not_later_than") == "none":
        given["not_later_than"] = None
    by_name = arguments_by_name(named, kwargs)

    async def edit() -> ScheduleRow:
        async with opened_store(location) as store:
            function = None
            if by_name:
                row = await find_schedule(store, name)
                function = (location.application or load_app(None)).function(row.task.function)
                given["args"] = _load(function.signature, (), by_name)[1]
            fields = changed_task_fields(function, given)
            return await edit_schedule(store, name, when=when, settings=given, task_fields=fields, by=_by())

    _report(run(edit()), "changed", as_json)


def _load(
    signature: Any, args: Sequence[str], by_name: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    payload = json.dumps({"a": [json_or_text(text) for text in args], "k": by_name})
    positional, keyword = signature.load(payload.encode())
    return tuple(positional), dict(keyword)


@command.command("pause")
@name_argument
@location_options
@json_option
def pause_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Stop the ticks of a schedule until it is resumed, also over deploys. Its tasks go on."""
    _report(run(_change(location, name, pause_schedule)), "paused", as_json)


@command.command("resume")
@name_argument
@location_options
@json_option
def resume_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Let a paused schedule tick again, from its next regular tick on."""
    _report(run(_change(location, name, resume_schedule)), "resumed", as_json)


async def _change(location: StoreLocation, name: str, change: Any) -> ScheduleRow:
    async with opened_store(location) as store:
        row: ScheduleRow = await change(store, name, by=_by())
        return row


@command.command("run")
@name_argument
@location_options
@json_option
def run_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Enqueue the task of a schedule now, even if the schedule is paused, and print the task's id."""
    make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)

    async def enqueue() -> str:
        async with opened_store(location) as store:
            return (await run_schedule(store, name, make_id, by=_by())).id

    task_id = run(enqueue())
    print_json({"name": name, "task_id": task_id}) if as_json else click.echo(task_id)


@command.command("rm")
@name_argument
@location_options
@json_option
def remove_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Delete a schedule that a person added.

    The tasks of the schedule and the record of its ticks are kept.
    """

    async def remove(store: Store) -> None:
        await remove_schedule(store, name, by=_by())

    run(_with_store(location, remove))
    print_json({"name": name, "removed": True}) if as_json else print_message(f"{name}: removed")


async def _with_store(location: StoreLocation, work: Callable[[Store], Any]) -> None:
    async with opened_store(location) as store:
        await work(store)


def _by() -> str:
    return current_user("command line")


def _report(row: ScheduleRow, done: str, as_json: bool) -> None:
    if as_json:
        print_json(schedule_json(row))
    else:
        coming = "" if row.next_at is None else f"; the next tick is at {moment(row.next_at)}"
        print_message(f"{row.name}: {done}{coming}")
