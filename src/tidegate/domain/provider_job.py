"""Jobs at providers: work such as a batch or a video, which a task polls until it is done."""

from __future__ import annotations

from enum import StrEnum

from tidegate.domain.schedule import LABEL_PREFIX

CANCELLING_LABEL = f"{LABEL_PREFIX}cancelling"
"""The label of a task whose next run only cancels its provider jobs. Its value is a `CancelCause`,
followed by the number of the run from the second one on."""


class CancelCause(StrEnum):
    """Why the jobs of a task are cancelled."""

    REQUEST = "request"
    """A person cancelled the task."""
    DEADLINE = "deadline"
    """The deadline or the total timeout of the task is over."""


class JobState(StrEnum):
    """What the store knows of a provider job."""

    SUBMITTING = "submitting"
    """A run is about to submit it, or has. Its id is not known yet."""
    RUNNING = "running"
    """The provider has it."""
    DONE = "done"
    """Its result is recorded."""
    FAILED = "failed"
    """The provider could not do it, or a poll showed that no result will come."""
    TIMED_OUT = "timed_out"
    """The job took longer than its `timeout`."""
    CANCELLED = "cancelled"
    """The provider accepted the cancel, or the job was not submitted."""
    CANCEL_FAILED = "cancel_failed"
    """The provider did not accept the cancel. The job may still run, and cost money."""


UNFINISHED = frozenset({JobState.SUBMITTING, JobState.RUNNING})
"""The states of a job that a task waits for."""
