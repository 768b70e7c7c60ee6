"""Outcomes: how a run ended, decided once, as one value. The store turns it into state moves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.calls import NO_CALLS, CallSummary
from tidegate.domain.failure import CallFailure, Failure


class Fence(NamedTuple):
    """Identifies one claim of one task. Every write of a worker carries it; a stale fence is refused."""

    task_id: str
    run: int


class Charge(StrEnum):
    """Which counter a run that did not succeed adds to."""

    ATTEMPT = "attempt"
    """Counts against `max_attempts`."""
    PARK = "park"
    """The upstream refused the call before it did any work, or could not be reached; 20 per task are free."""
    WAIT = "wait"
    """The run waited for a limit of ours or for a gate. No call was sent, so nothing counts."""
    CRASH = "crash"
    """The run's process died."""
    LOSS = "loss"
    """The machine or supervisor was lost. This has its own, larger limit."""
    RELEASE = "release"
    """The run was released before it had called an upstream. There is no limit."""
    INTERRUPTED = "interrupted"
    """The run was released after it had called an upstream; 5 per task are free."""
    SUSPENSION = "suspension"
    """The task suspended itself: it waits for a time, an event or other tasks. Nothing counts."""
    NOTHING = "nothing"
    """No counter."""


class Succeeded(NamedTuple):
    """The task function returned."""

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
    """Seconds that are added to the due time to get the task's rank: positive is a penalty, negative moves
    the task forward."""
    why: str
    """The explanation for the history: `backoff 20 s after attempt 2 of 3`."""
    rule: str = ""
    """The retry rule whose own count this run adds to; empty if there is none."""
    call_failure: CallFailure | None = None
    """What the failure shows of an upstream; None if it shows nothing."""
    is_last: bool = False
    """The next run is the last attempt, so it may use the reserved part of the retry budget."""
    is_free: bool = False
    """The task asked for its next run itself, so that run spends no retry budget."""
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Released:
    """The run was released unfinished. The task is ready again at once."""

    fence: Fence
    why: str
    rank_offset: float = 0.0
    charge: Charge = Charge.RELEASE
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Suspended:
    """The task waits without a slot, as its function asked, and runs again when the wait is over."""

    fence: Fence
    delay_seconds: float | None
    """The time until the task runs again, by the store's clock; None: until something else wakes it."""
    why: str
    """What it waits for: `sleeps 2 h`."""
    rank_offset: float = 0.0
    """Seconds that are added to the moment of waking to get the task's rank."""
    wait_keys: tuple[str, ...] = ()
    """The waits for events of the run. If one is over already, the task wakes at once."""
    child_ids: tuple[str, ...] = ()
    """The tasks that the task waits for. The task wakes when none of these tasks can still run."""
    cache_waits: tuple[tuple[str, float], ...] = ()
    """The awaited results of other tasks: digests, each with the greatest age in seconds. The task
    wakes when one is there, or when nobody makes it."""
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Dead:
    """The task does not run again. The task is kept as a dead letter."""

    fence: Fence
    failure: Failure
    charge: Charge
    why: str
    call_failure: CallFailure | None = None
    """What the failure shows of an upstream; None if it shows nothing."""
    calls: CallSummary = NO_CALLS


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A person requested the cancel, and the task function has stopped."""

    fence: Fence
    why: str = "cancelled on request"
    calls: CallSummary = NO_CALLS


Outcome = Succeeded | Retrying | Released | Suspended | Dead | Cancelled


class FinishStatus(StrEnum):
    """What the store did with one outcome."""

    DONE = "done"
    ALREADY = "already"
    """The same outcome was written before. The reply to the first try was lost."""
    FENCED = "fenced"
    """The run is no longer the current one. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a task has spent before its current run."""

    attempts: int = 0
    parks: int = 0
    crashes: int = 0
    losses: int = 0
    releases: int = 0
    by_rule: tuple[tuple[str, int], ...] = ()
    """Charged attempts by the name of the retry rule."""
    interruptions: int = 0

    def of_rule(self, name: str) -> int:
        """Return the charged attempts of the rule `name`."""
        return dict(self.by_rule).get(name, 0)
