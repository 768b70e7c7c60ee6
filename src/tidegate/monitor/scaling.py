"""How many workers the pools of an application could use now: the signal for an autoscaler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.policy.autoscale import DEFAULT_TARGET_SECONDS, PoolScaling, ScalingDecision, desired_workers
from tidegate.policy.work import Work, work_groups
from tidegate.store.protocol import Store
from tidegate.worker.settings import Pool


def scaling_of(
    pool: Pool,
    min_workers: int = 0,
    max_workers: int | None = None,
    target_seconds: float = DEFAULT_TARGET_SECONDS,
    backlog_per_worker: int | None = None,
) -> PoolScaling:
    """Return how a pool may be scaled. `PoolScaling` explains the numbers."""
    growing = pool.most_slots * pool.processes if pool.concurrency == "auto" else None
    slots = pool.slots * pool.processes
    return PoolScaling(slots, growing, min_workers, max_workers, target_seconds, backlog_per_worker)


async def decide_scaling(store: Store, queues: Collection[str], scaling: PoolScaling) -> ScalingDecision:
    """Return how many workers a pool with these queues should have now.

    Args:
        store: Holds the tasks and the limits.
        queues: The queues that the pool serves; `*` for all.
        scaling: The bounds, and how fast the backlog should be done.
    """
    return desired_workers(work_groups(await store.get_work(), queues), scaling)


def decide_for_pools(work: Work, pools: Sequence[Pool]) -> Mapping[str, ScalingDecision]:
    """Return how many workers each pool could use, by its name, without a minimum and a maximum."""
    return {pool.name: desired_workers(work_groups(work, pool.queues), scaling_of(pool)) for pool in pools}
