"""The plain values that the checker compares. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.domain.spec import TaskSpec
from tidegate.policy.charge import UNCHARGED_LIMIT
from tidegate.policy.crash import LOSS_LIMIT
from tidegate.store.rows import CancelStatus, HistoryRow, QueueStats, TaskRow


@dataclass(frozen=True, slots=True)
class SubmittedTask:
    """One enqueue, as its client saw it."""

    task_id: str
    """The id in the response; without a response, the id that was sent."""
    digest: str
    """`digest_of` the encoded arguments."""
    key: str | None = None
    tenant: str = ""
    ok: bool = True
    """False if no response came, so the task may exist or not."""


@dataclass(frozen=True, slots=True)
class ObservedCancel:
    """One cancel that got a response."""

    task_id: str
    answer: CancelStatus
    at: float
    """When the response arrived, by a clock that is not behind the store's."""


@dataclass(frozen=True, slots=True)
class ClientObservations:
    """All responses that clients got."""

    submitted: tuple[SubmittedTask, ...] = ()
    cancels: tuple[ObservedCancel, ...] = ()
    purged: frozenset[str] = frozenset()
    """Tasks that a person or the retention deleted, so they may be missing."""


@dataclass(frozen=True, slots=True)
class FunctionNote:
    """One recorded start or end of a task function."""

    event: str
    """`start` before the first line of the function, `end` after its last."""
    task_id: str
    run: int
    pid: int
    at: float
    digest: str = ""
    """In an `end`: `digest_of` the encoded result; empty if the function raised."""
    error: str = ""
    """In an `end`: the class of the error that the function raised."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """The contents of the store, read through its protocol."""

    rows: Mapping[str, TaskRow] = field(default_factory=dict)
    histories: Mapping[str, tuple[HistoryRow, ...]] = field(default_factory=dict)
    payloads: Mapping[str, str] = field(default_factory=dict)
    """`digest_of` the encoded arguments, by task."""
    results: Mapping[str, str] = field(default_factory=dict)
    """`digest_of` the encoded result of each task that succeeded."""
    stats: tuple[QueueStats, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """How many runs of each kind a task of one function may have between redrives."""

    max_attempts: int = 3
    crashes: int = 3
    losses: int = LOSS_LIMIT
    parks: int = UNCHARGED_LIMIT

    @classmethod
    def of(cls, spec: TaskSpec) -> RunLimits:
        """Return the limits that a task function declares."""
        once = spec.crash_limit == 0
        return cls(
            max_attempts=spec.max_attempts,
            crashes=max(1, spec.crash_limit),
            losses=1 if once else LOSS_LIMIT,
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    invariant: str
    """The number of the invariant: `I7`. `INVARIANTS` describes it."""
    task_id: str
    """The task's id; empty if the violation is about a queue."""
    evidence: str
    """A sentence about what was found."""

    def __str__(self) -> str:
        return f"{self.invariant} {self.task_id}: {self.evidence}"
