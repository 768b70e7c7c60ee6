"""`tidegate db restore`: a backup in the place of a SQLite file."""

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
    """Put a copy of BACKUP in the place of the SQLite database.

    Stop everything that uses the database first; exit code 75 if a process still has it open. BACKUP is
    checked before anything is changed, and stays as it is. The old file and its -wal are kept.
    """
    from tidegate.store.connect import is_postgres, sqlite_path
    from tidegate.store.sqlite.restore import restore

    if is_postgres(location.url):
        raise ConfigError(
            "only a SQLite file is restored by this command",
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
        print_message(f"what was there before: {file}")
    if done.is_old:
        print_message(
            "its schema is older than this version's: run `tidegate db upgrade` before you start anything"
        )
