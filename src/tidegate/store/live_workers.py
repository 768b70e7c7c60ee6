"""Find the live workers, what they can run, and whether they have enough slots, from the rows of a store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tidegate.policy import capacity
from tidegate.policy.capacity import SlotShortage
from tidegate.policy.live_workers import LiveWorker, LiveWorkers
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import EMBEDDED_WORKER_NAME, WorkerRow

LATE_SHARE = 0.4
"""A worker is late when this part of its lease has passed since its last heartbeat. A heartbeat is due each
third."""


def is_live(worker: WorkerRow, now: float) -> bool:
    """Return whether a worker is not retired and its lease has not run out."""
    return worker.retired_at is None and worker.expires_at > now


def late_seconds(worker: WorkerRow, now: float) -> float | None:
    """Return the seconds since the last heartbeat of a worker that is late; None if it is not late."""
    silent = now - worker.heartbeat_at
    return silent if silent > LATE_SHARE * (worker.expires_at - worker.heartbeat_at) else None


async def declared_functions(store: Store, own: Iterable[str] = ()) -> frozenset[str]:
    """Return the task functions that applications declare.

    Args:
        store: Has the manifests that workers saved.
        own: Functions of the caller's application. Perhaps no worker with these functions has run yet.
    """
    manifests = await store.load_manifests()
    return frozenset(own).union(*(manifest.get("functions", ()) for manifest in manifests.values()))


async def load_live_workers(store: Store, now: float) -> LiveWorkers:
    """Return what the live workers of a store can run."""
    return find_live_workers(await store.list_workers(), await store.load_manifests(), now)


def find_live_workers(
    workers: Sequence[WorkerRow], manifests: Mapping[str, Mapping[str, Any]], now: float
) -> LiveWorkers:
    """Return what these workers can run.

    A worker that does not name its application may run every declared function. An embedded worker does not
    store a list of its functions.
    """
    by_application = {app: frozenset(manifest.get("functions", ())) for app, manifest in manifests.items()}
    every: frozenset[str] = frozenset().union(*by_application.values())

    def functions(worker: WorkerRow) -> Collection[str] | None:
        if worker.name == EMBEDDED_WORKER_NAME:
            return None
        return by_application.get(worker.application, every or None)

    return LiveWorkers(
        [
            LiveWorker(worker.queues, functions(worker), max(0, worker.slots - worker.running), worker.slots)
            for worker in workers
            if is_live(worker, now)
        ]
    )


def growing_functions(manifests: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the functions whose slots grow with `concurrency="auto"`, of all applications."""
    return frozenset(name for name, declared in _functions(manifests) if declared.get("slots_grow"))


def _functions(manifests: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and declarations of the functions of all applications."""
    for manifest in manifests.values():
        functions: dict[str, dict[str, Any]] = manifest.get("functions", {})
        if isinstance(functions, dict):
            yield from functions.items()


async def find_slot_shortages(store: Store) -> list[SlotShortage]:
    """Return the upstreams whose limits cannot be used up because the live workers have too few slots."""
    now, queues, growing = await store.now(), defaultdict[str, set[str]](set), set[str]()
    for _, function in _functions(await store.load_manifests()):
        if upstream := function.get("upstream"):
            queues[upstream].add(str(function.get("queue", "")))
            if function.get("slots_grow"):
                growing.add(upstream)
    if not queues:
        return []
    workers = [worker for worker in await store.list_workers() if is_live(worker, now)]
    slots = capacity.slots_by_upstream(queues, [(worker.queues, worker.slots) for worker in workers])
    most = capacity.slots_by_upstream(queues, [(worker.queues, worker.most_slots) for worker in workers])
    slots |= {upstream: most[upstream] for upstream in growing}
    return capacity.find_slot_shortages(await store.list_gates(), slots)
