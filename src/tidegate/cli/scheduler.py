"""`tidegate scheduler`: the housekeeping, in a process without user code."""

from __future__ import annotations

import click

from tidegate.cli.common import log_format_option
from tidegate.cli.health import CommandWithHealth
from tidegate.config import load_config


@click.command("scheduler", cls=CommandWithHealth)
@click.option("--database", metavar="URL", help="Use this database instead of the configured one.")
@log_format_option
@click.option("--name", metavar="NAME", help="Name of this scheduler in logs and for `health`.")
def command(database: str | None, name: str | None) -> int:
    """Promote due tasks, take up those of lost workers, apply retention: until SIGTERM or Ctrl-C.

    Every worker does so too, unless it is started with --no-maintenance; it may be done on any number of
    machines at once. Needs the database and no application.

    `tidegate scheduler health` tells whether it lives and is ready.
    """
    from tidegate.worker.supervisor.scheduler import run_scheduler

    config = load_config()
    return run_scheduler(database or config.database_url, timings=config.timings, name=name)
