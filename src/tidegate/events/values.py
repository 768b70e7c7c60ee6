"""The events. Each is a frozen value: what happened, with the names and numbers that belong to it.

None holds arguments, results or prompts. The messages and tracebacks of failures have their secrets masked.
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
    """It was given back unfinished, for example because its worker stops."""
    DEAD = "dead"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its lease ran out, so the task belongs to another worker now. Nothing of this run was written."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""


class TaskEvent(Event, frozen=True, kw_only=True):
    """Base of the events of one task."""

    task_id: str
    function: str
    """The full name of its task function."""
    queue: str
    tenant: str
    """Who the task is for; empty if nobody."""
    upstream: str
    """The upstream of its function; empty if there is none."""
    trace: TraceContext | None
    """The trace that enqueued it; None if there was none."""


class TaskEnqueued(TaskEvent, frozen=True, kw_only=True):
    """A task was stored by code of this process. With `conn=`, its transaction may still be rolled back.

    Tasks that a schedule, an `on_final`, another program or the SQL function enqueues emit none.
    """

    priority: str
    """`interactive`, `normal` or `bulk`."""
    created: bool
    """False if a task with the same key or unique name existed: `task_id` is that one's."""


class RunEvent(TaskEvent, frozen=True, kw_only=True):
    """Base of the events of one run."""

    run: int
    """Number of this claim of the task, from 1."""
    attempt: int
    """Which charged attempt it is, from 1."""
    max_attempts: int
    worker_id: str
    wait_seconds: float
    """How long the task was ready before it was claimed."""


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """The function of a task starts now. Emitted in the pool process, also for a child process.

    It is emitted in the `contextvars` context of the run: the function, and what it calls, sees the variables
    that a subscriber sets. A child process has a context of its own.
    """


class RunFinished(RunEvent, frozen=True, kw_only=True):
    """A run has ended. Its outcome is decided and about to be written.

    A run that ends before its function starts, for example at its deadline, has no `RunStarted`.
    """

    outcome: RunOutcome
    seconds: float
    """From the start of the run to its end."""
    why: str = ""
    """The explanation that the history keeps: `backoff 20 s after attempt 2 of 3`; empty after a success."""
    failure: Failure | None = None
    """Verdict, reason and message; None if it did not fail."""
    charge: str = ""
    """The counter that the run adds to: `attempt`, `park`, `crash`…; empty after a success or a cancel."""
    retry_seconds: float | None = None
    """The time until the next run; None unless it is retried."""
    usage: UsageTotals | None = None
    """The tokens of its calls; None if no response stated any."""


class TaskDied(RunEvent, frozen=True, kw_only=True):
    """A task became a dead letter after a run of this process. It follows the `RunFinished` of that run.

    A task that maintenance ends, because its worker was lost too often or its deadline passed while it
    waited, emits none: use `on_final` to learn of every end.
    """

    failure: Failure
    charge: str
    """The counter that its last run added to."""
    why: str


class CallEvent(Event, frozen=True, kw_only=True):
    """Base of the events of one call to an upstream. Emitted in the process that makes the call."""

    call: int
    """Number of the call in this process: `CallStarted` and `CallFinished` of one call have the same."""
    upstream: str
    provider: str
    """The provider, as the upstream declares it: `openai`, `anthropic`…"""
    operation: str
    """`chat`, `embeddings`, `generate_content`, `text_completion`; empty if the request does not show it."""
    model: str
    """The model that the request names; empty if it names none."""
    max_tokens: int
    """The limit on the output's tokens; 0 if the request sets none."""
    task_id: str
    """The task that makes the call; empty outside tasks."""
    run: int
    """Its run; 0 outside tasks."""
    function: str
    """Its task function; empty outside tasks."""


class CallStarted(CallEvent, frozen=True, kw_only=True):
    """A call is sent now: it has its permit."""


class CallFinished(CallEvent, frozen=True, kw_only=True):
    """A call has ended. A streamed response ends with its last piece."""

    seconds: float
    """Since the call was sent."""
    first_byte_seconds: float
    """From sending to the first byte of the response, or to the failure."""
    status: int | None
    """The HTTP status; None if no response came."""
    failure: Failure | None
    """None if it succeeded."""
    usage: Usage | None
    """The tokens; None if the response does not state them."""
    is_in_doubt: bool
    """It was sent but has no definite response: it may have been processed and billed."""


class GateEvent(Event, frozen=True, kw_only=True):
    """Base of the events of a gate, as one process learns of it."""

    upstream: str
    key: str
    """The API key whose own gate it is; empty for the gate of the upstream."""


class GateParked(GateEvent, frozen=True, kw_only=True):
    """A call of this process was refused or failed, and parked the gate of its upstream."""

    reason: str
    """Such as `rate_limit`, `overloaded`, `quota`."""
    seconds: float | None
    """How long it stays parked, as far as the provider said; None if the gate itself finds out, by probes."""
    needs_person: bool
    """Whether a person must open it."""


class GateOpened(GateEvent, frozen=True, kw_only=True):
    """The gate of an upstream that this process had parked lets calls through again."""


class WorkerEvent(Event, frozen=True, kw_only=True):
    """Base of the events of one worker process, or of one pool of an embedded worker."""

    worker_id: str
    pool: str
    queues: tuple[str, ...]
    slots: int


class WorkerStarted(WorkerEvent, frozen=True, kw_only=True):
    """The start hooks have run, and it claims tasks from now on."""


class WorkerStopped(WorkerEvent, frozen=True, kw_only=True):
    """It has drained and runs nothing more. The stop hooks run next. A process that is killed emits none."""
