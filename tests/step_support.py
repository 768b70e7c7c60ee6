"""A port for steps without a worker, for tests of what a context does with them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from tidegate import Context
from tidegate.context import RunControl
from tidegate.domain.approval import ApprovalState
from tidegate.domain.step import OnDoubt, StepState
from tidegate.steps import StepPort
from tidegate.steps.provider_job_functions import unrecorded_answer
from tidegate.store.approval_rows import AskedApproval, NewApproval
from tidegate.store.event_rows import EventWait, WaitAnswer, WaitStatus
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
    EndStatus,
    StepBegin,
    StepEnd,
    StepRow,
)


class RecordingPort:
    """A port that answers as the store does for one run, and keeps what it was asked."""

    def __init__(self) -> None:
        self.begins: list[StepBegin] = []
        self.ends: list[StepEnd] = []
        self.answers: dict[str, BegunStep] = {}
        """What a begin of a step of this name answers instead of `begun`."""
        self.job = JobAnswer(JobStatus.KNOWN)
        """What is recorded of each provider job."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        self.begins.append(begin)
        failed = [end for end in self.ends if end.key == begin.key and end.status is EndStatus.IN_DOUBT]
        if failed and begin.on_doubt is not OnDoubt.REPEAT:
            return answered(BegunStep(BeginStatus.IN_DOUBT))
        return answered(self.answers.get(begin.name, BegunStep(BeginStatus.BEGUN)))

    def end(self, end: StepEnd) -> Future[EndedStep]:
        self.ends.append(end)
        return answered(EndedStep(end.status))

    def read(self, task_id: str) -> Future[list[StepRow]]:
        return answered([])

    def wait_for_event(self, wait: EventWait) -> Future[WaitAnswer]:
        return answered(WaitAnswer(WaitStatus.TIMED_OUT))

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        return answered(self.job)

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        return answered(self.job)

    def read_job_items(self, wanted: JobItems) -> Future[list[JobItem]]:
        return answered([])

    def ask_approval(self, asked: NewApproval) -> Future[AskedApproval]:
        return answered(AskedApproval(ApprovalState.TIMED_OUT))


class StepStore:
    """A `StepPort` for all runs of one task. It decides as the store does."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.begins: list[StepBegin] = []
        self.ends: list[StepEnd] = []
        self.reads = 0
        self.inline_bytes = 65_536
        self.job = JobAnswer(JobStatus.KNOWN)
        """The one provider job."""

    def begin(self, begin: StepBegin) -> Future[BegunStep]:
        self.begins.append(begin)
        row = self.rows.get(begin.key)
        if row is not None and row["state"] is StepState.DONE:
            return answered(BegunStep(BeginStatus.DONE, row["data"], row["codec"]))
        if row is not None and row["state"] is StepState.REJECTED:
            return answered(BegunStep(BeginStatus.REJECTED))
        if row is not None and row["state"] is StepState.OPEN and begin.on_doubt is OnDoubt.ASK:
            return answered(BegunStep(BeginStatus.IN_DOUBT))
        self.rows[begin.key] = {"state": StepState.OPEN, "name": begin.name, "data": None, "codec": ""}
        return answered(BegunStep(BeginStatus.BEGUN))

    def end(self, end: StepEnd) -> Future[EndedStep]:
        self.ends.append(end)
        row = self.rows[end.key]
        if row["state"] is StepState.DONE:
            return answered(EndedStep(EndStatus.ALREADY, row["data"], row["codec"]))
        if end.status is EndStatus.DONE:
            row.update(state=StepState.DONE, data=end.data, codec=end.codec)
        elif end.status is EndStatus.FAILED:
            row.update(state=StepState.FAILED)
        return answered(EndedStep(end.status))

    def read(self, task_id: str) -> Future[list[StepRow]]:
        self.reads += 1
        return answered(
            [
                StepRow(
                    key, row["name"], row["state"], 1, 1, 0.0, 1.0, len(row["data"] or b""),
                    row["data"] if len(row["data"] or b"") <= self.inline_bytes else None, row["codec"], "acme",
                )
                for key, row in self.rows.items()
            ]
        )  # fmt: skip

    def begin_job(self, begin: JobBegin) -> Future[JobAnswer]:
        return answered(self.job)

    def report_job(self, report: JobReport) -> Future[JobAnswer]:
        self.job = unrecorded_answer(self.job, report, 0.0)
        return answered(self.job)

    @property
    def states(self) -> list[StepState]:
        return [row["state"] for row in self.rows.values()]


def answered(value: Any) -> Future[Any]:
    """Return a future that has this result."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def context_with(port: StepPort) -> Context:
    """Return the context of a run whose steps go to this port."""
    context = Context.detached()
    control: RunControl = context._control
    control.step_port = port
    return context
