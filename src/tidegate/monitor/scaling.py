"""How many workers the pools of an application could use now: the signal for an autoscaler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tidegate.policy.autoscale import PoolScaling, ScalingDecision, desired_workers
from tidegate.policy.work import Work, work_groups
from tidegate.store.protocol import Store
from tidegate.worker.settings import Pool


def slots_of(pool: Pool) -> int:
    """Return how many tasks one worker with this pool runs at once."""
    return pool.slots * pool.processes


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
    return {
        pool.name: desired_workers(
            work_groups(work, pool.queues), PoolScaling(slots_per_worker=slots_of(pool))
        )
        for pool in pools
    }
