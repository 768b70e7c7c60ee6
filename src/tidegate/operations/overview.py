"""Queues, upstreams and workers at a glance. Nothing here scans what is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.limits.pauses import Pause
from tidegate.store.controls import ControlRow
from tidegate.store.live_workers import find_live_workers, load_live_workers
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats, WorkerRow
from tidegate.store.upstream_rows import UpstreamRow


@dataclass(frozen=True, slots=True)
class Overview:
    """What one read of the store shows."""

    at: float
    """By the store's clock."""
    queues: Sequence[QueueStats]
    upstreams: Sequence[UpstreamRow]
    workers: Sequence[WorkerRow]
    pauses: Sequence[Pause] = ()
    """The paused queues and functions."""
    controls: Sequence[ControlRow] = ()
    """What people want of workers."""


async def read_overview(store: Store) -> Overview:
    """Return the queues, the upstreams and the workers."""
    workers, now = await store.list_workers(), await store.now()
    unserved = find_live_workers(workers, await store.load_manifests(), now).unserved
    queues, upstreams = await store.get_queue_stats(unserved), await store.list_upstreams()
    pauses, controls = await store.list_pauses(), await store.list_controls()
    return Overview(await store.now(), queues, upstreams, workers, pauses, controls)


async def read_queues(store: Store) -> list[QueueStats]:
    """Return each queue that holds a task, finished one in the last ten minutes or is paused, by name.

    Ready tasks that no live worker runs count as blocked.
    """
    return await store.get_queue_stats((await load_live_workers(store, await store.now())).unserved)
