"""The response about autoscaling."""

from __future__ import annotations

import msgspec


class ScalingOut(msgspec.Struct):
    """How many workers a pool should have, and why."""

    pool: str
    desired_workers: int
    desired_slots: int
    """Slots that the work can use, before they are rounded to workers and bounded."""
    slots_per_worker: int
    runnable: int
    running: int
    bound: str
    """What holds the number down: `upstream NAME`, `rate limit of FUNCTION`, `max_workers`; else empty."""
    reason: str
