"""The messages between a pool process and a child process: length-prefixed MessagePack over a socket pair.

The messages carry values only, never code or pickles: the child process imports the application itself.

A deploy may replace the code while pool processes run. Child processes that they start later run the new
version, so each version must read the messages of the other. A new field comes last and has a default with
the old meaning. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.domain.calls import CallSummary
from tidegate.domain.failure import Failure, LastFailure
from tidegate.store.approval_rows import AskedApproval, NewApproval
from tidegate.store.event_rows import EventWait, WaitAnswer
from tidegate.store.provider_job_rows import JobAnswer, JobBegin, JobItem, JobItems, JobReport
from tidegate.store.step_rows import BegunStep, EndedStep, StepBegin, StepEnd, StepRow

HEADER_BYTES = 4
LARGEST_FRAME_BYTES = 64 * 2**20


class RunTask(msgspec.Struct, tag="run", frozen=True):
    """Run this task. To the child process."""

    function: str
    task_id: str
    run: int
    attempt: int
    max_attempts: int
    queue: str
    priority: int
    upstream: str
    tenant: str
    labels: dict[str, str]
    args: bytes
    scratch_root: str
    ends_at: float | None
    """When the run must end, by the monotonic clock, which all processes of a machine share; None: no
    limit."""
    is_probe: bool = False
    last_failure: LastFailure | None = None
    traceparent: str = ""
    """OpenTelemetry's span of the run, as a W3C header; empty if the run is not traced."""
    tracestate: str = ""
    records_steps: bool = False
    """Whether the pool process records steps. One of an older version does not."""
    store_offset: float | None = None
    """Store time minus monotonic time, in seconds; None if the run cannot be suspended."""


class StopTask(msgspec.Struct, tag="stop", frozen=True):
    """Stop the current function. To the child process."""

    why: str


class StepBegun(msgspec.Struct, tag="step_begun", frozen=True):
    """The answer to `BeginStep`. To the child process."""

    number: int
    answer: BegunStep


class StepEnded(msgspec.Struct, tag="step_ended", frozen=True):
    """The answer to `EndStep`. To the child process."""

    number: int
    answer: EndedStep


class StepsRead(msgspec.Struct, tag="steps_read", frozen=True):
    """Part of the answer to `ReadSteps`. To the child process."""

    number: int
    rows: list[StepRow]
    is_last: bool


class StepRefused(msgspec.Struct, tag="step_refused", frozen=True):
    """The store refused the content of a step. To the child process."""

    number: int
    message: str


class EventAnswer(msgspec.Struct, tag="event_answer", frozen=True):
    """The answer to `WaitForEvent`. To the child process."""

    number: int
    answer: WaitAnswer


class JobRecorded(msgspec.Struct, tag="job_recorded", frozen=True):
    """The answer to `BeginJob` and `ReportJob`. To the child process."""

    number: int
    answer: JobAnswer


class JobItemsRead(msgspec.Struct, tag="job_items_read", frozen=True):
    """The answer to `ReadJobItems`. To the child process."""

    number: int
    answer: list[JobItem]


class ApprovalAsked(msgspec.Struct, tag="approval_asked", frozen=True):
    """The answer to `AskApproval`. To the child process."""

    number: int
    answer: AskedApproval


class ChildReady(msgspec.Struct, tag="ready", frozen=True):
    """The application is imported and the start hooks have run. To the pool process."""


class FunctionStarted(msgspec.Struct, tag="started", frozen=True):
    """The function starts now. If the process dies from now on, its task is charged with the crash."""


class ProgressReported(msgspec.Struct, tag="progress", frozen=True):
    """The function reported progress."""

    done: float
    total: float | None
    note: str


class ChunkEmitted(msgspec.Struct, tag="chunk", frozen=True):
    """An encoded chunk of the task's stream.

    The pool process reads the next message only when there is room.
    """

    data: bytes


class BeginStep(msgspec.Struct, tag="begin_step", frozen=True):
    """The function is about to do a step. The pool process answers with `StepBegun`."""

    number: int
    """The answer carries the same number."""
    begin: StepBegin


class EndStep(msgspec.Struct, tag="end_step", frozen=True):
    """A step has ended. The pool process answers with `StepEnded`."""

    number: int
    end: StepEnd


class ReadSteps(msgspec.Struct, tag="read_steps", frozen=True):
    """The recorded steps of the task are wanted. The pool process answers with `StepsRead`."""

    number: int
    task_id: str


class WaitForEvent(msgspec.Struct, tag="wait_for_event", frozen=True):
    """The function waits for an event. The pool process answers with `EventAnswer`."""

    number: int
    wait: EventWait


class BeginJob(msgspec.Struct, tag="begin_job", frozen=True):
    """The function comes to a provider job. The pool process answers with `JobRecorded`."""

    number: int
    begin: JobBegin


class ReportJob(msgspec.Struct, tag="report_job", frozen=True):
    """The function has learned about a provider job. The pool process answers with `JobRecorded`."""

    number: int
    report: JobReport


class ReadJobItems(msgspec.Struct, tag="read_job_items", frozen=True):
    """Items of a provider job are wanted. The pool process answers with `JobItemsRead`."""

    number: int
    wanted: JobItems


class AskApproval(msgspec.Struct, tag="ask_approval", frozen=True):
    """The function asks a person. The pool process answers with `ApprovalAsked`."""

    number: int
    asked: NewApproval


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every reply."""

    unhealthy_reason: str = ""
    """Why this process must not run another task; empty if it may."""
    calls: CallSummary | None = None
    """The calls that the function made through transports; None if the child runs a version that does not
    report them."""


class FunctionReturned(RunReport, tag="returned", frozen=True, kw_only=True):
    """The function returned; `data` is the encoded result."""

    data: bytes


class FunctionFailed(RunReport, tag="failed", frozen=True, kw_only=True):
    """The function raised."""

    failure: Failure
    rule: int
    """Position of the matching rule in `retry=[…]`; -1 if none matched."""


class RetryWanted(RunReport, tag="retry", frozen=True, kw_only=True):
    """The function called `ctx.retry`."""

    after_seconds: float | None
    reason: str
    charge: bool


class FunctionSuspended(RunReport, tag="suspended", frozen=True, kw_only=True):
    """The function suspended itself. Sent only if the pool process stated its `store_offset`."""

    delay_seconds: float | None
    why: str
    wait_keys: tuple[str, ...] = ()
    """Its waits for events."""
    child_ids: tuple[str, ...] = ()
    """The tasks that it waits for."""
    cache_waits: tuple[tuple[str, float], ...] = ()
    """The results that it waits for: digests, and how old each may be in seconds."""


class FunctionStopped(RunReport, tag="stopped", frozen=True, kw_only=True):
    """The function ended because it was asked to stop."""


StepAnswer = (
    StepBegun | StepEnded | StepsRead | StepRefused | EventAnswer | JobRecorded | JobItemsRead | ApprovalAsked
)
StepRequest = (
    BeginStep | EndStep | ReadSteps | WaitForEvent | BeginJob | ReportJob | ReadJobItems | AskApproval
)
ToChild = RunTask | StopTask | StepAnswer
ToParent = (
    ChildReady
    | FunctionStarted
    | ProgressReported
    | ChunkEmitted
    | StepRequest
    | FunctionReturned
    | FunctionFailed
    | RetryWanted
    | FunctionSuspended
    | FunctionStopped
)
RunReply = FunctionReturned | FunctionFailed | RetryWanted | FunctionSuspended | FunctionStopped

_encode = msgspec.msgpack.Encoder().encode
decode_to_child = msgspec.msgpack.Decoder(ToChild).decode
decode_to_parent = msgspec.msgpack.Decoder(ToParent).decode


def encode_message(message: Any) -> bytes:
    """Return a message as bytes, with its length in front."""
    payload = _encode(message)
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload
