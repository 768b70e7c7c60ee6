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
    """The path of the task's status."""


class SentEventOut(msgspec.Struct):
    """An event that is stored."""

    name: str
    delivered: int
    """How many tasks waited for it."""


class SubmittedMany(msgspec.Struct):
    """The enqueued tasks, in the order of the request."""

    tasks: list[SubmittedOut]


class ProgressOut(msgspec.Struct):
    """The progress that the task reported last."""

    done: float
    """How many units are done."""
    total: float | None
    """How many units there are in total; null if not known."""
    note: str
    """A message of one line for people."""


class UsageOut(msgspec.Struct):
    """The tokens that the calls of all runs used.

    Calls whose response did not state its tokens are not counted.
    """

    calls: int
    input_tokens: int
    """All input tokens, including those in the next two fields."""
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    """All output tokens, including those in the next field."""
    reasoning_tokens: int


class TaskOut(msgspec.Struct):
    """The state and progress of a task."""

    task_id: str
    function: str
    """The name of the task function."""
    queue: str
    priority: Priority
    tenant: str | None
    """The tenant that the task is for; null for no tenant."""
    state: str
    """`ready`, `running`, `retrying`, `scheduled`, `held`, `suspended`, `succeeded`, `cancelled`, `dead`."""
    run: int
    """The number of the present or last run; 0 before the first run."""
    attempts: int
    """How many runs were charged, without the present run."""
    redrives: int
    """How many times the task was redriven from the dead letters."""
    enqueued_at: float
    due_at: float | None
    """When the task becomes or became due."""
    held_until_at: float | None
    """Until when a due task still waits for a gate or budget; null if it waits for neither."""
    held_by: str | None
    """What a due task still waits for: its upstream's `gate`, or the retry budget of the `upstream` or
    `system`. `after`: a held task waits for other tasks."""
    started_at: float | None
    """The start of the present or last run."""
    finished_at: float | None
    deadline_at: float | None
    """The deadline, at which the task ends even if it is still waiting; null without one."""
    cancel_requested: bool
    """Whether a cancel was requested. The function of a running task is asked to stop."""
    reason: str
    """Why the last run failed, such as `rate_limit`; empty if no run failed."""
    message: str
    """The message of the last failure, or why the task waits."""
    progress: ProgressOut | None
    usage: UsageOut | None
    key: str | None
    """The task's idempotency key."""
    labels: dict[str, str]
    trace_id: str | None
    """The trace in which the task was enqueued, 32 hexadecimal digits; null if there was none."""


class TaskPage(msgspec.Struct):
    """One page of tasks, the newest first."""

    tasks: list[TaskOut]
    next: str | None
    """Send this as `after` to get the next page; null on the last page."""


class ErrorOut(msgspec.Struct):
    """Why a task did not succeed."""

    reason: str
    """The reason of the failure, such as `timeout`."""
    error_class: str
    """The class of the exception, with its module."""
    message: str


class UnstorableOut(msgspec.Struct):
    """The return value of a task could not be stored. The task succeeded; its function ran once."""

    type: str
    """The type of the return value."""
    reason: str
    """Why the return value could not be stored."""


class TaskResult(msgspec.Struct):
    """The result of a task, or its present state if it is not final."""

    task_id: str
    state: str
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    error: ErrorOut | None = None
    unstorable: UnstorableOut | None = None
    """Details if the result could not be stored; `result` is then null."""


class RunOut(msgspec.Struct):
    """One run of a task, or one action of a person on it."""

    kind: str
    """`run`, or an action: `enqueued`, `redriven`, `cancel requested`, `priority changed`, `run now`,
    `approved`, `rejected`."""
    at: float
    """The start of the run, or the moment of the action."""
    run: int | None
    """The number of the run; null for an action."""
    ended_at: float | None
    outcome: str
    """`succeeded`, `retrying`, `released`, `dead` or `cancelled`; empty while it runs."""
    verdict: str
    """`transient`, `permanent` or `unknown`; empty if the run did not fail."""
    reason: str
    charge: str
    """The counter to which the run added: `attempt`, `park`, `crash`…"""
    error_class: str
    message: str
    status: int | None
    """The HTTP status of the response; null without a response."""
    request_id: str
    """The provider's id of the request."""
    next_run_at: float | None
    """When the next run is due."""
    why: str
    """Why the task was retried, parked or ended."""
    traceback: str
    """The traceback. For operators and admins only; empty for others."""


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
    """The number of the run that failed."""
    redrives: int
    """How many times the task was redriven before."""
    labels: dict[str, str]
    fingerprint: str | None
    """The fingerprint of its failure: `groups` lists its group. Null for a moment after an upgrade."""


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
    """The parameters of the function, as text for people."""
    doc: str
    """The docstring of the function."""
    arguments: dict[str, Any]
    """The JSON Schema of `args`."""


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
    """What limits the estimate: `slots`, `requests`, `in_flight`, `completions`, `gate`, `paused`, `workers`
    or empty."""
    text: str
    """What limits the estimate, with numbers, as text for people."""
    short_per_minute: float | None
    """For a growing queue, how many more tasks a minute arrive than its limit lets through."""
    left_out: list[str]
    """Tasks that are not part of the estimate, and why: blocked tasks, and tasks that wait for their
    moment."""


class QueueOut(msgspec.Struct):
    """The statistics of one queue."""

    queue: str
    ready: int
    """How many tasks start as soon as a worker has a free slot."""
    paced: int
    """How many tasks wait for a rate, token or in-flight limit."""
    blocked: int
    """How many tasks cannot run: they are paused, their gate is parked, a long window is used up, or no live
    worker runs them."""
    running: int
    retrying: int
    """How many failed tasks wait for their next run."""
    scheduled: int
    """How many tasks are due later."""
    held: int
    suspended: int
    dead: int
    """How many dead letters the queue has."""
    oldest_ready_at: float | None
    """When the oldest ready task began to wait; null if no task is ready."""
    done_last_minute: int
    done_last_10_minutes: int
    waits: list[WaitOut]
    """Why tasks are paced or blocked."""
    drain: DrainOut
    pause: PauseOut | None
    """The pause of the queue; null if it is not paused."""


class QueuesOut(msgspec.Struct):
    """The queues that have a task, finished one in the last ten minutes or are paused, by name."""

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
    """How many tasks the process runs at once."""
    running: int
    started_at: float
    heartbeat_at: float
    live: bool
    """Whether the lease of the process is valid."""
    late_seconds: float | None
    """Seconds since the last heartbeat if the next one is overdue; otherwise null."""
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
    """The action."""
    target: str
    """The task, upstream or other object of the action."""
    answer: str
    """The result of the action."""
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
    """A title, the same for each problem of the type."""
    status: int
    detail: str
    """What is wrong with this request."""
    code: str = ""
    """The code of the Tidegate error that caused the problem, if any."""
    errors: list[FieldError] = []
    """Each error in the request, if there are several."""
