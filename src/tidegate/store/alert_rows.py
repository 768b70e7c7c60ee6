"""The values that the store takes and returns about alerts, the same on both back ends.

An *episode* is a period in which a rule's condition held for one subject: a queue, an upstream, a schedule.
An episode opens once and ends once. A *notice* is one message about an episode to one sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ANY = "*"
"""In a mute: every rule, or every subject."""


class Severity(StrEnum):
    """How urgent an alert is."""

    WARNING = "warning"
    """Look at it today."""
    CRITICAL = "critical"
    """Look at it now."""


class EpisodeState(StrEnum):
    """The state of an episode."""

    PENDING = "pending"
    """The condition holds, but not for long enough. Nobody is notified."""
    OPEN = "open"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Episode:
    """A period in which a rule's condition held for one subject."""

    id: str
    rule: str
    subject: str
    state: EpisodeState
    severity: Severity
    first_at: float
    """Since when the condition has held."""
    opened_at: float | None
    calm_at: float | None
    """Since when an open episode's value has been low enough to end it; None if the value is too high."""
    last_at: float
    """When the rule was last evaluated for the subject."""
    ended_at: float | None
    value: float
    """The latest value; infinity is possible. For an ended episode, the last value that was too high."""
    threshold: float
    """The limit that the value passed."""
    detail: str
    """A further text about the value, for people; may be empty."""
    is_notified: bool
    """Whether the opening was sent. If a mute prevented that, the end is not sent either."""


@dataclass(frozen=True, slots=True)
class NewNotice:
    """One message to one sink. The store keeps it until it is delivered or given up."""

    id: str
    sink: str
    about: str
    """The id of an episode or a task. Messages about the same thing reach a sink in order."""
    kind: str
    """The type of the message: `alert.opened`, `alert.ended`, `task.dead`…"""
    body: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class ClaimedNotice:
    """A notice that this process must send now. After a while another process may send it too."""

    id: str
    sink: str
    about: str
    kind: str
    body: str
    created_at: float
    attempts: int
    """How many attempts to send it were made, including this one."""


@dataclass(frozen=True, slots=True)
class UnsentNotices:
    """The notices of one sink that are not delivered yet."""

    sink: str
    notices: int
    oldest_at: float
    error: str
    """Why an attempt failed; empty if no attempt failed."""


@dataclass(frozen=True, slots=True)
class AlertMute:
    """A person's wish not to be notified."""

    rule: str
    """`*` for every rule."""
    subject: str
    """`*` for every subject."""
    until_at: float | None
    """None: the mute lasts until a person ends it."""
    muted_at: float
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class AlertPass:
    """A pass that this process may make. The number of a pass fences the write at its end."""

    number: int
    at: float
    """By the store's clock."""
    usual_json: str
    """The usual values, as they were last computed and stored; empty if they were never computed."""
    usual_at: float | None


@dataclass(frozen=True, slots=True)
class LastPass:
    """The latest pass of any process."""

    number: int
    """0 if there was none."""
    evaluator: str
    """The process, for people."""
    started_at: float
    finished_at: float | None
    """Up to when the last pass that ended has read: its start. None if no pass has ended yet."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass changes, all or nothing."""

    episodes: Sequence[Episode] = ()
    """New and changed episodes."""
    dropped: Sequence[str] = ()
    """The ids of pending episodes whose condition ended before they opened."""
    notices: Sequence[NewNotice] = ()
    usual_json: str | None = None
    """The usual values to store; None keeps the stored values."""


@dataclass(frozen=True, slots=True)
class DisabledSink:
    """A sink that answered 410, so nothing is sent to it any more."""

    name: str
    target: str
    """A hash of its address. A sink with another address is a new one."""
    disabled_at: float
    why: str


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """A worker process, with how it ended if it did."""

    name: str
    pool: str
    host: str
    expires_at: float
    retired_at: float | None
    is_lost: bool
    """Whether the worker was retired because its lease ran out."""


@dataclass(frozen=True, slots=True)
class BusyTask:
    """An unfinished task with many runs or many calls."""

    task_id: str
    queue: str
    function: str
    runs: int
    calls: int
    """How many calls of the task's ended runs had responses that stated their usage."""


@dataclass(frozen=True, slots=True)
class NewlyFinalTask:
    """A task that became final."""

    task_id: str
    state: str
    """`dead`, `succeeded` or `cancelled`."""
    queue: str
    function: str
    tenant: str
    run: int
    reason: str
    """Why the task died; empty if it did not die."""
    finished_at: float


@dataclass(frozen=True, slots=True)
class Connections:
    """How many connections a database server has, and may have."""

    used: int
    most: int
