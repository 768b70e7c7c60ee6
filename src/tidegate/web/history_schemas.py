"""The response bodies about the past: deaths, groups of failures, counters."""

from __future__ import annotations

import msgspec


class DeathCountOut(msgspec.Struct):
    """How many tasks died in one period."""

    at: float
    """The start of the period."""
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
    """The class of the exception; empty if no exception was raised."""
    shape: str
    """The message. A word in angle brackets stands for each part that differs from task to task."""
    frame: str
    """The innermost frame of the application's code; empty if there is none."""
    deaths: int
    first_at: float
    last_at: float
    functions: list[str]
    queues: list[str]
    reasons: list[str]
    example_id: str
    """The task that died last. By now it may have been redriven or deleted."""
    state: str
    """`open`, `resolved` or `muted`."""
    is_reopened: bool
    """Whether a task died of this failure after the group was resolved."""
    marked_at: float | None
    """When the group was last resolved or muted; null for never."""
    marked_by: str
    note: str
    until_at: float | None
    """When the mute ends; null for never."""


class GroupStateOut(msgspec.Struct):
    """The state of a group of failures."""

    fingerprint: str
    state: str


class UnknownFailureOut(msgspec.Struct):
    """The failed attempts with one fingerprint that no rule classifies."""

    fingerprint: str
    error_class: str
    shape: str
    frame: str
    attempts: int
    tasks: int
    succeeded: int
    """How many of the tasks with such attempts succeeded later."""
    first_at: float
    last_at: float
    functions: list[str]
    sample: str
    """The message of the last attempt, with secrets masked, at most 100 characters."""
    sample_id: str
    """The task of the last attempt."""
    rule: str
    """The line of code that adds a rule for this failure."""
    reviewed_at: float | None
    reviewed_by: str
    note: str


class UnknownFailuresOut(msgspec.Struct):
    """Failed attempts that no rule classifies, by fingerprint, the most first."""

    failures: list[UnknownFailureOut]


class FailureGroupsOut(msgspec.Struct):
    """Deaths by fingerprint, the most first."""

    groups: list[FailureGroupOut]


class SurgeComparisonOut(msgspec.Struct):
    """Deaths, or deaths per ended task, compared with the same hours of earlier days."""

    surges: bool
    now: float
    expected: float | None
    """The expected value; null without data from earlier days."""
    limit: float | None
    """The value from which on there is a surge."""
    factor: float | None
    """`now` divided by `expected`."""
    why: str


class GroupSurgeOut(msgspec.Struct):
    """Whether the deaths of one function, queue, reason or fingerprint surge."""

    by: str
    key: str
    surges: bool
    """Whether the deaths surge: in count, in share, or in both."""
    why: str
    count: SurgeComparisonOut
    share: SurgeComparisonOut
    """The share of deaths among the tasks that succeeded or died."""


class SurgesOut(msgspec.Struct):
    """The groups that had a death, surges first."""

    surges: list[GroupSurgeOut]


class DeathChangeOut(msgspec.Struct):
    """How many tasks died of one reason or in one function, compared with the day before."""

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
    """The deaths of 24 hours, compared with the day before."""

    since: float
    until: float
    deaths: int
    day_before: int
    reasons: list[DeathChangeOut]
    functions: list[DeathChangeOut]
    surges: list[str]
    """A sentence for each function whose deaths surge."""
    new: list[SummaryGroupOut]
    """Groups of failures without a death in the 35 days before."""
    reopened: list[SummaryGroupOut]
    unresolved: list[SummaryGroupOut]
    """Open groups with a death in the last seven days."""
    text: str
    """The summary in one line."""


class StatisticsRowOut(msgspec.Struct):
    """Counters of the tasks of one queue, function and upstream in one period."""

    at: float
    """The start of the period."""
    queue: str
    function: str
    upstream: str | None
    enqueued: int
    started: int
    """How many runs started."""
    succeeded: int
    dead: int
    cancelled: int
    retried: int
    """How many runs ended with a wait for the task's next run."""
    released: int
    """How many runs were given back unfinished."""
    run_seconds: float
    """The total run time of runs that ended in the period."""
    wait_seconds: float
    """The total time from ready to started of runs that ended in the period."""
    calls: int
    """How many calls had responses that stated their usage."""
    input_tokens: int
    output_tokens: int
    run_p50: float | None
    """The estimated median in seconds; null without runs."""
    run_p95: float | None
    wait_p50: float | None
    wait_p95: float | None


class StatisticsOut(msgspec.Struct):
    """Counters by period, queue, function and upstream, the oldest first."""

    statistics: list[StatisticsRowOut]
