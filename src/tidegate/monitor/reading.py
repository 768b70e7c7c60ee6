"""Reads the store once for a scrape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.monitor.scaling import decide_for_pools
from tidegate.policy.autoscale import ScalingDecision
from tidegate.store.overview_rows import MonitoringRow
from tidegate.store.protocol import Store
from tidegate.worker.settings import Pool


@dataclass(frozen=True, slots=True)
class Reading:
    """The values that one scrape reads, and the scaling of the pools that follows from them."""

    stored: MonitoringRow
    scaling: Mapping[str, ScalingDecision]
    """The desired workers, by pool."""


async def read_metrics(store: Store, pools: Sequence[Pool] = ()) -> Reading:
    """Read the values from which the metrics are computed, in one snapshot.

    Nothing here scans the finished tasks.

    Args:
        store: The store.
        pools: The pools whose desired workers are computed.
    """
    stored = await store.get_monitoring()
    return Reading(stored, decide_for_pools(stored.work, pools))
