"""`tidegate upstreams`: show upstreams, change their limits, and park, open or probe their gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import moment
from tidegate.cli.output import jsonable, print_facts, print_json, print_message
from tidegate.cli.table import print_table
from tidegate.domain.readers import positive_option, seconds_option, shown, wrong
from tidegate.errors import OptionError
from tidegate.limits.formatting import format_dimension, format_learned_limit
from tidegate.limits.options import DURATIONS, facts
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.operations.upstreams import (
    describe_upstream,
    find_upstream,
    require_known,
    set_limits,
    tasks_before,
)
from tidegate.store.upstream_rows import UpstreamRow

_CODE = "code"
"""The value that makes a limit follow the code again."""
_FORMS = "write LIMIT=NUMBER, LIMIT=none or LIMIT=code"

name_argument = click.argument("name", metavar="NAME")


@click.group()
def command() -> None:
    """Show upstreams, change their limits, and park, open or probe their gates."""


@command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List upstreams with their gates and the tasks that wait for them."""
    run(_list(location, as_json))


async def _list(location: StoreLocation, as_json: bool) -> None:
    async with opened_store(location) as store:
        rows = await store.list_upstreams()
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(upstream_json(row, now))
    elif rows:
        print_upstreams(rows, now)
    else:
        print_message("no upstream yet: a worker adds the upstreams that its application declares")


@command.command("show")
@name_argument
@location_options
@json_option
def show_command(name: str, location: StoreLocation, as_json: bool) -> None:
    """Show one upstream: its gate, its limits, and the limits that its responses show."""
    run(_show(location, name, as_json))


async def _show(location: StoreLocation, name: str, as_json: bool) -> None:
    async with opened_store(location) as store:
        row = await find_upstream(store, name)
        now = await store.now()
    if as_json:
        print_json(upstream_json(row, now))
        return
    set_by_person = row.limits.set_by_person
    limits = dict.fromkeys(set_by_person, "not limited") | {
        name: f"{value:g}" for name, value in facts(row.limits).items()
    }
    limits |= {name: f"{limits[name]} (set by hand)" for name in set_by_person}
    learned = {
        f"{format_dimension(limit.dimension)} shown": format_learned_limit(limit, now)
        for limit in row.gate.learned_limits
    }
    print_facts(
        {
            "upstream": row.name,
            "gate": describe_upstream(row, now),
            "since": moment(row.gate.since_at),
            "until": moment(row.gate.until_at),
            "in flight": row.in_flight,
            **tasks_before(row),
            "retrying": row.retrying,
        }
        | limits
        | learned
    )


@command.command("set")
@name_argument
@click.argument("limits", metavar="LIMIT=NUMBER...", nargs=-1, required=True)
@location_options
def set_command(name: str, limits: Sequence[str], location: StoreLocation) -> None:
    """Change limits for all workers, from the next claim on; `LIMIT=none` removes a limit.

    A limit set here overrides the code until `LIMIT=code` makes it follow the code again.
    """
    back = [name for name, _, value in (text.partition("=") for text in limits) if value == _CODE]
    changes = dict(_change(text) for text in limits if text.partition("=")[2] != _CODE)
    run(_set(location, name, changes, back))


async def _set(location: StoreLocation, name: str, changes: dict[str, float | None], back: list[str]) -> None:
    declared = _declared(location, name)
    async with opened_store(location) as store:
        await set_limits(store, name, changes, follow_code=back, declared=declared)
    changed = [f"{limit} {_shown(value)}" for limit, value in changes.items()]
    when = " from the next start of a worker" if declared is None else ""
    print_message(f"{name}: " + ", ".join([*changed, *(f"{limit} as in the code{when}" for limit in back)]))


def _declared(location: StoreLocation, name: str) -> Limits | None:
    """Return the limits that the application of `--app` declares for an upstream, or None."""
    if location.application is None:
        return None
    declared: Sequence[LimitDeclaration] = location.application.declared()
    kind = GateKind.UPSTREAM
    return next((each.limits for each in declared if (each.kind, each.name) == (kind, name)), None)


@command.command("park")
@name_argument
@click.option(
    "--for",
    "length",
    metavar="TIME",
    help="How long the gate stays parked: 10m. Default: until it is opened.",
)
@click.option("--why", default="", metavar="TEXT", help="The reason, shown with the gate.")
@location_options
def park_command(name: str, length: str | None, why: str, location: StoreLocation) -> None:
    """Start no more tasks of this upstream. Running tasks continue; waiting tasks keep their place."""
    seconds = None if length is None else positive_option("--for", length)
    run(_change_gate(location, name, lambda store: store.park_gate(name, seconds=seconds, why=why), "parked"))


@command.command("open")
@name_argument
@location_options
def open_command(name: str, location: StoreLocation) -> None:
    """Open the gate of an upstream, so that its tasks run again."""
    run(_change_gate(location, name, lambda store: store.open_gate(name), "open"))


@command.command("probe")
@name_argument
@location_options
def probe_command(name: str, location: StoreLocation) -> None:
    """Let one task call a parked upstream now. If the call succeeds, the gate opens."""
    run(_change_gate(location, name, lambda store: store.request_probe(name), "the next task probes it"))


async def _change_gate(location: StoreLocation, name: str, change: Any, done: str) -> None:
    async with opened_store(location) as store:
        await require_known(store, name, is_known=await change(store))
    print_message(f"{name}: {done}")


def _change(text: str) -> tuple[str, float | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"{shown(text)} has no value", fix=_FORMS, option=name, value=text)
    if value == "none":
        return name, None
    if name in DURATIONS:
        return name, seconds_option(name, value)
    try:
        return name, float(value)
    except ValueError:
        raise wrong(name, value, _FORMS) from None


def _shown(value: float | None) -> str:
    return "removed" if value is None else f"= {value:g}"


def print_upstreams(rows: Sequence[UpstreamRow], now: float) -> None:
    """Print upstreams as a table."""
    print_table(
        ["UPSTREAM", "IN FLIGHT", "READY", "PACED", "BLOCKED", "RETRYING", "GATE"],
        [
            [row.name, row.in_flight, *tasks_before(row).values(), row.retrying, describe_upstream(row, now)]
            for row in rows
        ],
        numbers=["IN FLIGHT", "READY", "PACED", "BLOCKED", "RETRYING"],
        optional=["RETRYING", "PACED", "BLOCKED", "READY", "IN FLIGHT"],
        shorten=["UPSTREAM"],
    )


def upstream_json(row: UpstreamRow, now: float) -> dict[str, Any]:
    """Return an upstream as JSON values."""
    return {
        "name": row.name,
        "gate": {name: value for name, value in jsonable(row.gate).items() if name != "learned_limits"},
        "words": describe_upstream(row, now),
        "limits": facts(row.limits),
        "by_hand": row.limits.set_by_person,
        "learned": jsonable(row.gate.learned_limits),
        "in_flight": row.in_flight,
        **tasks_before(row),
        "retrying": row.retrying,
    }
