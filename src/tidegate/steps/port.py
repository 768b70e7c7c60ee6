"""How the steps of a run reach the store: the same from the event loop, a thread or a child process."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from tidegate.errors import UsageError
from tidegate.store.approval_rows import AskedApproval, NewApproval
from tidegate.store.event_rows import EventWait, WaitAnswer
from tidegate.store.provider_job_rows import (
    JobAnswer,
    JobBegin,
    JobItem,
    JobItems,
    JobReport,
    JobStatus,
)
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    EndedStep,
    StepBegin,
    StepEnd,
    StepRow,
)

T = TypeVar("T")


class StepPort(Protocol):
    """Records the steps of one run. Each method returns at once, and may be called from any thread."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        """Record that the run is about to do a step."""

    def end(self, end: StepEnd) -> Future[EndedStep]:
        """Record how a step ended. The record is written even if no code waits for it any more."""

    def read(self, task_id: str) -> Future[list[StepRow]]:
        """Return the recorded steps of the run's task."""

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        """Begin a wait for an event, or return what became of it."""

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        """Record that the run waits for a provider job, or return what is recorded of it."""

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        """Record what the run has learned about a provider job."""

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        """Return some finished items of a provider job; none after the last."""

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        """Ask a person, or return what became of the question."""


class NotRecorded:
    """The steps of a plain call, outside a worker: each is done, and none is kept."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        """Let the step be done."""
        return _done(BegunStep(BeginStatus.BEGUN))

    def end(self, end: StepEnd) -> Future[EndedStep]:
        """Keep nothing."""
        return _done(EndedStep(end.status))

    def read(self, task_id: str) -> Future[list[StepRow]]:
        """Return no steps."""
        return _done([])

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        """Refuse: a plain call has no task that an event could wake."""
        raise UsageError(
            "ctx.wait_event was called outside a worker", fix="enqueue the task, and let a worker run it"
        )

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        """Let the job be submitted."""
        return _done(JobAnswer(JobStatus.KNOWN))

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        """Keep nothing."""
        return _done(JobAnswer(JobStatus.KNOWN))

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        """Return no items."""
        return _done([])

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        """Refuse: a plain call has no task that could wait for a person."""
        raise UsageError(
            "ctx.approve was called outside a worker", fix="enqueue the task, and let a worker run it"
        )


async def answered(future: Future[T]) -> T:
    """Wait for what a port has returned. If the wait is cut off, the request goes on."""
    waiting = asyncio.wrap_future(future)
    waiting.add_done_callback(_mark_as_read)
    return await asyncio.shield(waiting)


def _mark_as_read(waiting: asyncio.Future[Any]) -> None:
    # Without this, asyncio logs the error of a request that no code waits for any more.
    if not waiting.cancelled():
        waiting.exception()


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
