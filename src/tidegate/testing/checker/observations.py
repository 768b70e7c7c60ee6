"""What the checker compares: plain values, whoever collected them. Moments are seconds since the epoch."""

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
    """The id the answer named; without an answer, the id that was sent."""
    digest: str
    """`digest_of` the encoded arguments."""
    key: str | None = None
    tenant: str = ""
    ok: bool = True
    """False: no answer came, so the task may be there or not."""


@dataclass(frozen=True, slots=True)
class ObservedCancel:
    """One answered cancel."""

    task_id: str
    answer: CancelStatus
    at: float
    """When the answer had come, by a clock not behind the store's."""


@dataclass(frozen=True, slots=True)
class ClientObservations:
    """Everything clients were told."""

    submitted: tuple[SubmittedTask, ...] = ()
    cancels: tuple[ObservedCancel, ...] = ()
    purged: frozenset[str] = frozenset()
    """Tasks that a person or the retention deleted: they need not be there any more."""


@dataclass(frozen=True, slots=True)
class FunctionNote:
    """One line of a body's own ledger."""

    event: str
    """`start` before the first line of the body, `end` after its last."""
    task_id: str
    run: int
    pid: int
    at: float
    digest: str = ""
    """Of an `end`: `digest_of` the encoded result; empty if the body raised."""
    error: str = ""
    """Of an `end`: the class of what the body raised."""


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """Everything the store says, read through its contract."""

    rows: Mapping[str, TaskRow] = field(default_factory=dict)
    histories: Mapping[str, tuple[HistoryRow, ...]] = field(default_factory=dict)
    payloads: Mapping[str, str] = field(default_factory=dict)
    """`digest_of` the encoded arguments, by task."""
    results: Mapping[str, str] = field(default_factory=dict)
    """`digest_of` the encoded result of each task that succeeded."""
    stats: tuple[QueueStats, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What the tasks of one function may spend in one life."""

    max_attempts: int = 3
    crashes: int = 3
    losses: int = LOSS_LIMIT
    parks: int = UNCHARGED_LIMIT

    @classmethod
    def of(cls, spec: TaskSpec) -> RunLimits:
        """Return the limits a task function declares."""
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
    """Its number: `I7`; `INVARIANTS` has it in words."""
    task_id: str
    """Empty where it is about a queue."""
    evidence: str
    """What was seen, in words."""

    def __str__(self) -> str:
        return f"{self.invariant} {self.task_id}: {self.evidence}"
