"""`tidegate worker`: run the pools of an application until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from tidegate.cli.common import app_reference, log_format_option
from tidegate.cli.health import CommandWithHealth
from tidegate.cli.values import as_seconds
from tidegate.cli.worker_control import quiet_command, reload_command, resume_command
from tidegate.config import Config, load_config
from tidegate.config.table import did_you_mean
from tidegate.domain.readers import shown
from tidegate.worker.settings import Pool, Timings


class WorkerCommand(CommandWithHealth):
    """`tidegate worker` with its subcommands."""

    @property
    def commands(self) -> dict[str, click.Command]:
        """The subcommands of this command: `health`, `quiet`, `resume` and `reload`."""
        return super().commands | {
            "quiet": quiet_command,
            "resume": resume_command,
            "reload": reload_command,
        }


@click.command("worker", cls=WorkerCommand)
@click.argument("app", metavar="[APP]", required=False)
@click.option(
    "--pool", "names", multiple=True, metavar="NAME", help="Run only this pool of tidegate.toml. Repeatable."
)
@click.option(
    "--queues", metavar="A,B", help="Run one pool for these queues instead of the configured pools."
)
@click.option("--concurrency", type=click.IntRange(1), help="How many tasks each process runs at once.")
@click.option("--processes", type=click.IntRange(1), help="How many processes each pool has.")
@click.option(
    "--grace", metavar="SPAN", type=as_seconds, help="How long running tasks have to finish after SIGTERM."
)
@click.option("--name", metavar="NAME", help="Name of this worker in lists and logs.")
@click.option("--database", metavar="URL", help="Use this database instead of the application's.")
@log_format_option
@click.option(
    "--no-maintenance", is_flag=True, help="Leave maintenance to other workers or to `tidegate scheduler`."
)
def command(
    app: str | None,
    names: Sequence[str],
    queues: str | None,
    concurrency: int | None,
    processes: int | None,
    grace: float | None,
    name: str | None,
    database: str | None,
    no_maintenance: bool,
) -> int:
    """Run the worker pools of APP (MODULE:NAME), as configured unless options override it.

    SIGTERM or Ctrl-C stops claiming and lets running tasks finish. Tasks that still run after the grace time
    are released to the queue, without charging an attempt; a second signal releases them at once. SIGHUP or
    `tidegate worker reload` restarts the pool processes one by one, so that they load changed code.

    `tidegate worker health` checks whether the worker is alive and ready. `tidegate worker quiet NAME` lets a
    worker claim no more tasks, and `tidegate worker resume NAME` lets it claim again.
    """
    from tidegate.worker.supervisor.run import run_worker

    config = load_config()
    return run_worker(
        app_reference(app),
        pools=select_pools(config, names, _split(queues), concurrency, processes),
        timings=select_timings(config, grace),
        database_url=database,
        name=name,
        maintenance=not no_maintenance,
        alerts=config.alerts,
    )


def select_pools(
    config: Config,
    names: Sequence[str],
    queues: tuple[str, ...],
    concurrency: int | None,
    processes: int | None,
) -> tuple[Pool, ...] | None:
    """Return the pools that the options select; None if no option changes the pools of the application."""
    if not (names or queues or concurrency or processes):
        return None
    pools = _by_name(config.pools, names) if names else config.pools
    if queues:
        if len(names) > 1:
            raise click.UsageError("--queues runs one pool: give at most one --pool with it")
        pools = (replace(pools[0] if names else Pool(), queues=queues),)
    return tuple(
        replace(pool, concurrency=concurrency or pool.concurrency, processes=processes or pool.processes)
        for pool in pools
    )


def select_timings(config: Config, grace: float | None) -> Timings | None:
    """Return the timings that the options select; None for the application's own timings."""
    return None if grace is None else replace(config.timings, drain_grace=grace)


def _by_name(pools: Sequence[Pool], names: Sequence[str]) -> tuple[Pool, ...]:
    known = {pool.name: pool for pool in pools}
    for name in names:
        if name not in known:
            raise click.UsageError(
                f"the configuration has no pool {shown(name)}: {did_you_mean(name, known)}"
            )
    return tuple(known[name] for name in dict.fromkeys(names))


def _split(queues: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in (queues or "").split(","))))
