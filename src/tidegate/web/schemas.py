"""Types of response bodies.

Ids and large integers are strings; times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate.domain.spec import Priority as TaskPriority
from tidegate.web.control_schemas import PauseOut

_WORDS = [priority.word for priority in TaskPriority]
Priority = Annotated[str, msgspec.Meta(extra_json_schema={"enum": _WORDS})]


class SubmittedOut(msgspec.Struct):
    """An enqueued task."""

    task_id: str
    created: bool
    """False if a task with the same key or unique name existed already."""
    location: str
    """The path of its status."""


class SubmittedMany(msgspec.Struct):
    """The enqueued tasks, in the order of the request."""

    tasks: list[SubmittedOut]


class ProgressOut(msgspec.Struct):
    """The progress that the task reported last."""

    done: float
    """Units done."""
    total: float | None
    """Units in total; null if not known."""
    note: str
    """One line for people."""


class UsageOut(msgspec.Struct):
    """Tokens that the calls of all runs used. Calls whose response did not state them are not counted."""

    calls: int
    input_tokens: int
    """All input tokens, including the next two."""
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    """All output tokens, including the next."""
    reasoning_tokens: int


class TaskOut(msgspec.Struct):
    """The state and progress of a task."""

    task_id: str
    function: str
    """The name of its task function."""
    queue: str
    priority: Priority
    tenant: str | None
    """The tenant that the task is for; null if none."""
    state: str
    """`ready`, `running`, `retrying`, `scheduled`, `held`, `suspended`, `succeeded`, `cancelled`, `dead`."""
    run: int
    """Number of the present or last run; 0 before the first."""
    attempts: int
    """Charged runs, without the present one."""
    redrives: int
    """How many times it was sent back from the dead letters."""
    enqueued_at: float
    due_at: float | None
    """When the task becomes or became due."""
    held_until_at: float | None
    """Until when a due task still waits for a gate or budget; null if it does not."""
    held_by: str | None
    """What it then waits for: its upstream's `gate`, or the retry budget of the `upstream` or `system`."""
    started_at: float | None
    """Start of the present or last run."""
    finished_at: float | None
    deadline_at: float | None
    """The moment at which it ends even if it still waits; null without one."""
    cancel_requested: bool
    """Whether a cancel was requested. The function of a running task is asked to stop."""
    reason: str
    """Why the last run failed, such as `rate_limit`; empty if none did."""
    message: str
    """Message of the last failure, or why the task waits."""
    progress: ProgressOut | None
    usage: UsageOut | None
    key: str | None
    """Its idempotency key."""
    labels: dict[str, str]
    trace_id: str | None
    """The trace that enqueued it, 32 hexadecimal digits; null if there was none."""


class TaskPage(msgspec.Struct):
    """One page of tasks, the newest first."""

    tasks: list[TaskOut]
    next: str | None
    """Send this as `after` to get the next page; null on the last page."""


class ErrorOut(msgspec.Struct):
    """Why a task did not succeed."""

    reason: str
    """Why it failed, such as `timeout`."""
    error_class: str
    """The class of the exception, with its module."""
    message: str


class UnstorableOut(msgspec.Struct):
    """The return value of a task could not be stored. The task succeeded; its function ran once."""

    type: str
    """Type of the return value."""
    reason: str
    """Why it could not be stored."""


class TaskResult(msgspec.Struct):
    """The result of a task, or its present state if it is not final."""

    task_id: str
    state: str
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    error: ErrorOut | None = None
    unstorable: UnstorableOut | None = None
    """Set if the result could not be stored; `result` is null then."""


class RunOut(msgspec.Struct):
    """One run of a task, or one action of a person on it."""

    kind: str
    """`run`, or an action: `enqueued`, `redriven`, `cancel requested`, `priority changed`, `run now`."""
    at: float
    """Start of the run, or the moment of the action."""
    run: int | None
    """Number of the run; null for an action."""
    ended_at: float | None
    outcome: str
    """`succeeded`, `retrying`, `released`, `dead` or `cancelled`; empty while it runs."""
    verdict: str
    """`transient`, `permanent` or `unknown`; empty if it did not fail."""
    reason: str
    charge: str
    """The counter that the run added to: `attempt`, `park`, `crash`…"""
    error_class: str
    message: str
    status: int | None
    """The HTTP status of the response; null without one."""
    request_id: str
    """The provider's id of the request."""
    next_run_at: float | None
    """When the next run is due."""
    why: str
    """Why the task was retried, parked or ended."""
    traceback: str
    """For operators and admins only; empty for others."""


class HistoryOut(msgspec.Struct):
    """Every run of a task and every action on it, the oldest first."""

    history: list[RunOut]


class ActionOut(msgspec.Struct):
    """The result of an action on one task."""

    task_id: str
    answer: str
    """What the action did, or why it did nothing."""


class ActionsOut(msgspec.Struct):
    """The result of an action on each task, in the order of the request."""

    tasks: list[ActionOut]


class DeadLetterOut(msgspec.Struct):
    """One dead letter, without its arguments, which may hold secrets."""

    task_id: str
    function: str
    queue: str
    tenant: str | None
    reason: str
    error_class: str
    message: str
    failed_at: float
    run: int
    """Number of the run that failed."""
    redrives: int
    """How many times it was redriven before."""
    labels: dict[str, str]
    fingerprint: str | None
    """Of its failure: `groups` has the group. Null for a moment after an upgrade."""


class DeadLetterPage(msgspec.Struct):
    """One page of dead letters, the latest failure first."""

    dead_letters: list[DeadLetterOut]
    next: str | None
    """Send this as `after` to get the next page; null on the last page."""


class FunctionOut(msgspec.Struct):
    """A task function whose tasks may be submitted."""

    name: str
    """Use this as `task` of a submit."""
    queue: str
    priority: Priority
    signature: str
    """Its parameters, for people."""
    doc: str
    """Its docstring."""
    arguments: dict[str, Any]
    """JSON Schema of `args`."""


class FunctionsOut(msgspec.Struct):
    """The declared task functions, by name."""

    functions: list[FunctionOut]


class WaitOut(msgspec.Struct):
    """Why some ready tasks of a queue do not start now."""

    kind: str
    """`paced` or `blocked`."""
    by: str
    """`upstream NAME`, `rate limit of FUNCTION`, or `workers`."""
    reason: str
    """The reason as a sentence, with the time if it is known."""
    tasks: int


class DrainOut(msgspec.Struct):
    """Estimated time until the ready and paced tasks of a queue are done."""

    kind: str
    """`seconds`; `unknown` without any history; `never` if more tasks arrive than can be finished or none
    finished in the last ten minutes; `blocked` if every task that waits is blocked."""
    seconds: float | None
    constraint: str
    """Decides: `slots`, `requests`, `in_flight`, `completions`, `gate`, `paused`, `workers` or empty."""
    text: str
    """The constraint with its numbers, for people."""
    short_per_minute: float | None
    """Of a queue that grows: how many more tasks a minute arrive than are let through."""
    left_out: list[str]
    """What is no part of the estimate, and why: blocked tasks, and those that wait for their moment."""


class QueueOut(msgspec.Struct):
    """The statistics of one queue."""

    queue: str
    ready: int
    """Tasks that start as soon as a worker has a free slot."""
    paced: int
    """Tasks that wait for a rate, token or in-flight limit."""
    blocked: int
    """Tasks that cannot run: they are paused, their gate is parked, a long window is used up, or no live
    worker runs them."""
    running: int
    retrying: int
    """Failed tasks that wait for their next run."""
    scheduled: int
    """Tasks that are due later."""
    held: int
    suspended: int
    dead: int
    """Dead letters."""
    oldest_ready_at: float | None
    """Since when the oldest ready task waits; null if none is ready."""
    done_last_minute: int
    done_last_10_minutes: int
    waits: list[WaitOut]
    """Why tasks are paced or blocked."""
    drain: DrainOut
    pause: PauseOut | None
    """Set while somebody has paused the queue."""


class QueuesOut(msgspec.Struct):
    """The queues that hold a task, finished one in the last ten minutes or are paused, by name."""

    queues: list[QueueOut]


class WorkerOut(msgspec.Struct):
    """One pool process."""

    worker_id: str
    name: str
    pool: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    """How many tasks it runs at once."""
    running: int
    started_at: float
    heartbeat_at: float
    live: bool
    """Whether its lease is valid."""
    late_seconds: float | None
    """Seconds since the last heartbeat if the next one is overdue; else null."""
    version: str
    application: str
    """The application as `MODULE:NAME`; empty if unknown."""


class WorkersOut(msgspec.Struct):
    """The pool processes that are not retired, or that still have running tasks."""

    workers: list[WorkerOut]


class AuditOut(msgspec.Struct):
    """One entry of the audit log."""

    id: str
    at: float
    actor: str
    """The name of the token."""
    role: str
    tenant: str | None
    action: str
    """What was done."""
    target: str
    """The task, the upstream or other thing that it was done to."""
    answer: str
    """What came of it."""
    why: str


class AuditPage(msgspec.Struct):
    """One page of the audit log, the newest entry first."""

    entries: list[AuditOut]
    next: str | None
    """Send this as `after` to get the next page; null on the last page."""


class HealthOut(msgspec.Struct):
    """Whether the process is alive or ready."""

    status: str


class FieldError(msgspec.Struct):
    """One error in a request."""

    at: str
    """The place in the request, such as `args.name`."""
    detail: str


class ProblemDetails(msgspec.Struct):
    """Why a request was refused (RFC 9457). Some kinds have further members."""

    type: str
    """URL of a page about this type of problem; its last part never changes."""
    title: str
    """What is wrong, the same for each problem of the type."""
    status: int
    detail: str
    """What is wrong with this request."""
    code: str = ""
    """Code of the Tidegate error that caused the problem, if any."""
    errors: list[FieldError] = []
    """Each error in the request, if there are several."""
