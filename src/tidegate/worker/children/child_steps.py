"""The steps of a run in a child process: its pool process records them."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidegate.store.approval_rows import AskedApproval, NewApproval
from tidegate.store.event_rows import EventWait, WaitAnswer
from tidegate.store.provider_job_rows import JobAnswer, JobBegin, JobItem, JobItems, JobReport
from tidegate.store.step_rows import BegunStep, EndedStep, StepBegin, StepEnd, StepRow
from tidegate.verdicts import Transient
from tidegate.worker.children.messages import (
    AskApproval,
    BeginJob,
    BeginStep,
    EndStep,
    ReadJobItems,
    ReadSteps,
    ReportJob,
    StepAnswer,
    StepRefused,
    StepsRead,
    WaitForEvent,
)


class ChildSteps:
    """The `StepPort` of a child process.

    Args:
        send: Sends a message to the pool process. May be called from any thread.
    """

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._rows: defaultdict[int, list[StepRow]] = defaultdict(list)

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        """Have the pool process record that a step is about to be done."""
        number, future = self._request()
        self._send(BeginStep(number, begin))
        return future

    def end(self, end: StepEnd) -> Future[EndedStep]:
        """Have the pool process record how a step ended."""
        number, future = self._request()
        self._send(EndStep(number, end))
        return future

    def read(self, task_id: str) -> Future[list[StepRow]]:
        """Have the pool process read the recorded steps."""
        number, future = self._request()
        self._send(ReadSteps(number, task_id))
        return future

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        """Have the pool process begin a wait for an event."""
        number, future = self._request()
        self._send(WaitForEvent(number, wait))
        return future

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        """Have the pool process record that the run waits for a provider job."""
        number, future = self._request()
        self._send(BeginJob(number, begin))
        return future

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        """Have the pool process record what the run has learned about a provider job."""
        number, future = self._request()
        self._send(ReportJob(number, report))
        return future

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        """Have the pool process read items of a provider job."""
        number, future = self._request()
        self._send(ReadJobItems(number, wanted))
        return future

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        """Have the pool process ask a person."""
        number, future = self._request()
        self._send(AskApproval(number, asked))
        return future

    def take(self, answer: StepAnswer) -> None:
        """Take an answer of the pool process."""
        if isinstance(answer, StepsRead):
            self._rows[answer.number] += answer.rows
            if not answer.is_last:
                return
        with self._lock:
            future = self._waiting.pop(answer.number, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(answer, StepRefused):
            future.set_exception(ValueError(answer.message))
        elif isinstance(answer, StepsRead):
            future.set_result(self._rows.pop(answer.number))
        else:
            future.set_result(answer.answer)

    def _request(self) -> tuple[int, Future[Any]]:
        number, future = next(self._numbers), Future[Any]()
        with self._lock:
            self._waiting[number] = future
        return number, future


class OlderPoolProcess:
    """The `StepPort` of a child process whose pool process still runs a version without steps."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        """Refuse."""
        raise _not_yet()

    def end(self, end: StepEnd) -> Future[EndedStep]:
        """Refuse."""
        raise _not_yet()

    def read(self, task_id: str) -> Future[list[StepRow]]:
        """Refuse."""
        raise _not_yet()

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        """Refuse."""
        raise _not_yet()

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        """Refuse."""
        raise _not_yet()

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        """Refuse."""
        raise _not_yet()

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        """Refuse."""
        raise _not_yet()

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        """Refuse."""
        raise _not_yet()


def _not_yet() -> Transient:
    return Transient("its pool process still runs a version of Tidegate without steps: restart the worker")
