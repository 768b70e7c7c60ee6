"""The faults of a run: what each kind does to a worker or to the store, and the log of all of them.

The simulation and the chaos run each have their own kinds. The checks know only the effects.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from math import inf


class Effect(Flag):
    """What a fault does. A worker has a supervisor, a pool process and children; on a simulated machine they
    are one process."""

    NONE = 0
    ENDS_CHILD = auto()
    ENDS_POOL = auto()
    ENDS_SUPERVISOR = auto()
    FREEZES_POOL = auto()
    FREEZES_SUPERVISOR = auto()
    ASKS_TO_STOP = auto()
    """The worker is asked to stop, and its process ends."""
    STORE_FAILS = auto()
    """Calls of the store fail as long as it lasts."""
    CALL_FAILS = auto()
    """One call of the store failed."""
    STORE_WAITS = auto()
    """Writes to the store wait. Nobody injected this; it extends every bound."""
    STALLS = auto()
    """The machine of the test stood still. Nobody injected this; it extends every bound."""
    STEPS_CLOCK = auto()
    HITS_ALL_ALIKE = auto()
    """It hits everyone in the same way and so explains no lost run: everyone must get time for a heartbeat."""

    ENDS_WORKER = ENDS_CHILD | ENDS_POOL | ENDS_SUPERVISOR
    FREEZES = FREEZES_POOL | FREEZES_SUPERVISOR
    ENDS_MAINTENANCE = ENDS_SUPERVISOR | ASKS_TO_STOP
    HINDERS_WRITES = STORE_FAILS | CALL_FAILS | STORE_WAITS | ENDS_WORKER | FREEZES
    HINDERS_MAINTENANCE = ENDS_MAINTENANCE | FREEZES_SUPERVISOR | STORE_FAILS | CALL_FAILS | STEPS_CLOCK
    HINDERS_CLAIMS = HINDERS_MAINTENANCE | ENDS_POOL | FREEZES_POOL
    THREATENS_LEASE = ENDS_SUPERVISOR | FREEZES_SUPERVISOR | STORE_FAILS
    EXTENDS_BOUNDS = STORE_WAITS | STALLS


class FaultKind(StrEnum):
    """A kind of fault: its name and its effects. Each driver has an enumeration of its own kinds."""

    effects: Effect

    def __new__(cls, name: str, effects: Effect = Effect.NONE) -> FaultKind:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.effects = effects
        return kind


@dataclass(slots=True)
class Fault:
    """Something done to one host, or to all. Times are by the clock of the run's record."""

    kind: FaultKind
    host: str
    """The host, in the simulation the machine; empty for all."""
    began_at: float
    ended_at: float = inf
    pids: frozenset[int] = frozenset()
    """The processes that were hit; empty if it hit all processes of the host."""
    what: str = ""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended_at - self.began_at

    def has(self, effects: Effect) -> bool:
        """Return whether it has one of these effects."""
        return bool(self.kind.effects & effects)

    def touches(self, host: str, begin: float, end: float) -> bool:
        """Return whether a host felt it in a span of time."""
        return self.host in {"", host} and self.began_at <= end and self.ended_at >= begin

    def hit_one_of(self, pids: Iterable[int | None]) -> bool:
        """Return whether it hit one of these processes."""
        return not self.pids or not self.pids.isdisjoint(pids)

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, f"on {self.host}" if self.host else "", self.what)))


@dataclass(slots=True)
class FaultLog:
    """All faults of a run, and the problems that were seen while it went on."""

    faults: list[Fault] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Problems that no other record shows: their kind and a sentence."""
    now: Callable[[], float] = time.time

    def record_start(
        self,
        kind: FaultKind,
        host: str,
        pids: Iterable[int] = (),
        what: str = "",
        *,
        began_at: float | None = None,
        seconds: float = inf,
    ) -> Fault:
        """Record a fault since a given time, or from now on; set `ended_at` when it is over."""
        since = self.now() if began_at is None else began_at
        fault = Fault(kind, host, since, since + seconds, frozenset(pids), what)
        self.faults.append(fault)
        return fault

    def record(self, kind: FaultKind, host: str, pids: Iterable[int], began_at: float) -> Fault:
        """Record a fault without duration that was injected since a given time."""
        fault = self.record_start(kind, host, pids, began_at=began_at)
        fault.ended_at = self.now()
        return fault

    def record_problem(self, what: str) -> None:
        """Record a problem that was seen."""
        self.problems.append(("seen", what))

    def count(self) -> Counter[FaultKind]:
        """Return how often each kind was done."""
        return Counter(fault.kind for fault in self.faults)

    def touching(self, host: str, begin: float, end: float) -> Iterator[Fault]:
        """Yield the faults that a host felt in a span of time."""
        return (fault for fault in self.faults if fault.touches(host, begin, end))

    def stalled_seconds(self, begin: float, end: float) -> float:
        """Return how long the machine or the store stalled by itself in a period."""
        stalls = (fault for fault in self.faults if fault.has(Effect.EXTENDS_BOUNDS))
        return sum(max(0.0, min(end, stall.ended_at) - max(begin, stall.began_at)) for stall in stalls)
