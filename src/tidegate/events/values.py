"""The events. Each is a frozen value: what happened, with the names and numbers that belong to it.

No event contains arguments, results or prompts. Secrets in the messages and tracebacks of failures are
masked.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.domain.failure import Failure
from tidegate.domain.trace import TraceContext
from tidegate.domain.usage import Usage, UsageTotals


class RunOutcome(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    RETRYING = "retrying"
    """The task runs again later."""
    RELEASED = "released"
    """The run was given back unfinished, for example because its worker stops."""
    SUSPENDED = "suspended"
    """The task waits without a slot, as its function asked, and runs again afterwards."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    LOST = "lost"
    """The lease of the run was lost, so the task belongs to another worker now. No outcome of this run was
    written."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of all events."""


class TaskEvent(Event, frozen=True, kw_only=True):
    """The base class of the events of one task."""

    task_id: str
    function: str
    """The full name of the task function."""
    queue: str
    tenant: str
    """The tenant that the task is for; empty for no tenant."""
    upstream: str
    """The upstream of the task function; empty if it has none."""
    trace: TraceContext | None
    """The trace in which the task was enqueued; None if there was no trace."""


class TaskEnqueued(TaskEvent, frozen=True, kw_only=True):
    """A task was stored by code of this process. With `conn=`, its transaction may still be rolled back.

    There is no such event for tasks that a schedule, an `on_final`, another program or the SQL function
    enqueues.
    """

    priority: str
    """`interactive`, `normal` or `bulk`."""
    created: bool
    """False if a task with the same key or unique name existed: `task_id` is then the id of that task."""


class RunEvent(TaskEvent, frozen=True, kw_only=True):
    """The base class of the events of one run."""

    run: int
    """The number of this claim of the task, from 1."""
    attempt: int
    """The number of this charged attempt, from 1."""
    max_attempts: int
    worker_id: str
    wait_seconds: float
    """Seconds for which the task was ready before it was claimed."""


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """The function of a task starts now.

    Emitted in the pool process, also if the function runs in a child process. The event is emitted in the
    `contextvars` context of the run, so the function sees the variables that a subscriber sets. A child
    process has a context of its own.
    """


class RunFinished(RunEvent, frozen=True, kw_only=True):
    """A run has ended. The outcome of the run is decided and about to be written.

    A run that ends before its function starts, for example at its deadline, has no `RunStarted`.
    """

    outcome: RunOutcome
    seconds: float
    """Seconds from the start of the run to its end."""
    why: str = ""
    """The explanation in the task's history, such as `backoff 20 s after attempt 2 of 3`; empty after a
    success."""
    failure: Failure | None = None
    """The failure with verdict, reason and message; None if the run did not fail."""
    charge: str = ""
    """The counter to which the run adds: `attempt`, `park`, `crash`…; empty after a success, a suspension or
    a cancel."""
    retry_seconds: float | None = None
    """Seconds until the next run; None unless the task is retried."""
    usage: UsageTotals | None = None
    """The tokens that the run's calls used; None if no response stated them."""


class TaskDied(RunEvent, frozen=True, kw_only=True):
    """A task became a dead letter after a run of this process.

    This event follows the `RunFinished` of that run.

    There is no such event for a task that maintenance ends, because its worker was lost too often or its
    deadline passed while it waited. Use `on_final` to learn of every end.
    """

    failure: Failure
    charge: str
    """The counter to which the last run added."""
    why: str


class StepOutcome(StrEnum):
    """How a step of a run ended."""

    DONE = "done"
    """Its result is recorded."""
    REPLAYED = "replayed"
    """It was done by an earlier run, whose result it returned. Its function was not called."""
    CACHED = "cached"
    """It got the result of another task through its `cache`. Its function was not called."""
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    """It failed, but may have been done."""
    LOST = "lost"
    """The task belongs to another worker now, or is gone."""


class StepEvent(Event, frozen=True, kw_only=True):
    """The base class of the events of one step. Emitted in the process that runs the task function.

    Recorded calls (`record=True`) have no such events: they have those of calls.
    """

    task_id: str
    run: int
    function: str
    """The full name of the task function."""
    tenant: str
    """The tenant that the task is for; empty for no tenant."""
    step: str
    """The name of the step."""
    key: str
    """The identity of the step within its task."""


class StepStarted(StepEvent, frozen=True, kw_only=True):
    """The function of a step is called now.

    Emitted in the `contextvars` context in which the function is called, so that the function sees the
    variables that a subscriber sets.
    """


class StepFinished(StepEvent, frozen=True, kw_only=True):
    """A step has ended. A step whose function was not called has no `StepStarted`."""

    outcome: StepOutcome
    seconds: float
    """From the call of the function until its end was recorded, or until it failed; 0 if it was not
    called."""
    error_class: str = ""
    """The class of the error that it raised; empty if it raised none."""
    message: str = ""
    """The message of that error, with its secrets masked."""


class CallEvent(Event, frozen=True, kw_only=True):
    """The base class of the events of one call to an upstream. Emitted in the process that makes the call."""

    call: int
    """The number of the call in this process. `CallStarted` and `CallFinished` of one call have the same
    number."""
    upstream: str
    provider: str
    """The provider that the upstream declares: `openai`, `anthropic`…"""
    operation: str
    """The operation: `chat`, `embeddings`, `generate_content`, `text_completion`; empty if the request does
    not show it."""
    model: str
    """The model that the request names; empty if it names none."""
    max_tokens: int
    """The limit on the output's tokens; 0 if the request sets no limit."""
    task_id: str
    """The task that makes the call; empty outside tasks."""
    run: int
    """The number of the run that makes the call; 0 outside tasks."""
    function: str
    """The task function that makes the call; empty outside tasks."""


class CallStarted(CallEvent, frozen=True, kw_only=True):
    """A call is sent now: it has its permit."""


class CallFinished(CallEvent, frozen=True, kw_only=True):
    """A call has ended. A streamed response ends with its last piece."""

    seconds: float
    """Seconds since the call was sent."""
    first_byte_seconds: float
    """Seconds from sending to the first byte of the response, or to the failure."""
    status: int | None
    """The HTTP status; None if no response came."""
    failure: Failure | None
    """The failure; None if the call succeeded."""
    usage: Usage | None
    """The tokens that the call used; None if the response does not state them."""
    is_in_doubt: bool
    """Whether the call was sent but has no definite response: it may have been processed and billed."""


class GateEvent(Event, frozen=True, kw_only=True):
    """The base class of the events of a gate, as one process learns of them."""

    upstream: str
    key: str
    """The API key that the gate belongs to; empty for the gate of the upstream."""


class GateParked(GateEvent, frozen=True, kw_only=True):
    """A call of this process was refused or failed, and parked the gate of its upstream."""

    reason: str
    """The reason, such as `rate_limit`, `overloaded`, `quota`."""
    seconds: float | None
    """Seconds for which the gate stays parked, if the provider named a time; None if probes decide when it
    opens."""
    needs_person: bool
    """Whether a person must open it."""


class GateOpened(GateEvent, frozen=True, kw_only=True):
    """The gate of an upstream that this process had parked lets calls through again."""


class WorkerEvent(Event, frozen=True, kw_only=True):
    """The base class of the events of one worker process, or of one pool of an embedded worker."""

    worker_id: str
    pool: str
    queues: tuple[str, ...]
    slots: int


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True):
    """The start hooks of a worker have run, and it claims tasks from now on."""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """A worker has drained and runs nothing more. The stop hooks run next.

    A process that is killed emits no such event.
    """
