"""`tidegate autoscale`: how many workers each pool should have now, and why."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.output import jsonable, print_json
from tidegate.cli.table import print_table
from tidegate.domain.readers import positive_option
from tidegate.errors import OptionError
from tidegate.monitor.scaling import decide_scaling, scaling_of
from tidegate.worker.settings import Pool


@click.command()
@click.argument("pool", required=False)
@click.option("--min", "least", type=click.IntRange(0), default=0, show_default=True, help="Least workers.")
@click.option(
    "--max",
    "most",
    type=click.IntRange(0),
    help="The most workers that a pool may have; default: any number.",
)
@click.option(
    "--target",
    metavar="TIME",
    default="1m",
    show_default=True,
    help="The time within which the backlog should be done.",
)
@click.option(
    "--backlog-per-worker",
    type=click.IntRange(1),
    help="Show one worker for each N waiting tasks, and ignore how long tasks run.",
)
@location_options
@json_option
def command(
    pool: str | None,
    least: int,
    most: int | None,
    target: str,
    backlog_per_worker: int | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Show how many workers each pool, or only POOL, should have now, and what limits the number.

    This many WORKERS finish the runnable tasks within the target, as far as the limits of the upstreams
    permit. Paused tasks and tasks of a closed upstream do not count. The pools are those of the application
    (--app) or of tidegate.toml.
    """
    pools = [each for each in location.pools if pool in (None, each.name)]
    if not pools:
        names = ", ".join(each.name for each in location.pools)
        raise OptionError(f"there is no pool {pool}", fix=f"the pools are: {names}", option="pool")
    seconds = positive_option("--target", target)
    run(_show(location, pools, least, most, seconds, backlog_per_worker, as_json=as_json))


async def _show(
    location: StoreLocation,
    pools: Sequence[Pool],
    least: int,
    most: int | None,
    target_seconds: float,
    backlog_per_worker: int | None,
    *,
    as_json: bool,
) -> None:
    async with opened_store(location) as store:
        found = []
        for pool in pools:
            scaling = scaling_of(pool, least, most, target_seconds, backlog_per_worker)
            found.append((pool, await decide_scaling(store, pool.queues, scaling)))
    if as_json:
        for pool, decision in found:
            print_json({"pool": pool.name} | jsonable(decision))
        return
    rows = [
        [pool.name, decision.workers, decision.runnable, decision.running, decision.reason]
        for pool, decision in found
    ]
    print_table(
        ["POOL", "WORKERS", "RUNNABLE", "RUNNING", "WHY"], rows, numbers=["WORKERS", "RUNNABLE", "RUNNING"]
    )
