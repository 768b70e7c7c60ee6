"""`tidegate db`: the schema and the soundness of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.db_move import move_command
from tidegate.cli.db_restore import restore_command
from tidegate.cli.error_report import FAILED
from tidegate.cli.output import print_json, print_message
from tidegate.errors import ConfigError
from tidegate.store.common.integrity import INCONSISTENCIES

if TYPE_CHECKING:
    from tidegate.store.postgres.store import PostgresStore


@click.group()
def command() -> None:
    """Bring the database up to date, check it, restore or move it, or print what its administrator runs."""


command.add_command(move_command)
command.add_command(restore_command)


@command.command("upgrade")
@location_options
@click.option("--sql", is_flag=True, help="Only print the statements (PostgreSQL).")
@json_option
def upgrade_command(location: StoreLocation, sql: bool, as_json: bool) -> None:
    """Bring the schema up to this version's; make the database if there is none. Safe to repeat.

    With PostgreSQL, workers of the version before may go on meanwhile; start those of this version after it.
    """
    if sql:
        click.echo(run(_script(location)), nl=False)
        return
    applied = run(_upgrade(location))
    if as_json:
        print_json({"applied": applied})
        return
    for name in applied:
        click.echo(name)
    print_message(f"applied {len(applied)}" if applied else "the schema is up to date")


async def _upgrade(location: StoreLocation) -> list[str]:
    from tidegate.store.connect import open_store

    store = open_store(location.url)
    try:
        return await store.migrate()
    finally:
        await store.close()


async def _script(location: StoreLocation) -> str:
    store = _postgres(location)
    try:
        return await store.upgrade_script()
    finally:
        await store.close()


@command.command("roles")
@location_options
def roles_command(location: StoreLocation) -> None:
    """Print the statements that make the three database roles; for an administrator (PostgreSQL).

    The migrator runs `tidegate db upgrade` and owns the tables; workers and clients log in as the worker,
    which can change no table; the reader only reads.
    """
    from tidegate.store.postgres.roles import roles_sql

    click.echo(roles_sql(_postgres(location).address.schema), nl=False)


def _postgres(location: StoreLocation) -> PostgresStore:
    """Return the store of a PostgreSQL URL.

    Raises:
        ConfigError: The URL names another database.
    """
    from tidegate.store.connect import is_postgres, open_store

    if not is_postgres(location.url):
        raise ConfigError(
            "a SQLite file has no SQL to print", fix="name the database: --database postgresql://…"
        )
    store: Any = open_store(location.url)
    postgres: PostgresStore = store
    return postgres


_RESTORED_LEASE_SECONDS = 30.0
"""How long a worker whose row was missing has to beat: the usual lease."""


@command.command("check")
@location_options
@click.option(
    "--repair", is_flag=True, help="Give runs whose worker has no row any more the row of one again."
)
@json_option
def check_command(location: StoreLocation, repair: bool, as_json: bool) -> int:
    """Check the schema and examine the whole file; exit code 1 if something is wrong."""
    faults, restored = run(_check(location, repair=repair))
    if as_json:
        print_json({"sound": not faults, "faults": faults} | ({"restored": restored} if repair else {}))
        return FAILED if faults else 0
    if restored:
        click.echo(f"{len(restored)} workers have a row again: {', '.join(restored)}")
        click.echo(
            f"their tasks are taken up {_RESTORED_LEASE_SECONDS:g} s from now, by a `tidegate worker` or "
            "`tidegate scheduler` that runs then"
        )
    click.echo("\n".join(faults) if faults else "sound")
    if any(fault.endswith(INCONSISTENCIES["missing_worker"]) for fault in faults):
        click.echo("every worker mends that at its next look; where none runs: tidegate db check --repair")
    return FAILED if faults else 0


async def _check(location: StoreLocation, *, repair: bool) -> tuple[list[str], list[str]]:
    async with opened_store(location) as store:
        restored: tuple[str, ...] = ()
        if repair:
            noted = await store.record_reaper_pass(
                longest_gap_seconds=0.0, lease_seconds=_RESTORED_LEASE_SECONDS
            )
            restored = noted.restored_workers
        return await store.check_integrity(), list(restored)
