"""What was done to whom, and when. Moments are seconds since the epoch, as in every ledger of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from tidegate.domain.outcome import Fence


class Kind(StrEnum):
    """What can go wrong."""

    KILL_POOL = "pool process killed"
    KILL_SLOT = "slot killed"
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
    """No write was let through: mostly a process that was stopped while it held the write lock."""


WORKER_KILLS = (Kind.KILL_POOL, Kind.KILL_SLOT, Kind.KILL_SUPERVISOR, Kind.KILL_WORKER)
STOPS = (Kind.STOP_POOL, Kind.STOP_SUPERVISOR, Kind.STOP_BOTH)
SHARED = (Kind.OUTAGE, Kind.FREEZE)
"""What is done to everyone alike. It explains no re-run: everyone must have the time to beat afterwards."""
STANDSTILLS = (Kind.STALL, Kind.BLOCKED)
"""What nobody did on purpose, and every bound is longer for."""
POOL_DEATHS = (Kind.KILL_POOL, Kind.KILL_WORKER)
STEWARD_ENDS = (Kind.KILL_SUPERVISOR, Kind.KILL_WORKER, Kind.DRAIN)
LEASE_THREATS = (Kind.STOP_SUPERVISOR, Kind.STOP_BOTH, Kind.KILL_SUPERVISOR, Kind.KILL_WORKER)


@dataclass(slots=True)
class Fault:
    """Something done to one host, or to all."""

    kind: Kind
    host: str
    """Empty: all of them."""
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
class Hush:
    """A fault that hits everyone, in a time when nothing else goes wrong."""

    fault: Fault
    running: frozenset[Fence]
    """Runs that were under way when it began."""
    quiet_until: float = inf
    """Whatever ended before this moment ended because of it, or by itself."""
    finished_after: float | None = None
    """Seconds after its end until the first task was finished; None: none was."""


@dataclass(slots=True)
class Journal:
    """Everything the nemesis did, and what was seen to go wrong at once."""

    faults: list[Fault] = field(default_factory=list)
    hushes: list[Hush] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What no ledger shows: a worker that ended by itself, a process that was left behind."""

    def began(
        self,
        kind: Kind,
        host: str,
        pids: Iterable[int] = (),
        what: str = "",
        *,
        began_at: float | None = None,
    ) -> Fault:
        """Note a fault since a moment, or from now on; set `ended_at` when it is over."""
        since = time.time() if began_at is None else began_at
        fault = Fault(kind, host, since, pids=frozenset(pids), what=what)
        self.faults.append(fault)
        return fault

    def happened(self, kind: Kind, host: str, pids: Iterable[int], began_at: float) -> Fault:
        """Note a fault that takes no time, and was done since that moment."""
        fault = self.began(kind, host, pids, began_at=began_at)
        fault.ended_at = time.time()
        return fault

    def count(self) -> Counter[Kind]:
        """Return how often each kind was done."""
        return Counter(fault.kind for fault in self.faults)

    @property
    def worker_kills(self) -> int:
        """Kills of workers or parts of them."""
        return sum(fault.kind in WORKER_KILLS for fault in self.faults)

    def touching(self, host: str, begin: float, end: float) -> Iterator[Fault]:
        """Yield the faults that a host felt in a span of time."""
        return (fault for fault in self.faults if fault.touches(host, begin, end))

    def stalled_seconds(self, begin: float, end: float) -> float:
        """Return for how long the machine or the store stood still by itself in a span of time."""
        stalls = (fault for fault in self.faults if fault.kind in STANDSTILLS)
        return sum(max(0.0, min(end, stall.ended_at) - max(begin, stall.began_at)) for stall in stalls)
