"""The values of provider jobs in the store: what runs report of them, and what is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tidegate.domain.outcome import Fence
from tidegate.domain.provider_job import UNFINISHED, JobState


class JobBegin(NamedTuple):
    """A run comes to a provider job."""

    fence: Fence
    key: str
    """The identity of the job within the task, see `tidegate.domain.step.step_key`."""
    name: str
    provider: str
    """The provider's name, for people; empty if it is not known."""
    can_cancel: bool
    """Whether the task function can cancel the job."""


class JobEvent(StrEnum):
    """What a run reports of a provider job."""

    SUBMITTED = "submitted"
    """The provider has the job."""
    PENDING = "pending"
    """A poll: the job is not done yet."""
    POLL_FAILED = "poll_failed"
    """A poll that got no answer."""
    ITEMS = "items"
    """Some items have finished. Nothing else has changed."""
    DONE = "done"
    """A poll: the job is done, and here is its result."""
    UNFINISHED = "unfinished"
    """A poll: the job has ended, and some of its items have no result. They are to be submitted again."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CANCEL_FAILED = "cancel_failed"


class JobItem(NamedTuple):
    """A finished item of a job."""

    item: str
    data: bytes
    codec: str


class JobReport(NamedTuple):
    """A run reports what became of a provider job."""

    fence: Fence
    key: str
    generation: int
    event: JobEvent
    job_id: str
    delay_seconds: float = 0.0
    """The time until the next poll."""
    done: float | None = None
    """Progress, as far as the poll reported it."""
    total: float | None = None
    note: str = ""
    error: str = ""
    data: bytes | None = None
    """The encoded result of a job that is done; None if its items are the result."""
    codec: str = ""
    items: tuple[JobItem, ...] = ()
    """Items that have finished. Of an item with several results, the first counts."""


class JobStatus(StrEnum):
    """The store's answer to a `JobBegin` or a `JobReport`."""

    KNOWN = "known"
    FENCED = "fenced"
    """The run is no longer the task's current one. Nothing was written."""


class JobAnswer(NamedTuple):
    """A provider job as it is recorded now."""

    status: JobStatus
    state: JobState = JobState.SUBMITTING
    generation: int = 1
    """The number of the submission, from 1: of the whole job, or of its remaining items."""
    job_id: str = ""
    """The job's id at the provider; empty until it is known."""
    polls: int = 0
    failed_polls: int = 0
    """Polls that failed since the last successful one."""
    age_seconds: float = 0.0
    """The time since this generation was begun."""
    poll_in_seconds: float = 0.0
    """The time until the next poll; 0 or less: it is due."""
    error: str = ""
    data: bytes | None = None
    codec: str = ""


FENCED = JobAnswer(JobStatus.FENCED)


class JobItems(NamedTuple):
    """A run asks for some of the finished items of a job."""

    fence: Fence
    key: str
    after: str = ""
    """The item after which to continue."""


@dataclass(frozen=True, slots=True)
class ProviderJobRow:
    """A recorded provider job of a task, for people."""

    key: str
    name: str
    provider: str
    state: JobState
    generation: int
    job_id: str
    polls: int
    failed_polls: int
    begun_at: float
    submitted_at: float | None
    polled_at: float | None
    next_poll_at: float
    done: float | None
    total: float | None
    note: str
    error: str
    cancel_requested_at: float | None
    ended_at: float | None
    items: int
    """How many of its items have finished."""

    @property
    def is_polled(self) -> bool:
        """Whether it is polled again at `next_poll_at`."""
        return bool(self.job_id) and self.state in UNFINISHED
