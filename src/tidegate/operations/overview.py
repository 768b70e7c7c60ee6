"""Queues, upstreams and workers at a glance. Nothing here scans the finished tasks."""

from __future__ import annotations

from tidegate.store.overview_rows import OverviewRow
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats


async def read_overview(store: Store) -> OverviewRow:
    """Return the queues with their drain estimates, the upstreams and the workers, from one snapshot."""
    return await store.get_overview()


async def read_queues(store: Store) -> list[QueueStats]:
    """Return, by name, each queue that holds a task, finished one in the last ten minutes or is paused.

    Each has a drain estimate. Ready tasks that no live worker runs count as blocked.
    """
    return list((await store.get_overview()).queues)
