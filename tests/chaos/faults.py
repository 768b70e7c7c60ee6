"""The log of injected faults. Times are seconds since the epoch, as in all files of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from tidegate.domain.outcome import Fence


class ChaosFaultKind(StrEnum):
    """What can go wrong."""

    KILL_POOL = "pool process killed"
    KILL_CHILD = "child killed"
    KILL_SUPERVISOR = "supervisor killed"
    KILL_WORKER = "whole worker killed"
    KILL_CLIENT = "client killed"
    STOP_POOL = "pool process stopped"
    STOP_SUPERVISOR = "supervisor stopped"
    STOP_BOTH = "supervisor and pool process stopped"
    DRAIN = "worker drained"
    OUTAGE = "store away"
    FREEZE = "everything frozen"
    STALL = "machine stalled"
    BLOCKED = "store blocked"
    """No write was possible: usually a process was frozen while it held the write lock."""


WORKER_KILLS = (
    ChaosFaultKind.KILL_POOL,
    ChaosFaultKind.KILL_CHILD,
    ChaosFaultKind.KILL_SUPERVISOR,
    ChaosFaultKind.KILL_WORKER,
)
STOPS = (ChaosFaultKind.STOP_POOL, ChaosFaultKind.STOP_SUPERVISOR, ChaosFaultKind.STOP_BOTH)
SHARED = (ChaosFaultKind.OUTAGE, ChaosFaultKind.FREEZE)
"""What is done to everyone alike. It explains no re-run: everyone must have the time to beat afterwards."""
STALLS = (ChaosFaultKind.STALL, ChaosFaultKind.BLOCKED)
"""Faults that were not injected, and that extend every bound."""
POOL_DEATHS = (ChaosFaultKind.KILL_POOL, ChaosFaultKind.KILL_WORKER)
MAINTENANCE_ENDS = (ChaosFaultKind.KILL_SUPERVISOR, ChaosFaultKind.KILL_WORKER, ChaosFaultKind.DRAIN)
LEASE_THREATS = (
    ChaosFaultKind.STOP_SUPERVISOR,
    ChaosFaultKind.STOP_BOTH,
    ChaosFaultKind.KILL_SUPERVISOR,
    ChaosFaultKind.KILL_WORKER,
)


@dataclass(slots=True)
class InjectedFault:
    """Something done to one host, or to all."""

    kind: ChaosFaultKind
    host: str
    """The host; empty for all hosts."""
    began_at: float
    ended_at: float = inf
    pids: frozenset[int] = frozenset()
    what: str = ""

    def touches(self, host: str, begin: float, end: float) -> bool:
        """Return whether a host felt it in a span of time."""
        return self.host in {"", host} and self.began_at <= end and self.ended_at >= begin

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, f"on {self.host}" if self.host else "", self.what)))


@dataclass(slots=True)
class GlobalFault:
    """A fault that hits everyone, while no other fault is injected."""

    fault: InjectedFault
    running: frozenset[Fence]
    """Runs that were in progress when it started."""
    observed_until: float = inf
    """Runs that ended before this time ended because of it, or by themselves."""
    finished_after: float | None = None
    """Seconds after its end until the first task was finished; None: none was."""


@dataclass(slots=True)
class FaultLog:
    """Everything the nemesis did, and what was seen to go wrong at once."""

    faults: list[InjectedFault] = field(default_factory=list)
    global_faults: list[GlobalFault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Problems that no file shows: a worker that ended by itself, a process that was left behind."""

    def record_start(
        self,
        kind: ChaosFaultKind,
        host: str,
        pids: Iterable[int] = (),
        what: str = "",
        *,
        began_at: float | None = None,
    ) -> InjectedFault:
        """Record a fault since a given time, or from now on; set `ended_at` when it is over."""
        since = time.time() if began_at is None else began_at
        fault = InjectedFault(kind, host, since, pids=frozenset(pids), what=what)
        self.faults.append(fault)
        return fault

    def record(self, kind: ChaosFaultKind, host: str, pids: Iterable[int], began_at: float) -> InjectedFault:
        """Record a fault without duration that was injected since a given time."""
        fault = self.record_start(kind, host, pids, began_at=began_at)
        fault.ended_at = time.time()
        return fault

    def count(self) -> Counter[ChaosFaultKind]:
        """Return how often each kind was done."""
        return Counter(fault.kind for fault in self.faults)

    @property
    def worker_kills(self) -> int:
        """Kills of workers or parts of them."""
        return sum(fault.kind in WORKER_KILLS for fault in self.faults)

    def touching(self, host: str, begin: float, end: float) -> Iterator[InjectedFault]:
        """Yield the faults that a host felt in a span of time."""
        return (fault for fault in self.faults if fault.touches(host, begin, end))

    def stalled_seconds(self, begin: float, end: float) -> float:
        """Return how long the machine or the store stalled by itself in a period."""
        stalls = (fault for fault in self.faults if fault.kind in STALLS)
        return sum(max(0.0, min(end, stall.ended_at) - max(begin, stall.began_at)) for stall in stalls)
