"""`tidegate scheduler`: run maintenance in a process without the application."""

from __future__ import annotations

import click

from tidegate.cli.common import log_format_option
from tidegate.cli.health import CommandWithHealth
from tidegate.config import load_config


@click.command("scheduler", cls=CommandWithHealth)
@click.option("--database", metavar="URL", help="Use this database instead of the configured one.")
@log_format_option
@click.option("--name", metavar="NAME", help="Name of this scheduler in logs and in `health`.")
def command(database: str | None, name: str | None) -> int:
    """Run the maintenance of a store until SIGTERM.

    Maintenance promotes due tasks, fires schedules, requeues tasks of lost workers, applies retention and
    evaluates alerts.

    Every worker also runs maintenance unless it has --no-maintenance. Any number of machines may run it at
    the same time. The command needs the database, but no application.

    `tidegate scheduler health` checks whether it is alive and ready.
    """
    from tidegate.worker.supervisor.scheduler import run_scheduler

    config = load_config()
    return run_scheduler(
        database or config.database_url,
        timings=config.timings,
        retention=config.retention,
        name=name,
        alerts=config.alerts,
    )
