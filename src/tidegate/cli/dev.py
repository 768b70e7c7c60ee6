"""`tidegate dev`: one worker for every queue, restarted when code changes."""

from __future__ import annotations

import os

import click

from tidegate.cli.common import app_reference
from tidegate.config import Config, load_config
from tidegate.worker.settings import Pool

_ENVIRONMENT = "development"


@click.command()
@click.argument("app", metavar="[APP]", required=False)
@click.option("--database", metavar="URL", help="Use this database instead of the application's.")
def command(app: str | None, database: str | None) -> int:
    """Run one pool for every queue of APP (MODULE:NAME); restart the pool when a .py file changes.

    Sets TIDEGATE_ENV to "development" unless it is set already.
    """
    from tidegate.worker.supervisor.run import run_worker

    os.environ.setdefault("TIDEGATE_ENV", _ENVIRONMENT)
    config = load_config()
    return run_worker(
        app_reference(app),
        pools=development_pools(config),
        timings=None,
        database_url=database,
        name="dev",
        reload=True,
        alerts=config.alerts,
    )


def development_pools(config: Config) -> tuple[Pool, ...]:
    """Return the pools in the section of this environment; if it has none, one pool for every queue."""
    own = f"env.{config.environment}]"
    if config.origins.get("pools", "").endswith(own):
        return config.pools
    return (Pool("all", ("*",), poll_interval=0.1),)
