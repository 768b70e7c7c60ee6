"""The response body about autoscaling."""

from __future__ import annotations

import msgspec


class ScalingOut(msgspec.Struct):
    """How many workers a pool should have, and why."""

    pool: str
    desired_workers: int
    desired_slots: int
    """How many slots the work can use, before the number is rounded to workers and bounded."""
    slots_per_worker: int
    runnable: int
    running: int
    bound: str
    """What limits the number: `upstream NAME`, `rate limit of FUNCTION`, `max_workers`; otherwise empty."""
    reason: str
