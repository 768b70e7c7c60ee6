"""The values that the store returns about what happened: counters by period, deaths by fingerprint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class HistoryRange:
    """Which part of the history. Every name that is set must match."""

    since: float
    """Rows that sum an hour or a day count in full if a part of it lies in the range."""
    until: float
    queue: str | None = None
    function: str | None = None
    reason: str | None = None
    """For deaths."""
    upstream: str | None = None
    """For counters: the upstream of the tasks; empty for those without one."""


@dataclass(frozen=True, slots=True)
class DeathCountRow:
    """How many tasks died in one period, by queue, function and reason."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    reason: str
    deaths: int


@dataclass(frozen=True, slots=True)
class FailureGroupRow:
    """The deaths that have one fingerprint."""

    fingerprint: str
    error_class: str
    """Empty if no exception was raised, as at a crash."""
    shape: str
    """The message with a word in angle brackets for each part that differs from task to task."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    first_at: float
    last_at: float
    functions: tuple[str, ...]
    queues: tuple[str, ...]
    reasons: tuple[str, ...]
    example_id: str
    """The task that died last. The task may have been redriven or deleted since then."""


class WindowDeaths(NamedTuple):
    """How many tasks died in one of several ranges of minutes."""

    window: int
    """Index of the range."""
    queue: str
    function: str
    reason: str
    fingerprint: str
    deaths: int


class WindowEnded(NamedTuple):
    """How many tasks succeeded or died in one of several ranges of minutes."""

    window: int
    queue: str
    function: str
    ended: int


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """How many tasks died, and how many ended, in several ranges of minutes."""

    deaths: Sequence[WindowDeaths]
    ended: Sequence[WindowEnded]


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened to tasks in one period."""

    enqueued: int = 0
    started: int = 0
    """Runs that started."""
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    """Runs after which the task waited for its next run."""
    released: int = 0
    """Runs that were given back unfinished."""
    run_seconds: float = 0.0
    """How long the runs took that ended in the period, added up."""
    wait_seconds: float = 0.0
    """How long the runs that ended in the period had waited from ready to start, added up."""
    calls: int = 0
    """Calls whose responses stated their usage."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StatisticsRow:
    """What happened to the tasks of one channel in one period."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    upstream: str
    counts: Counts
    run_times: Mapping[int, int] = field(default_factory=dict)
    """Number of runs that ended, by the bucket of their run time (`domain.durations`)."""
    wait_times: Mapping[int, int] = field(default_factory=dict)
    """Number of runs that ended, by the bucket of their wait."""


@dataclass(frozen=True, slots=True)
class TenantStatisticsRow:
    """What happened to the tasks of one tenant. Counted by the hour, so a range is widened to full hours."""

    tenant: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class TotalsRow:
    """What happened to the tasks of one channel since the store was made. No value ever falls."""

    queue: str
    function: str
    upstream: str
    enqueued: int
    succeeded: int
    dead: int
    cancelled: int
    retried: int
    released: int
    run_seconds: float
    wait_seconds: float
    calls: int
    input_tokens: int
    output_tokens: int
    total_seconds: float = 0.0
    """The time from the enqueue or the last redrive to the end, added up over tasks that ended after a
    run."""


@dataclass(frozen=True, slots=True)
class RunTimesRow:
    """How long the runs or tasks of a function in a queue took since the store was made."""

    queue: str
    function: str
    kind: str
    """`run`, `wait`, or `total`: from the enqueue or the last redrive of a task to its end."""
    by_bucket: Mapping[int, int]
    """Number of runs by the bucket of their time (`domain.durations`)."""


class EventKind(StrEnum):
    """The kinds of events that are counted since the store was made. A count never falls."""

    RETRIED = "retried"
    """The counts of a queue and function, by reason."""
    DEAD = "dead"
    """The counts of a queue and function, by reason."""
    CALL = "call"
    """Calls of an upstream, by how they ended: `succeeded`, `interrupted`, or the reason of the failure."""
    LEASE_EXPIRED = "lease_expired"
    """Of a pool."""
    TICK = "tick"
    """Of a schedule: `missed` or `skipped`."""
    CACHE = "cache"
    """Steps with a cache of a queue and function, by what they got: `hit`, `shared` or `miss`."""


class EventTotalRow(NamedTuple):
    """How often something happened since the store was made."""

    kind: EventKind
    name: str
    """The queue, upstream, pool or schedule."""
    function: str
    reason: str
    """Empty for a retry or death that was counted before reasons were."""
    events: int


@dataclass(frozen=True, slots=True)
class TotalCounts:
    """All counters since the store was made."""

    rows: Sequence[TotalsRow] = ()
    times: Sequence[RunTimesRow] = ()
    events: Sequence[EventTotalRow] = ()
