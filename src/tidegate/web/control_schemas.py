"""The responses of the API about live control: pauses, orders to workers, rate limits of functions."""

from __future__ import annotations

import msgspec


class PauseOut(msgspec.Struct):
    """A queue or task function whose tasks do not start until somebody resumes it."""

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
    """The id of a process; for a reload, `NAME@HOST` of a worker."""
    version: int
    """Of the change that it applied."""
    answer: str
    """`applied`, or what happened."""
    reported_at: float


class ControlOut(msgspec.Struct):
    """One order of operators to workers."""

    kind: str
    """`quiet`, `concurrency` or `reload`."""
    name: str
    """Of a worker, process or pool; `*` for all workers."""
    value: int | None
    """Quiet: 1 or 0. Concurrency: tasks at once; null for the code's own number. Reload: null."""
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
    """Those that will report this version; see `GET /api/v1/controls`."""


class RateLimitOut(msgspec.Struct):
    """The rate limit of a task function that is in force now."""

    function: str
    limit: str
    """For people: `80 in 1 min`."""
