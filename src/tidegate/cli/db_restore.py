"""`tidegate db restore`: replace a SQLite file by a backup."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.cli.common import StoreLocation, dry_run_option, json_option, location_options
from tidegate.cli.output import print_json, print_message
from tidegate.domain.text import counted
from tidegate.errors import ConfigError


@click.command("restore")
@click.argument("backup", type=click.Path(path_type=Path))
@location_options
@dry_run_option
@json_option
def restore_command(backup: Path, location: StoreLocation, dry_run: bool, as_json: bool) -> None:
    """Replace the SQLite database by a copy of BACKUP.

    First stop everything that uses the database. Exit code 75 if a process still has it open. The command
    checks BACKUP before it changes anything. BACKUP, the old file and its -wal are kept.
    """
    from tidegate.store.connect import is_postgres, sqlite_path
    from tidegate.store.sqlite.restore import restore

    if is_postgres(location.url):
        raise ConfigError(
            "this command restores SQLite files only",
            fix="restore a PostgreSQL database with pg_restore, while no worker runs",
        )
    done = restore(backup, sqlite_path(location.url), dry_run=dry_run)
    if as_json:
        print_json(
            {
                "database": str(done.path),
                "backup": str(done.backup),
                "tasks": done.tasks,
                "needs_upgrade": done.is_old,
                "kept": [str(file) for file in done.kept],
                "dry_run": dry_run,
            }
        )
        return
    print_message(
        f"{'would restore' if dry_run else 'restored'} {done.path} from {done.backup}:"
        f" {counted(done.tasks, 'task')}"
    )
    for file in done.kept:
        print_message(f"kept the old file: {file}")
    if done.is_old:
        print_message(
            "the backup has an older schema: run `tidegate db upgrade` before you start workers or clients"
        )
