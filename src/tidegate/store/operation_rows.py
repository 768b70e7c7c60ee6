"""Operations as stored: actions of people on many dead letters together. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.values import GateRow
from tidegate.store.rows import TaskFilter

Payloads = Mapping[str, tuple[bytes, str]]
"""New arguments for some tasks: {id: (bytes, codec tag)}."""


@dataclass(frozen=True, slots=True)
class RedriveTerms:
    """How dead letters are sent back."""

    note: str = ""
    """A text for the history: who sent the letters, and by which operation."""
    to_queue: str | None = None
    """The queue to which all letters go; None: each letter goes to its own queue."""
    keeps_attempts: bool = False
    """Whether the charged attempts still count."""
    rank_delay: float = 0.0
    """Tasks that become ready less than this many seconds later still run first."""


PLAIN_REDRIVE = RedriveTerms()
"""All counters start from zero, in the queue of each letter."""


class OperationKind(StrEnum):
    """What an operation does to its letters."""

    REDRIVE = "redrive"
    PURGE = "purge"


class OperationState(StrEnum):
    """How far an operation is."""

    CHOOSING = "choosing"
    """Maintenance records the letters that match the filter."""
    CANARY = "canary"
    """A few letters are sent first, and their first attempts are awaited."""
    FEEDING = "feeding"
    """The other letters are sent in small batches."""
    PURGING = "purging"
    """The process that started the purge deletes letters."""
    UNDOING = "undoing"
    """Letters that have not started go back to the dead letters."""
    DONE = "done"
    STOPPED = "stopped"
    """The operation stopped itself: too many letters failed again, or the canary took too long."""
    ABORTED = "aborted"
    """A person stopped the operation."""
    UNDONE = "undone"


ENDED = frozenset(
    {OperationState.DONE, OperationState.STOPPED, OperationState.ABORTED, OperationState.UNDONE}
)
"""An operation in one of these states sends no more letters."""


class LetterState(StrEnum):
    """The state of one letter of a redrive."""

    CHOSEN = "chosen"
    SENT = "sent"
    SUCCEEDED = "succeeded"
    DIED = "died"
    """The task is a dead letter again."""
    CANCELLED = "cancelled"
    """The letter's task was cancelled or deleted."""
    SKIPPED = "skipped"
    """The letter was not sent; the reason is kept."""
    UNDONE = "undone"
    """The letter was sent, but was taken back before it started."""


@dataclass(frozen=True, slots=True)
class RedriveSettings:
    """How the letters of an operation are sent."""

    to_queue: str | None = None
    """The queue to which all letters go; None: each letter goes to its own queue."""
    keeps_attempts: bool = False
    """Whether the charged attempts still count. If not, all counters start from zero."""
    repeats_doubts: bool = False
    """Whether letters are sent whose calls may have been processed. The open doubts of these letters become
    `repeated`."""
    stop_above: float = 0.2
    """The operation stops when a larger share of its first attempts fail."""
    canary_seconds: float = 600.0
    """How long the first attempts of the canary may take, from the moment its first letter is sent."""
    functions: tuple[str, ...] = ()
    """Functions that the person's application declares. Perhaps no worker with these functions has run
    yet."""


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation to store."""

    id: str
    """A UUIDv7."""
    kind: OperationKind
    state: OperationState
    started_by: str
    preview: int
    filter: TaskFilter | None
    """None: the operation has a list of ids."""
    tenant: str | None = None
    settings: RedriveSettings = RedriveSettings()


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation as stored."""

    id: str
    kind: OperationKind
    state: OperationState
    started_by: str
    tenant: str | None
    filter: TaskFilter | None
    settings: RedriveSettings
    preview: int
    chosen: int
    sent: int
    succeeded: int
    died: int
    cancelled: int
    skipped: int
    undone: int
    cursor: str | None
    canary: int
    canary_at: float | None
    note: str
    started_at: float
    changed_at: float
    ended_at: float | None
    revision: int

    @property
    def unfinished(self) -> int:
        """How many letters were sent and have no final outcome yet."""
        return self.sent - self.succeeded - self.died - self.cancelled - self.undone


@dataclass(frozen=True, slots=True)
class LetterRow:
    """One letter of an operation."""

    task_id: str
    state: LetterState
    queue: str
    upstream: str
    function: str
    tenant: str
    in_canary: bool
    sent_at: float | None
    first_try: str
    """How the letter's first attempt ended: `succeeded` or `failed`; empty if it has not ended."""
    why: str
    """Why the letter was skipped, or the reason for which it died again."""


@dataclass(frozen=True, slots=True)
class LetterChannel:
    """Letters that wait for the same thing: one queue, upstream and function."""

    queue: str
    upstream: str
    function: str
    letters: int = 0
    """How many letters are chosen and not sent yet."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """The letters of one function and tenant."""

    function: str
    tenant: str
    letters: int


@dataclass(frozen=True, slots=True)
class FirstTry:
    """How the first attempt of a redriven letter ended."""

    function: str
    tenant: str
    failed: bool


@dataclass(frozen=True, slots=True)
class FeedFacts:
    """The facts that decide how many letters of an operation may be sent now, from one snapshot."""

    channels: tuple[LetterChannel, ...]
    """The channels with chosen letters; during the canary, only the canary's letters count."""
    first_tries: tuple[FirstTry, ...]
    """While the canary runs, the first attempts of its letters; afterwards the latest of all letters."""
    canary_pending: int = 0
    """Letters of the canary whose first attempt has not ended, sent or not."""
    untried: Mapping[str, int] = field(default_factory=dict)
    """Letters by queue that were sent and whose first attempt has not ended."""
    ready: Mapping[str, int] = field(default_factory=dict)
    """Ready tasks by queue that this operation did not send, counted up to a limit."""
    gates: tuple[GateRow, ...] = ()
    pauses: Pauses = NO_PAUSES
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """What one step sent."""

    sent: int = 0
    skipped: int = 0
    held_by: str = ""
    """What held letters back: `retries`, `gate`, or the budget of the `upstream` or `system`; empty if
    nothing did."""
