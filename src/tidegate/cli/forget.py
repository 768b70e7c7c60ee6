"""`tidegate forget`."""

from __future__ import annotations

import sys

import click

from tidegate.cli.common import (
    StoreLocation,
    dry_run_option,
    json_option,
    location_options,
    opened_store,
    run,
)
from tidegate.cli.error_report import FAILED
from tidegate.cli.output import print_json, print_message
from tidegate.config import load_config
from tidegate.domain.text import counted
from tidegate.operations.forget import ForgetReport, forget
from tidegate.operations.pauses import current_user
from tidegate.store.archive import archive_of


@click.command()
@click.option("--task", "task_id", metavar="ID", help="Forget this task; a deleted task needs its full id.")
@click.option("--tenant", metavar="NAME", help="Forget this tenant with all its tasks.")
@click.option(
    "--cancel", is_flag=True, help="First cancel tasks that are not final, and wait until they end."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@location_options
@json_option
def command(
    task_id: str | None,
    tenant: str | None,
    cancel: bool,
    yes: bool,
    dry_run: bool,
    location: StoreLocation,
    as_json: bool,
) -> int:
    """Permanently remove a task, or a tenant with its tasks, from every table, the archive and their files.

    Refuses while a task is not final, unless --cancel is given. The files of the database are rewritten, and
    workers wait meanwhile. Backups and archives on other machines are not touched.
    """
    planned = run(_forget(location, task_id, tenant, cancel=cancel, dry_run=True))
    if dry_run:
        return _print(planned, as_json)
    if not yes:
        _confirm(planned, task_id or f"tenant {tenant}")
    return _print(run(_forget(location, task_id, tenant, cancel=cancel, dry_run=False)), as_json)


def _confirm(planned: ForgetReport, what: str) -> None:
    """Ask the user to confirm the number of tasks.

    Raises:
        UsageError: There is no terminal to ask.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("give --yes to forget without a question, or --dry-run to count")
    print_message(f"forget {what}: {counted(planned.tasks, 'task')}, {planned.unfinished} of them not final")
    if click.prompt("this cannot be undone; type the number of tasks", type=int, err=True) != planned.tasks:
        raise click.Abort


async def _forget(
    location: StoreLocation, task_id: str | None, tenant: str | None, *, cancel: bool, dry_run: bool
) -> ForgetReport:
    retention = load_config().retention if location.application is None else location.application.retention
    async with opened_store(location) as store:
        return await forget(
            store,
            task_id=task_id,
            tenant=tenant,
            archive=archive_of(retention),
            by=current_user("command line"),
            cancel=cancel,
            dry_run=dry_run,
        )


def _print(report: ForgetReport, as_json: bool) -> int:
    if as_json:
        print_json(report)
    elif report.is_dry_run:
        click.echo(f"would forget {counted(report.tasks, 'task')}, {report.unfinished} of them not final")
    else:
        click.echo(
            f"forgot {counted(report.tasks, 'task')}, {counted(report.other_rows, 'other row')},"
            f" {counted(report.archived_rows, 'archived row')}"
        )
    if report.not_erased:
        print_message(f"deleted bytes may still be in the files: {report.not_erased}")
        return FAILED
    return 0
