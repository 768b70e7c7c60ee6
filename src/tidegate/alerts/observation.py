"""The numbers that the rules check, read at one moment. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.store.alert_rows import BusyTask, Connections

WINDOW_SECONDS = 600.0
"""The period over which runs and deaths are counted."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """The p95 run time of a period, and of the period with which it is compared."""

    runs: int
    """How many runs ended in the last ten minutes."""
    p95: float | None
    """The p95 run time of the last ten minutes in seconds; None without runs."""
    usual_runs: int
    usual_p95: float | None
    """The p95 run time of the last week without the last hour."""


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """One queue."""

    name: str
    runnable: int = 0
    """How many tasks may start now or as soon as a limit allows."""
    oldest_seconds: float = 0.0
    """How long the oldest runnable task has been ready."""
    drain_seconds: float | None = 0.0
    """Estimated seconds until the queue is drained: infinity for never, None if unknown or all tasks are
    blocked."""
    drain_why: str = ""
    """What decides the drain estimate."""
    runs: int = 0
    """How many runs succeeded or failed in the last ten minutes."""
    failed_runs: int = 0
    deaths: int = 0
    """In the last ten minutes, without those of muted groups of failures."""
    surge_limit: float = 0.0
    """How many deaths are still no surge, by the usual numbers; 0 if that is unknown."""
    surge_why: str = ""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Ready tasks that no live worker runs."""

    subject: str
    """The queue, if no live worker serves it; otherwise the function."""
    tasks: int
    why: str


@dataclass(frozen=True, slots=True)
class ObservedUpstream:
    """One upstream."""

    name: str
    is_closed: bool = False
    """Whether something other than a person has parked its gate."""
    reason: str = ""
    waiting: int = 0
    """How many of its tasks are ready or wait for their next run."""
    times: RunTimes | None = None


@dataclass(frozen=True, slots=True)
class ObservedPool:
    """One pool that lost a worker."""

    name: str
    lost: int
    live: int
    names: tuple[str, ...] = ()
    """The lost workers, as `NAME on HOST`."""


@dataclass(frozen=True, slots=True)
class ObservedSchedule:
    """One schedule that does not tick as planned."""

    name: str
    missed: int
    """Missed ticks of the last ten minutes, plus one if a tick is late because no process fired it."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ObservedBudget:
    """One retry budget."""

    name: str
    """The name of the upstream; `system` for the budget of the whole system."""
    held: int
    """How many due tasks the budget holds back."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one pass checks."""

    at: float
    """When the numbers were read, by the store's clock."""
    queues: Sequence[ObservedQueue] = ()
    unserved: Sequence[Unserved] = ()
    functions: Sequence[tuple[str, RunTimes]] = ()
    upstreams: Sequence[ObservedUpstream] = ()
    pools: Sequence[ObservedPool] = ()
    schedules: Sequence[ObservedSchedule] = ()
    budgets: Sequence[ObservedBudget] = ()
    busy_tasks: Sequence[BusyTask] = ()
    connections: Connections | None = None
