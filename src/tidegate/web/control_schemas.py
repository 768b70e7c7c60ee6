"""The response bodies about live control: pauses, orders to workers, rate limits of functions."""

from __future__ import annotations

import msgspec


class PauseOut(msgspec.Struct):
    """A queue or task function whose tasks do not start until a person resumes it."""

    kind: str
    """`queue` or `function`."""
    name: str
    paused_at: float
    paused_by: str
    """Who paused it."""
    why: str


class PausesOut(msgspec.Struct):
    """The paused queues, then the paused functions, by name."""

    pauses: list[PauseOut]


class PauseResult(msgspec.Struct):
    """The result of a pause or a resume."""

    kind: str
    """`queue` or `function`."""
    name: str
    answer: str
    """`paused`, `was paused already`, `resumed` or `was not paused`."""


class ControlReportOut(msgspec.Struct):
    """What one worker reported."""

    reporter: str
    """The id of a process; for a reload, the worker as `NAME@HOST`."""
    version: int
    """The version of the change that was applied."""
    answer: str
    """`applied`, or what happened instead."""
    reported_at: float


class ControlOut(msgspec.Struct):
    """One order of operators to workers."""

    kind: str
    """`quiet`, `concurrency` or `reload`."""
    name: str
    """The name of a worker, process or pool; `*` for all workers."""
    value: int | None
    """For quiet: 1 or 0. For concurrency: how many tasks run at once; null for the number in the code. For
    reload: null."""
    version: int
    changed_at: float
    changed_by: str
    why: str
    reports: list[ControlReportOut]


class ControlsOut(msgspec.Struct):
    """The orders of operators to workers, by kind and name."""

    controls: list[ControlOut]


class ControlResult(msgspec.Struct):
    """A change that was stored. The workers apply it within about a second."""

    kind: str
    name: str
    version: int
    reporters: list[str]
    """The workers or processes that will report this version; see `GET /api/v1/controls`."""


class RateLimitOut(msgspec.Struct):
    """The rate limit of a task function that is in force now."""

    function: str
    limit: str
    """The limit for people, such as `80 in 1 min`."""
