"""`tidegate upstreams`: look at upstreams, change their limits, park, open and probe their gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.common import Where, json_option, opened_store, run, where_options
from tidegate.cli.output import jsonable, print_facts, print_json, talk
from tidegate.cli.table import print_table
from tidegate.cli.text import moment
from tidegate.domain.upstream import Declared, GateKind, Limits, is_key_gate
from tidegate.errors import OptionError, UnknownUpstreamError
from tidegate.policy.gate_words import block_in_words, dimension_in_words, gate_in_words, learned_in_words
from tidegate.readers import positive_option, seconds_option, shown, wrong
from tidegate.store.protocol import Store
from tidegate.store.rows import UpstreamRow
from tidegate.upstream.limits import DURATIONS, changed_limits, facts, handed_back

_CODE = "code"
"""The value that hands a limit back to the code."""
_FORMS = "write LIMIT=NUMBER, LIMIT=none or LIMIT=code"

name_argument = click.argument("name", metavar="NAME")


@click.group()
def command() -> None:
    """Look at upstreams, change their limits, park, open and probe their gates."""


@command.command("ls")
@where_options
@json_option
def list_command(where: Where, as_json: bool) -> None:
    """List upstreams with their gates and what stands before them."""
    run(_list(where, as_json))


async def _list(where: Where, as_json: bool) -> None:
    async with opened_store(where) as store:
        rows = await store.upstreams()
        now = await store.now()
    if as_json:
        for row in rows:
            print_json(upstream_json(row, now))
    elif rows:
        print_upstreams(rows, now)
    else:
        talk("no upstream is known yet: a worker of an application that declares one makes it known")


@command.command("show")
@name_argument
@where_options
@json_option
def show_command(name: str, where: Where, as_json: bool) -> None:
    """Show one upstream: gate, limits, retry budget, and what its answers show of its own limits."""
    run(_show(where, name, as_json))


async def _show(where: Where, name: str, as_json: bool) -> None:
    async with opened_store(where) as store:
        row = await _known(store, name)
        now = await store.now()
    if as_json:
        print_json(upstream_json(row, now))
        return
    by_hand = row.limits.by_hand
    limits = dict.fromkeys(by_hand, "not limited") | {
        name: f"{value:g}" for name, value in facts(row.limits).items()
    }
    limits |= {name: f"{limits[name]} (by hand)" for name in by_hand}
    learned = {
        f"{dimension_in_words(limit.dimension)} shown": learned_in_words(limit, now)
        for limit in row.gate.learned
    }
    print_facts(
        {
            "upstream": row.name,
            "gate": state_in_words(row, now),
            "since": moment(row.gate.since_at),
            "until": moment(row.gate.until_at),
            "in flight": row.in_flight,
            **counts_of(row),
            "retrying": row.retrying,
        }
        | limits
        | learned
    )


@command.command("set")
@name_argument
@click.argument("limits", metavar="LIMIT=NUMBER...", nargs=-1, required=True)
@where_options
def set_command(name: str, limits: Sequence[str], where: Where) -> None:
    """Change limits for all workers, from the next claim on; `LIMIT=none` lifts one.

    What is set here counts, whatever the code says, until `LIMIT=code` hands it back.
    """
    back = [name for name, _, value in (text.partition("=") for text in limits) if value == _CODE]
    changes = dict(_change(text) for text in limits if text.partition("=")[2] != _CODE)
    run(_set(where, name, changes, back))


async def _set(where: Where, name: str, changes: dict[str, float | None], back: list[str]) -> None:
    declared = _declared(where, name)
    async with opened_store(where) as store:
        row = await _known(store, name)
        await store.set_limits(name, handed_back(changed_limits(row.limits, changes), back, declared))
    told = [f"{limit} {_shown(value)}" for limit, value in changes.items()]
    when = " from the next start of a worker on" if declared is None else ""
    talk(f"{name}: " + ", ".join([*told, *(f"{limit} as the code says{when}" for limit in back)]))


def _declared(where: Where, name: str) -> Limits | None:
    """Return what the application of `--app` declares of an upstream; None: nothing is known of it."""
    if where.application is None:
        return None
    declared: Sequence[Declared] = where.application.declared()
    kind = GateKind.UPSTREAM
    return next((each.limits for each in declared if (each.kind, each.name) == (kind, name)), None)


@command.command("park")
@name_argument
@click.option("--for", "length", metavar="TIME", help="Such as 10m; without it, until it is opened.")
@click.option("--why", default="", metavar="TEXT", help="Shown beside it.")
@where_options
def park_command(name: str, length: str | None, why: str, where: Where) -> None:
    """Start no more tasks of this upstream. Running ones go on; waiting ones keep their place."""
    seconds = None if length is None else positive_option("--for", length)
    run(_act(where, name, lambda store: store.park(name, seconds=seconds, why=why), "parked"))


@command.command("open")
@name_argument
@where_options
def open_command(name: str, where: Where) -> None:
    """Open the gate: the account is mended, or you know better."""
    run(_act(where, name, lambda store: store.open_gate(name), "open"))


@command.command("probe")
@name_argument
@where_options
def probe_command(name: str, where: Where) -> None:
    """Let one task try a parked upstream now; if it ends well, the gate opens."""
    run(_act(where, name, lambda store: store.probe(name), "its next task tries it"))


async def _act(where: Where, name: str, act: Any, done: str) -> None:
    async with opened_store(where) as store:
        if not await act(store):
            raise await _unknown(store, name)
    talk(f"{name}: {done}")


async def _known(store: Store, name: str) -> UpstreamRow:
    for row in await store.upstreams():
        if row.name == name:
            return row
    raise await _unknown(store, name)


async def _unknown(store: Store, name: str) -> UnknownUpstreamError:
    known = ", ".join(row.name for row in await store.upstreams()) or "none"
    return UnknownUpstreamError(
        f"no upstream is named {shown(name)}", fix=f"known here: {known}", upstream=name
    )


def _change(text: str) -> tuple[str, float | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"{shown(text)} names no number", fix=_FORMS)
    if value == "none":
        return name, None
    if name in DURATIONS:
        return name, seconds_option(name, value)
    try:
        return name, float(value)
    except ValueError:
        raise wrong(name, value, _FORMS) from None


def _shown(value: float | None) -> str:
    return "lifted" if value is None else f"= {value:g}"


def print_upstreams(rows: Sequence[UpstreamRow], now: float) -> None:
    """Print upstreams as a table."""
    print_table(
        ["UPSTREAM", "IN FLIGHT", "READY", "PACED", "BLOCKED", "RETRYING", "GATE"],
        [
            [row.name, row.in_flight, *counts_of(row).values(), row.retrying, state_in_words(row, now)]
            for row in rows
        ],
        numbers=["IN FLIGHT", "READY", "PACED", "BLOCKED", "RETRYING"],
        optional=["RETRYING", "PACED", "BLOCKED", "READY", "IN FLIGHT"],
        shorten=["UPSTREAM"],
    )


def counts_of(row: UpstreamRow) -> dict[str, int]:
    """Return the ready tasks before an upstream by what they wait for at its gate."""
    blocked = 0 if row.block is None else row.ready
    return {"ready": row.ready - row.paced - blocked, "paced": row.paced, "blocked": blocked}


def state_in_words(row: UpstreamRow, now: float) -> str:
    """Return what an upstream does, or why its tasks are blocked."""
    if row.block is not None:
        return block_in_words(row.block, row.limits, now)
    words = gate_in_words(row.gate, row.limits, now, of_runs=not is_key_gate(row.name))
    return f"{words}; {row.waits_for}" if row.waits_for and row.gate.failures == 0 else words


def upstream_json(row: UpstreamRow, now: float) -> dict[str, Any]:
    """Return an upstream as JSON values."""
    return {
        "name": row.name,
        "gate": {name: value for name, value in jsonable(row.gate).items() if name != "learned"},
        "words": state_in_words(row, now),
        "limits": facts(row.limits),
        "by_hand": row.limits.by_hand,
        "learned": jsonable(row.gate.learned),
        "in_flight": row.in_flight,
        **counts_of(row),
        "retrying": row.retrying,
    }
