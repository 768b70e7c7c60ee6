"""Find upstreams whose limits the live workers cannot use up, from the rows of a store."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tidegate.policy import capacity
from tidegate.policy.capacity import SlotShortage
from tidegate.store.live_workers import is_live
from tidegate.store.protocol import Store


async def find_slot_shortages(store: Store) -> list[SlotShortage]:
    """Return the upstreams whose live workers have too few slots to use their limits up."""
    now, queues = await store.now(), defaultdict[str, set[str]](set)
    for manifest in (await store.load_manifests()).values():
        functions: dict[str, dict[str, Any]] = manifest.get("functions", {})
        for function in functions.values() if isinstance(functions, dict) else ():
            if upstream := function.get("upstream"):
                queues[upstream].add(str(function.get("queue", "")))
    if not queues:
        return []
    workers = [(worker.queues, worker.slots) for worker in await store.list_workers() if is_live(worker, now)]
    return capacity.find_slot_shortages(await store.list_gates(), capacity.slots_by_upstream(queues, workers))
