"""Counts by queue that never scan what is finished, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.policy.admission import counted
from tidegate.policy.backlog import Backlog, Lane, Unserved, backlogs
from tidegate.store.common import gates
from tidegate.store.common.session import Session
from tidegate.store.figures import Figures, first_minute
from tidegate.store.rows import QueueStats
from tidegate.store.text import storable


async def queue_stats(db: Session, unserved: Unserved | None = None) -> list[QueueStats]:
    """Return each queue that holds a task or finished one in the last ten minutes, by name.

    The ten minutes are the one under way and the nine full ones before it.
    """
    sql, now = db.sql("queue_stats"), await db.now()
    figures, first = Figures(), first_minute(now)
    figures.backlogs(await _backlogs(db, now, unserved))
    figures.counted("running", await db.rows(sql["running"]))
    figures.waiting(await db.rows(sql["waiting"]))
    figures.counted("dead", await db.rows(sql["dead"]))
    figures.staged(await db.rows(sql["staged"]))
    figures.done(await db.rows(sql["done"], first, int(now // 60) - 1), now)
    before = await db.run_each(sql["done_before"], [(queue,) for queue in figures.queues], first)
    figures.history(now, {queue for (queue,) in before})
    return figures.stats()


async def save_manifest(db: Session, app: str, manifest: Mapping[str, Any]) -> None:
    """Keep what an application declares."""
    body = msgspec.json.encode(manifest).decode()
    await db.run(db.sql("save_manifest")["save"], db.at, storable(app), body)


async def manifests(db: Session) -> dict[str, dict[str, Any]]:
    """Return the kept manifests by application."""
    rows = await db.rows(db.sql("manifests")["all"])
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in rows}


async def _backlogs(db: Session, now: float, unserved: Unserved | None) -> dict[str, Backlog]:
    every = await gates.rows(db)
    lanes = [Lane(*row) for row in await db.rows(db.sql("queue_stats")["ready"])]
    return backlogs(lanes, every, await gates.in_flight(db, now, counted(every, now)), now, unserved)
