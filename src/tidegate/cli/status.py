"""`tidegate status`: each queue at a glance, when it will be empty, and who works."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from tidegate.cli.common import (
    Where,
    json_option,
    moves_of,
    opened_store,
    run,
    tell_if_moved,
    where_options,
)
from tidegate.cli.output import jsonable, print_json, print_table, style
from tidegate.cli.text import ago, duration, moment
from tidegate.cli.upstreams import print_upstreams, upstream_json
from tidegate.policy.drain import Drain, drain_estimate
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats, UpstreamRow, WorkerRow

_WATCH_SECONDS = 1.0
_COUNTS = ("ready", "blocked", "running", "retrying", "scheduled", "dead")


@dataclass(frozen=True, slots=True)
class Overview:
    """What one look at the store shows."""

    at: float
    """By the store's clock."""
    queues: Sequence[QueueStats]
    upstreams: Sequence[UpstreamRow]
    workers: Sequence[WorkerRow]


@click.command()
@click.option("--watch", is_flag=True, help="Look again every second until Ctrl-C.")
@where_options
@json_option
def command(watch: bool, where: Where, as_json: bool) -> None:
    """Show each queue at a glance, and the live workers.

    READY is what could run now; BLOCKED waits for an upstream and is never counted as ready. DRAINS IN is
    ready tasks by the completions of the last ten minutes: "unknown" without any history, "never" when
    tasks wait and none was finished.
    """
    run(_show(where, watch, as_json))


async def _show(where: Where, watch: bool, as_json: bool) -> None:
    async with opened_store(where) as store, moves_of(where.url) as moved_to:
        while True:
            overview, place = await look(store), await moved_to()
            if watch and not as_json:
                click.clear()
                tell_if_moved(where.url, place)
            print_json(overview_json(overview) | {"moved_to": place}) if as_json else _print(overview)
            if not watch:
                return
            await asyncio.sleep(_WATCH_SECONDS)


async def look(store: Store) -> Overview:
    """Read what the overview needs. Nothing in it scans what is finished."""
    queues, upstreams, workers = await store.queue_stats(), await store.upstreams(), await store.workers()
    return Overview(await store.now(), queues, upstreams, workers)


def drain_of(stats: QueueStats) -> Drain:
    """Return the drain estimate of a queue: its depth is what is ready."""
    return drain_estimate(
        depth=stats.ready, done=stats.done_last_10_minutes, history_seconds=stats.history_seconds
    )


def is_live(worker: WorkerRow, now: float) -> bool:
    """Return whether a worker is not retired and its lease runs."""
    return worker.retired_at is None and worker.expires_at > now


def overview_json(overview: Overview) -> dict[str, Any]:
    """Return the overview as JSON values."""
    queues = [jsonable(stats) | {"drain": jsonable(drain_of(stats))} for stats in overview.queues]
    workers = [jsonable(worker) | {"live": is_live(worker, overview.at)} for worker in overview.workers]
    upstreams = [upstream_json(row, overview.at) for row in overview.upstreams]
    return {"at": overview.at, "queues": queues, "upstreams": upstreams, "workers": workers}


def _print(overview: Overview) -> None:
    _print_queues(overview)
    click.echo()
    if overview.upstreams:
        print_upstreams(overview.upstreams, overview.at)
        click.echo()
    _print_workers(overview)
    click.echo(f"\nat {moment(overview.at)}")


def _print_queues(overview: Overview) -> None:
    if not overview.queues:
        click.echo("no tasks yet; store one: tidegate enqueue FUNCTION ARG")
        return
    rows = [
        [
            stats.queue,
            *(getattr(stats, name) for name in _COUNTS),
            duration(
                None if stats.oldest_ready_at is None else max(0.0, overview.at - stats.oldest_ready_at)
            ),
            stats.done_last_minute,
            drain_of(stats),
        ]
        for stats in overview.queues
    ]
    heads = ["QUEUE", *(name.upper() for name in _COUNTS), "OLDEST", "DONE/MIN", "DRAINS IN"]
    print_table(heads, rows, numbers=heads[1:])


def _print_workers(overview: Overview) -> None:
    live = [worker for worker in overview.workers if is_live(worker, overview.at)]
    silent = len(overview.workers) - len(live)
    if not live:
        click.echo(style("no live worker; start one: tidegate worker MODULE:APP", "yellow"))
    else:
        rows = [
            [
                worker.name,
                worker.pool,
                f"{worker.host}:{worker.pid}",
                f"{worker.running}/{worker.slots}",
                ago(worker.beat_at, overview.at),
                ",".join(worker.queues),
            ]
            for worker in live
        ]
        print_table(["WORKER", "POOL", "PROCESS", "BUSY", "LAST BEAT", "QUEUES"], rows, numbers=["BUSY"])
    if silent:
        click.echo(style(f"{silent} silent: lease over, or retired with tasks to be taken up", "yellow"))
