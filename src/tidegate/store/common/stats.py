"""Counts by queue, which never scan finished tasks, and the manifests of applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.limits.admission import upstreams_to_count
from tidegate.limits.pauses import Pauses
from tidegate.policy.backlog import ChannelCount, UnservedReason, count_backlogs
from tidegate.store.common import control, drains, gates
from tidegate.store.common.session import Session
from tidegate.store.common.stats_builder import QueueStatsBuilder, first_window_minute
from tidegate.store.common.text import storable
from tidegate.store.rows import QueueStats


async def get_queue_stats(db: Session, unserved: UnservedReason | None = None) -> list[QueueStats]:
    """Return each queue that has a task, finished a task in the last ten minutes, or is paused, by name.

    The ten minutes are the current minute and the nine full minutes before it.
    """
    sql, now = db.sql("get_queue_stats"), await db.now()
    builder, first = QueueStatsBuilder(), first_window_minute(now)
    pauses = Pauses(await control.list_pauses(db))
    gate_rows = await gates.rows(db)
    in_flight = await gates.in_flight(db, now, upstreams_to_count(gate_rows, now))
    ready = [ChannelCount(*row) for row in await db.rows(sql["ready"])]
    builder.add_backlogs(count_backlogs(ready, gate_rows, in_flight, now, unserved, pauses))
    builder.add_pauses(pauses)
    builder.add_counts("running", await db.rows(sql["running"]))
    builder.add_waiting(await db.rows(sql["waiting"]))
    builder.add_counts("dead", await db.rows(sql["dead"]))
    builder.add_batches(await db.rows(sql["enqueue_batch_task"]))
    builder.add_finished(await db.rows(sql["done"], first, int(now // 60) - 1), now)
    builder.set_history(now, dict(map(tuple, await db.rows(sql["done_ever"]))))
    work = await drains.get_drain_work(
        db, now, ready=ready, gate_rows=gate_rows, in_flight=in_flight, pauses=pauses, unserved=unserved
    )
    return builder.build(work)


async def save_manifest(db: Session, app: str, manifest: Mapping[str, Any]) -> None:
    """Store what an application declares."""
    body = msgspec.json.encode(manifest).decode()
    await db.run(db.sql("save_manifest")["save"], db.at, storable(app), body)


async def load_manifests(db: Session) -> dict[str, dict[str, Any]]:
    """Return the stored manifests by application."""
    rows = await db.rows(db.sql("load_manifests")["all"])
    return {app: msgspec.json.decode(body, type=dict[str, Any]) for app, body in rows}
