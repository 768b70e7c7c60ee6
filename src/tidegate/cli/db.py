"""`tidegate db`: the schema and the soundness of the database."""

from __future__ import annotations

import click

from tidegate.cli.common import Where, json_option, opened_store, run, where_options
from tidegate.cli.failure import FAILED
from tidegate.cli.output import print_json, talk


@click.group()
def command() -> None:
    """Bring the database up to date, or check it."""


@command.command("upgrade")
@where_options
@json_option
def upgrade_command(where: Where, as_json: bool) -> None:
    """Bring the schema up to this version's; make the database if there is none. Safe to repeat."""
    applied = run(_upgrade(where))
    if as_json:
        print_json({"applied": applied})
        return
    for name in applied:
        click.echo(name)
    talk(f"applied {len(applied)}" if applied else "the schema is up to date")


async def _upgrade(where: Where) -> list[str]:
    from tidegate.store.connect import open_store

    store = open_store(where.url)
    try:
        return await store.migrate()
    finally:
        await store.close()


@command.command("check")
@where_options
@json_option
def check_command(where: Where, as_json: bool) -> int:
    """Check the schema and examine the whole file; exit code 1 if something is wrong."""
    faults = run(_check(where))
    if as_json:
        print_json({"sound": not faults, "faults": faults})
    else:
        click.echo("\n".join(faults) if faults else "sound")
    return FAILED if faults else 0


async def _check(where: Where) -> list[str]:
    async with opened_store(where) as store:
        return await store.check()
