"""Counts of the tasks that workers run or could run, for autoscaling."""

from __future__ import annotations

from tidegate.limits.pauses import Pauses
from tidegate.policy.work import ChannelWork, Work
from tidegate.store.common import control, gates, stats
from tidegate.store.common.session import Session
from tidegate.store.live_workers import growing_functions

RUN_TIME_MINUTES = 60
"""How many of the latest minutes count for the average run time."""


async def get_work(db: Session) -> Work:
    """Return the tasks by queue, upstream and function, with the gates and pauses that hold them back."""
    now = await db.now()
    sql, found = db.sql("get_work"), dict[tuple[str, str, str], ChannelWork]()

    def of(queue: str, upstream: str, function: str) -> ChannelWork:
        return found.setdefault((queue, upstream, function), ChannelWork(queue, upstream, function))

    for queue, upstream, function, tasks, *_ in await db.rows(db.sql("get_queue_stats")["ready"]):
        of(queue, upstream, function).runnable += tasks
    for queue, upstream, function, tasks in await db.rows(sql["due"], now):
        of(queue, upstream, function).runnable += tasks
    for queue, upstream, function, tasks in await db.rows(sql["running"]):
        of(queue, upstream, function).running += tasks
    for queue, upstream, function, seconds, runs in await db.rows(
        sql["run_seconds"], int(now // 60) - RUN_TIME_MINUTES
    ):
        if (channel := found.get((queue, upstream, function))) is not None:
            channel.run_seconds = float(seconds) / int(runs)
    return Work(
        list(found.values()),
        await gates.rows(db),
        Pauses(await control.list_pauses(db)),
        now,
        growing_functions(await stats.load_manifests(db)),
    )
