"""`tidegate db`: upgrade the schema and check the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.db_move import move_command
from tidegate.cli.db_restore import restore_command
from tidegate.cli.db_retention import archive_command, retention_command
from tidegate.cli.db_size import size_command
from tidegate.cli.error_report import FAILED
from tidegate.cli.output import print_json, print_message
from tidegate.domain.text import counted
from tidegate.errors import ConfigError
from tidegate.store.common.upkeep import INCONSISTENCIES

if TYPE_CHECKING:
    from tidegate.store.postgres.store import PostgresStore


@click.group()
def command() -> None:
    """Upgrade, check, measure, restore or move the database, or print SQL for its administrator."""


command.add_command(move_command)
command.add_command(restore_command)
command.add_command(size_command)
command.add_command(retention_command)
command.add_command(archive_command)


@command.command("upgrade")
@location_options
@click.option("--sql", is_flag=True, help="Print the SQL and run nothing (PostgreSQL).")
@json_option
def upgrade_command(location: StoreLocation, sql: bool, as_json: bool) -> None:
    """Upgrade the schema to this version; create the database if there is none. Safe to repeat.

    With PostgreSQL, workers of the previous version may run during the upgrade. Start workers of this version
    after the upgrade.
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
    print_message(f"applied {counted(len(applied), 'migration')}" if applied else "the schema is up to date")


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
    """Print the SQL that creates the four database roles; an administrator runs it (PostgreSQL).

    The migrator role owns the tables and runs `tidegate db upgrade`. Workers and clients log in with the
    worker role, which cannot alter tables. The reader role can only read.
    """
    from tidegate.store.postgres.roles import roles_sql

    click.echo(roles_sql(_postgres(location).address.schema), nl=False)


def _postgres(location: StoreLocation) -> PostgresStore:
    """Return the store of a PostgreSQL URL.

    Raises:
        ConfigError: The URL names a SQLite file.
    """
    from tidegate.store.connect import is_postgres, open_store

    if not is_postgres(location.url):
        raise ConfigError(
            "this command prints SQL for PostgreSQL only",
            fix="choose a PostgreSQL database: --database postgresql://…",
        )
    store: Any = open_store(location.url)
    postgres: PostgresStore = store
    return postgres


_RESTORED_LEASE_SECONDS = 30.0
"""The lease of a worker row that `--repair` restores: the default lease."""


@command.command("check")
@location_options
@click.option(
    "--repair", is_flag=True, help="Restore the missing row of each worker that still has running tasks."
)
@json_option
def check_command(location: StoreLocation, repair: bool, as_json: bool) -> int:
    """Check the schema and all rows of the database; exit code 1 if something is wrong."""
    faults, restored = run(_check(location, repair=repair))
    if as_json:
        print_json({"sound": not faults, "faults": faults} | ({"restored": restored} if repair else {}))
        return FAILED if faults else 0
    if restored:
        click.echo(f"restored the rows of {counted(len(restored), 'worker')}: {', '.join(restored)}")
        click.echo(
            f"a running `tidegate worker` or `tidegate scheduler` requeues their tasks in "
            f"{_RESTORED_LEASE_SECONDS:g} s"
        )
    click.echo("\n".join(faults) if faults else "sound")
    if any(fault.endswith(INCONSISTENCIES["missing_worker"]) for fault in faults):
        click.echo("a running worker repairs this within seconds; if none runs: tidegate db check --repair")
    return FAILED if faults else 0


async def _check(location: StoreLocation, *, repair: bool) -> tuple[list[str], list[str]]:
    async with opened_store(location) as store:
        restored: tuple[str, ...] = ()
        if repair:
            reaper_pass = await store.record_reaper_pass(
                longest_gap_seconds=0.0, lease_seconds=_RESTORED_LEASE_SECONDS
            )
            restored = reaper_pass.restored_workers
        return await store.check_integrity(), list(restored)
