"""How a run ended, decided once and written as one value. The store turns each into its moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.failure import CallFailure, Failure


class Fence(NamedTuple):
    """One claim of one task. Every write a worker makes carries it; a stale one is refused."""

    task_id: str
    run: int


class Charge(StrEnum):
    """Which counter a run that did not succeed adds to."""

    ATTEMPT = "attempt"
    """Counts against `max_attempts`."""
    PARK = "park"
    """The other side refused the call before it did any work, or could not be reached; 20 a task are free."""
    WAIT = "wait"
    """Waited for a limit of our own or for a gate; nothing was asked of anybody, so nothing counts."""
    CRASH = "crash"
    """The process died under it."""
    LOSS = "loss"
    """The machine or supervisor was lost; a larger limit of its own."""
    RELEASE = "release"
    """Given back before it had called anybody; no limit."""
    INTERRUPTED = "interrupted"
    """Given back when it had called somebody already; 5 a task are free."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The body returned."""

    fence: Fence
    result: bytes
    """Encoded with the codec of `codec_tag`."""
    codec_tag: str
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Retrying:
    """The task runs again after `delay_seconds` by the store's clock."""

    fence: Fence
    failure: Failure
    delay_seconds: float
    charge: Charge
    rank_offset: float
    """Seconds added to the due time to give its rank: a penalty if positive, a lift if negative."""
    why: str
    """In words, for the history: `backoff 20 s after attempt 2 of 3`."""
    rule: str = ""
    """The retry rule whose own count this run adds to; empty for none."""
    call_failure: CallFailure | None = None
    """What it tells of the task's upstream; None: nothing ill."""
    is_last: bool = False
    """The next run is the last attempt: it may use the reserved part of the retry budget."""
    is_free: bool = False
    """The task gave its slot back of its own will: its next run spends no retry budget."""
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Released:
    """The run was given back unfinished; the task is ready again at once."""

    fence: Fence
    why: str
    rank_offset: float = 0.0
    charge: Charge = Charge.RELEASE
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Dead:
    """No further run; the task is kept as a dead letter."""

    fence: Fence
    failure: Failure
    charge: Charge
    why: str
    call_failure: CallFailure | None = None
    """What it tells of the task's upstream; None: nothing ill."""
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A person asked for it, and the body has stopped."""

    fence: Fence
    why: str = "cancelled on request"
    calls: CallSummary = NO_CALLS


Outcome = Succeeded | Retrying | Released | Dead | Cancelled


class FinishStatus(StrEnum):
    """What the store says of one outcome."""

    DONE = "done"
    ALREADY = "already"
    """This very outcome was written before: the answer to the first try was lost."""
    FENCED = "fenced"
    """The run is no longer the current one. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a task has spent so far, the present run not counted."""

    attempts: int = 0
    parks: int = 0
    crashes: int = 0
    losses: int = 0
    releases: int = 0
    by_rule: tuple[tuple[str, int], ...] = ()
    """Charged attempts per retry rule, by the rule's name."""
    interruptions: int = 0

    def of_rule(self, name: str) -> int:
        """Return the charged attempts counted under the rule `name`."""
        return dict(self.by_rule).get(name, 0)
