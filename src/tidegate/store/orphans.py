"""The values that a reaper reads: the passes of all reapers, and the runs of lost workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidegate.domain.outcome import Counters, Fence
from tidegate.store.rows import CrashPolicy

REAPER_WORKER_ID = "00000000-0000-0000-0000-000000000000"
"""The id of the worker row in which reapers record their passes; no worker has it."""


class ReaperPass(NamedTuple):
    """One pass of a reaper, as the store recorded it."""

    at: float
    """When, by the store's clock."""
    since_at: float
    """When the present series of passes without a gap began, counting all reapers."""
    restored_workers: tuple[str, ...] = ()
    """Workers that had runs and no row; their rows were restored."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A run whose worker is retired. Maintenance decides what follows, without the user's code."""

    fence: Fence
    worker_id: str
    function: str
    queue: str
    started_at: float
    crash_policy: CrashPolicy
    counters: Counters
    is_loss: bool
    """True: the worker's lease ran out (machine or supervisor lost). False: its process was seen to die."""
    why: str
    """How the worker ended: `killed by signal 9`, `lease ran out`."""
    cancel_requested: bool
    is_culprit: bool | None = None
    """Whether this run caused the worker's end; None if that is unknown."""
    upstream: str = ""
    """The upstream that the task may have been calling; empty if it has none."""
