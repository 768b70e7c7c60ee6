"""Read the data from which the drain estimates of queues are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.limits.pauses import Pauses
from tidegate.limits.values import GateRow
from tidegate.policy.backlog import ChannelCount, UnservedReason
from tidegate.policy.drain import DrainWork, DrainWorker
from tidegate.policy.drain_work import MINUTES, DrainCounts, Name, RunTimes, build_drain_work
from tidegate.store.common import workers
from tidegate.store.common.session import Session
from tidegate.store.common.work_counts import RUN_TIME_MINUTES
from tidegate.store.live_workers import is_live


async def get_drain_work(
    db: Session,
    now: float,
    *,
    ready: Sequence[ChannelCount],
    gate_rows: Sequence[GateRow],
    in_flight: Mapping[str, int],
    pauses: Pauses,
    unserved: UnservedReason | None,
) -> DrainWork:
    """Return the work of all queues that is not blocked, with the limits and workers that set its pace."""
    sql, minute = db.sql("get_work"), int(now // 60)
    running = {
        (queue, upstream, function, priority): tasks
        for queue, upstream, function, priority, tasks in await db.rows(sql["running_by_priority"])
    }
    times = {
        (queue, upstream, function): RunTimes(float(seconds), int(runs), int(ends))
        for queue, upstream, function, seconds, runs, ends in await db.rows(
            sql["run_times"], minute - RUN_TIME_MINUTES
        )
    }
    enqueued: dict[Name, dict[int, int]] = {}
    for row in await db.rows(sql["lately"], minute - MINUTES):
        _add_minute(enqueued, row)
    live = [
        DrainWorker(worker.queues, worker.slots)
        for worker in await workers.list_workers(db)
        if is_live(worker, now)
    ]
    return build_drain_work(
        DrainCounts(ready, running, times, enqueued, gate_rows, in_flight, pauses, live, now, unserved)
    )


def _add_minute(enqueued: dict[Name, dict[int, int]], row: Sequence[Any]) -> None:
    queue, upstream, function, minute, tasks = row
    enqueued.setdefault((queue, upstream, function), {})[minute] = int(tasks)
