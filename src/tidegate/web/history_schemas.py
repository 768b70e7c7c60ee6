"""The responses of the API about what happened."""

from __future__ import annotations

import msgspec


class DeathCountOut(msgspec.Struct):
    """How many tasks died in one period."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    reason: str
    deaths: int


class DeathCountsOut(msgspec.Struct):
    """Deaths by period, queue, function and reason, the oldest first."""

    deaths: list[DeathCountOut]


class FailureGroupOut(msgspec.Struct):
    """The deaths that have one fingerprint."""

    fingerprint: str
    error_class: str
    """Empty if no exception was raised."""
    shape: str
    """The message with a word in angle brackets for each part that differs from task to task."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    first_at: float
    last_at: float
    functions: list[str]
    queues: list[str]
    reasons: list[str]
    example_id: str
    """The task that died last. It may be redriven or deleted by now."""
    state: str
    """`open`, `resolved` or `muted`."""
    is_reopened: bool
    """A task died of it after it was resolved."""
    marked_at: float | None
    """When it was resolved or muted last; null: never."""
    marked_by: str
    note: str
    until_at: float | None
    """When it is no longer muted; null: never."""


class GroupStateOut(msgspec.Struct):
    """The state of a group of failures."""

    fingerprint: str
    state: str


class UnknownFailureOut(msgspec.Struct):
    """The attempts with one fingerprint that failed without a rule for their failure."""

    fingerprint: str
    error_class: str
    shape: str
    frame: str
    attempts: int
    tasks: int
    succeeded: int
    """How many of these tasks succeeded later."""
    first_at: float
    last_at: float
    functions: list[str]
    sample: str
    """The message of the last attempt, with secrets masked, at most 100 characters."""
    sample_id: str
    """Its task."""
    rule: str
    """The line of code that gives the failure a rule."""
    reviewed_at: float | None
    reviewed_by: str
    note: str


class UnknownFailuresOut(msgspec.Struct):
    """Attempts without a rule by fingerprint, the most first."""

    failures: list[UnknownFailureOut]


class FailureGroupsOut(msgspec.Struct):
    """Deaths by fingerprint, the most first."""

    groups: list[FailureGroupOut]


class SurgeComparisonOut(msgspec.Struct):
    """Deaths, or deaths per ended task, against the same hours of earlier days."""

    surges: bool
    now: float
    expected: float | None
    """Null without anything earlier."""
    limit: float | None
    """A surge begins here."""
    factor: float | None
    """`now` divided by `expected`."""
    why: str


class GroupSurgeOut(msgspec.Struct):
    """Whether the deaths of one function, queue, reason or fingerprint surge."""

    by: str
    key: str
    surges: bool
    """In count, in share, or both."""
    why: str
    count: SurgeComparisonOut
    share: SurgeComparisonOut
    """Of the tasks that succeeded or died."""


class SurgesOut(msgspec.Struct):
    """The groups that had a death, surges first."""

    surges: list[GroupSurgeOut]


class DeathChangeOut(msgspec.Struct):
    """How many tasks died of one reason or in one function, against the day before."""

    name: str
    deaths: int
    day_before: int


class SummaryGroupOut(msgspec.Struct):
    """A group of failures in a summary."""

    fingerprint: str
    error_class: str
    frame: str
    deaths: int


class DailySummaryOut(msgspec.Struct):
    """The deaths of 24 hours against the day before."""

    since: float
    until: float
    deaths: int
    day_before: int
    reasons: list[DeathChangeOut]
    functions: list[DeathChangeOut]
    surges: list[str]
    """A sentence for each function whose deaths surge."""
    new: list[SummaryGroupOut]
    """Groups without a death in the 35 days before."""
    reopened: list[SummaryGroupOut]
    unresolved: list[SummaryGroupOut]
    """Open groups with a death in the last seven days."""
    text: str
    """The summary in one line."""


class StatisticsRowOut(msgspec.Struct):
    """What happened to the tasks of one queue, function and upstream in one period."""

    at: float
    """When the period begins."""
    queue: str
    function: str
    upstream: str | None
    enqueued: int
    started: int
    """Runs that started."""
    succeeded: int
    dead: int
    cancelled: int
    retried: int
    """Runs after which the task waited for its next run."""
    released: int
    """Runs that were given back unfinished."""
    run_seconds: float
    """Of the runs that ended in the period, together."""
    wait_seconds: float
    """From ready to started, of the runs that ended in the period, together."""
    calls: int
    """Calls whose responses stated their usage."""
    input_tokens: int
    output_tokens: int
    run_p50: float | None
    """An estimate in seconds; null without runs."""
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None


class StatisticsOut(msgspec.Struct):
    """Counters by period, queue, function and upstream, the oldest first."""

    statistics: list[StatisticsRowOut]
