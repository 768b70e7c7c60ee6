"""The faults of chaos runs, and what they do. Times are seconds since the epoch, as in all files of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from harness.faults import Effect, Fault, FaultKind, FaultLog
from tidegate.domain.outcome import Fence


class ChaosFaultKind(FaultKind):
    """What can go wrong."""

    KILL_POOL = "pool process killed", Effect.ENDS_POOL
    KILL_CHILD = "child killed", Effect.ENDS_CHILD
    KILL_SUPERVISOR = "supervisor killed", Effect.ENDS_SUPERVISOR
    KILL_WORKER = "whole worker killed", Effect.ENDS_WORKER
    KILL_CLIENT = "client killed"
    STOP_POOL = "pool process stopped", Effect.FREEZES_POOL
    STOP_SUPERVISOR = "supervisor stopped", Effect.FREEZES_SUPERVISOR
    STOP_BOTH = "supervisor and pool process stopped", Effect.FREEZES
    DRAIN = "worker drained", Effect.ASKS_TO_STOP
    OUTAGE = "store away", Effect.STORE_FAILS | Effect.HITS_ALL_ALIKE
    FREEZE = "everything frozen", Effect.FREEZES | Effect.HITS_ALL_ALIKE
    STALL = "machine stalled", Effect.STALLS
    BLOCKED = "store blocked", Effect.STORE_WAITS
    """No write was possible: usually a process was frozen while it held the write lock."""


WORKER_KILLS = (
    ChaosFaultKind.KILL_POOL,
    ChaosFaultKind.KILL_CHILD,
    ChaosFaultKind.KILL_SUPERVISOR,
    ChaosFaultKind.KILL_WORKER,
)
STOPS = (ChaosFaultKind.STOP_POOL, ChaosFaultKind.STOP_SUPERVISOR, ChaosFaultKind.STOP_BOTH)
SHARED = (ChaosFaultKind.OUTAGE, ChaosFaultKind.FREEZE)


@dataclass(slots=True)
class GlobalFault:
    """A fault that hits everyone, while no other fault is injected."""

    fault: Fault
    running: frozenset[Fence]
    """Runs that were in progress when it started."""
    observed_until: float = inf
    """Runs that ended before this time ended because of it, or by themselves."""
    finished_after: float | None = None
    """Seconds after its end until the first task was finished; None: none was."""


@dataclass(slots=True)
class ChaosFaultLog(FaultLog):
    """All faults, and the problems that were seen while they went on."""

    global_faults: list[GlobalFault] = field(default_factory=list)

    @property
    def worker_kills(self) -> int:
        """Kills of workers or parts of them."""
        return sum(fault.kind in WORKER_KILLS for fault in self.faults)
