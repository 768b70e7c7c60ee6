"""`tidegate status`: the queues with their expected drain time, the upstreams and the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from tidegate.cli.common import (
    StoreLocation,
    json_option,
    location_options,
    move_target,
    opened_store,
    run,
    warn_if_moved,
)
from tidegate.cli.formatting import format_duration, format_since, moment, printable
from tidegate.cli.output import jsonable, print_json, style
from tidegate.cli.table import print_table
from tidegate.cli.upstreams import print_upstreams, upstream_json
from tidegate.domain.text import counted
from tidegate.limits.pauses import PauseKind
from tidegate.operations.overview import read_overview
from tidegate.policy.backlog import WORKERS
from tidegate.policy.drain import DrainKind
from tidegate.store.controls import ControlKind
from tidegate.store.live_workers import is_live, late_seconds
from tidegate.store.overview_rows import OverviewRow
from tidegate.store.rows import QueueStats
from tidegate.store.worker_rows import WorkerRow

_WATCH_SECONDS = 1.0
_COUNTS = ("ready", "paced", "blocked", "running", "retrying", "scheduled", "suspended", "dead")
_OPTIONAL_COUNTS = ("SUSPENDED", "SCHEDULED", "RETRYING", "DEAD", "BLOCKED", "PACED", "OLDEST")
"""The columns that a narrow terminal leaves out; columns without any value are left out first."""
_MOST_WAITS = 20
_MOST_DOUBTS = 1_000


@click.command()
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@location_options
@json_option
def command(watch: bool, location: StoreLocation, as_json: bool) -> None:
    """Show the queues, the upstreams and the live workers.

    READY tasks start as soon as a worker has a free slot. PACED tasks wait for a rate, token or in-flight
    limit. BLOCKED tasks cannot run: they are paused, their upstream is parked, or no live worker runs them.
    The lines below the table show the reasons, and what is paused. DRAINS IN is the expected time until the
    ready and paced tasks are done. The time depends on the slots of the workers, the limits of the upstreams
    and the tasks that arrive: "unknown" without any history, "never" if more tasks arrive than finish, or
    none finish. `tidegate why QUEUE` explains the estimate.
    """
    run(_show(location, watch, as_json))


async def _show(location: StoreLocation, watch: bool, as_json: bool) -> None:
    async with opened_store(location) as store, move_target(location.url) as moved_to:
        while True:
            overview, destination = await read_overview(store), await moved_to()
            if watch and not as_json:
                click.clear()
                warn_if_moved(location.url, destination)
            doubts = len(await store.list_doubts(limit=_MOST_DOUBTS))
            if as_json:
                print_json(overview_json(overview) | {"open_doubts": doubts, "moved_to": destination})
            else:
                _print(overview, doubts)
            if not watch:
                return
            await asyncio.sleep(_WATCH_SECONDS)


def overview_json(overview: OverviewRow) -> dict[str, Any]:
    """Return the overview as JSON values."""
    queues = [jsonable(stats) for stats in overview.queues]
    workers = [
        {"worker_id": worker.id}
        | {name: value for name, value in jsonable(worker).items() if name != "id"}
        | {"live": is_live(worker, overview.at), "late_seconds": late_seconds(worker, overview.at)}
        for worker in overview.workers
    ]
    upstreams = [upstream_json(row, overview.at) for row in overview.upstreams]
    return {
        "at": overview.at,
        "queues": queues,
        "upstreams": upstreams,
        "workers": workers,
        "pauses": jsonable(overview.pauses),
        "controls": jsonable(overview.controls),
    }


def _print(overview: OverviewRow, doubts: int) -> None:
    print_queues(overview.queues, overview.at)
    for pause in overview.pauses:
        if pause.kind is PauseKind.FUNCTION:
            click.echo(style(printable(f"function {pause.name}: {pause.describe(overview.at)}"), "yellow"))
    click.echo()
    if overview.upstreams:
        print_upstreams(overview.upstreams, overview.at)
        click.echo()
    _print_workers(overview)
    _print_controls(overview)
    if doubts:
        more = " or more" if doubts >= _MOST_DOUBTS else ""
        count = f"{counted(doubts, 'call')}{more} may have been processed without an answer"
        click.echo(style(f"{count}: tidegate doubts ls", "yellow"))
    click.echo(f"\nat {moment(overview.at)}")


def print_queues(queues: Sequence[QueueStats], now: float) -> None:
    """Print queues as a table, followed by why tasks wait and which queues are paused."""
    if not queues:
        click.echo("no tasks yet; enqueue one: tidegate enqueue FUNCTION ARG")
        return
    has_suspended = any(stats.suspended for stats in queues)
    counts = [name for name in _COUNTS if has_suspended or name != "suspended"]
    rows = [
        [
            stats.queue,
            *(getattr(stats, name) for name in counts),
            format_duration(None if stats.oldest_ready_at is None else max(0.0, now - stats.oldest_ready_at)),
            stats.done_last_minute,
            stats.drain,
        ]
        for stats in queues
    ]
    heads = ["QUEUE", *(name.upper() for name in counts), "OLDEST", "DONE/MIN", "DRAINS IN"]
    print_table(heads, rows, numbers=heads[1:], optional=_OPTIONAL_COUNTS, shorten=["QUEUE"])
    for stats in queues:
        if stats.drain.kind is DrainKind.NEVER:
            click.echo(style(printable(f"{stats.queue} {stats.drain.describe()}"), "yellow"))
    _print_waits(queues)
    for stats in queues:
        if stats.pause is not None:
            click.echo(style(printable(f"queue {stats.queue}: {stats.pause.describe(now)}"), "yellow"))


def _print_waits(queues: Sequence[QueueStats]) -> None:
    """Print why tasks are paced or blocked, the reason with the most tasks first."""
    waits = [(stats.queue, wait) for stats in queues for wait in stats.waits]
    waits = [
        (queue, wait) for queue, wait in waits if wait.by != f"queue {queue}"
    ]  # the pause is shown once for the queue
    waits.sort(key=lambda each: -each[1].tasks)
    for queue, wait in waits[:_MOST_WAITS]:
        tasks = f"{wait.tasks} {wait.kind} in {queue}"
        by = "" if wait.by == WORKERS else f"{wait.by}: "
        click.echo(style(printable(f"{tasks}: {by}{wait.reason}"), "yellow"))
    if len(waits) > _MOST_WAITS:
        click.echo(f"and {len(waits) - _MOST_WAITS} more reasons: --json shows all")


def _print_workers(overview: OverviewRow) -> None:
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
                _heartbeat(worker, overview.at),
                ",".join(worker.queues),
            ]
            for worker in live
        ]
        heads = ["WORKER", "POOL", "PROCESS", "BUSY", "HEARTBEAT", "QUEUES"]
        print_table(heads, rows, numbers=["BUSY"], shorten=["WORKER", "PROCESS", "POOL"])
    _print_versions(live)
    if late := sum(late_seconds(worker, overview.at) is not None for worker in live):
        words, whose = ("has", "its") if late == 1 else ("have", "their")
        text = f"{counted(late, 'worker')} {words} missed a heartbeat; {whose} tasks are requeued when "
        click.echo(style(f"{text}the lease ends", "yellow"))
    if silent:
        click.echo(
            style(
                f"{counted(silent, 'worker')} not live: the lease ran out, or it retired with tasks left",
                "yellow",
            )
        )


def _print_versions(live: Sequence[WorkerRow]) -> None:
    """Print which applications run in several versions, for example during a rolling restart."""
    codes: dict[str, set[str]] = {}
    for worker in live:
        if worker.code:
            codes.setdefault(worker.application, set()).add(worker.code)
    for application, versions in codes.items():
        if len(versions) > 1:
            words = f"{application or 'embedded workers'}: {len(versions)} versions of the code are live"
            click.echo(style(f"{words}; a task that fits only one of them waits for it", "yellow"))


def _print_controls(overview: OverviewRow) -> None:
    """Print which workers are quiet, and which pools have another concurrency than in the code."""
    for row in overview.controls:
        if row.kind is ControlKind.QUIET and row.value == 1:
            words = f"worker {row.name}: quiet"
        elif row.kind is ControlKind.CONCURRENCY and row.value is not None:
            words = f"pool {row.name}: concurrency {row.value}"
        else:
            continue
        why = f" ({row.why})" if row.why else ""
        when = format_since(row.changed_at, overview.at)
        click.echo(style(printable(f"{words}, set {when} by {row.changed_by}{why}"), "yellow"))


def _heartbeat(worker: WorkerRow, now: float) -> str:
    late = late_seconds(worker, now)
    return format_since(worker.heartbeat_at, now) if late is None else f"none for {format_duration(late)}"
