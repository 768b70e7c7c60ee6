"""Types of request and response bodies.

Ids and large integers are strings; times are seconds since the epoch.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate.domain.spec import Priority as TaskPriority

_WORDS = [priority.word for priority in TaskPriority]

AskedPriority = Annotated[
    Any,
    msgspec.Meta(
        description="The priority, most urgent first. Default: the function's own, else `normal`.",
        extra_json_schema={"type": ["string", "null"], "enum": [*_WORDS, None]},
    ),
]
"""Any JSON value is accepted here, so that the refusal can list the valid priorities."""
Priority = Annotated[str, msgspec.Meta(extra_json_schema={"enum": _WORDS})]
Duration = Annotated[
    Any,
    msgspec.Meta(
        description="Seconds, or a string such as `90s`, `15m`, `1h`, `7d`.",
        extra_json_schema={"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
    ),
]

# --- requests ------------------------------------------------------------------------------------------


class SubmitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One task to enqueue."""

    task: str
    """Name of the task function: `module:function`, or only the last part if no other function has it."""
    args: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """The arguments: an object by name, or an array by position."""
    key: str | None = None
    """Idempotency key: for 7 days, a submit with the same key and payload returns the same task. A single
    submit may send it in the Idempotency-Key header instead."""
    unique: str | None = None
    """`until_final` or a time such as `1h`: until then, no second task with this function and arguments."""
    delay_seconds: Duration = None
    run_at: str | None = None
    """When to run it: ISO 8601 with an offset."""
    deadline_seconds: Duration = None
    """End the task after this time from now, also while it waits."""
    deadline_at: str | None = None
    """The deadline as ISO 8601 with an offset, instead of `deadline_seconds`."""
    labels: dict[str, str] | None = None
    queue: str | None = None
    """For operators and admins only, like the next four fields."""
    priority: AskedPriority = None
    timeout_seconds: Duration = None
    """Time limit of one attempt."""
    total_timeout_seconds: Duration = None
    """Time limit of all runs from the first start; waits for an upstream do not count."""
    max_attempts: int | None = None


class SubmitManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to enqueue, all or none."""

    tasks: list[msgspec.Raw]


class CancelTaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to cancel a task."""

    why: str = ""
    force: bool = False
    """Do not wait for a function that ignores the request to stop."""


class TaskIdsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The tasks of a bulk action."""

    task_ids: list[str]


# --- responses -----------------------------------------------------------------------------------------


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
    total: float | None
    note: str


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
    queue: str
    priority: Priority
    tenant: str | None
    state: str
    run: int
    attempts: int
    redrives: int
    enqueued_at: float
    due_at: float | None
    """When the task becomes or became due."""
    held_until_at: float | None
    """Until when a due task still waits for a gate or budget; null if it does not."""
    held_by: str | None
    """What it then waits for: its upstream's `gate`, or the retry budget of the `upstream` or `system`."""
    started_at: float | None
    finished_at: float | None
    deadline_at: float | None
    cancel_requested: bool
    reason: str
    message: str
    progress: ProgressOut | None
    usage: UsageOut | None
    key: str | None
    labels: dict[str, str]


class TaskPage(msgspec.Struct):
    """One page of tasks, the newest first."""

    tasks: list[TaskOut]
    next: str | None
    """Send this as `after` to get the next page; null on the last page."""


class ErrorOut(msgspec.Struct):
    """Why a task did not succeed."""

    reason: str
    error_class: str
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
    at: float
    run: int | None
    ended_at: float | None
    outcome: str
    verdict: str
    reason: str
    charge: str
    error_class: str
    message: str
    status: int | None
    request_id: str
    next_run_at: float | None
    why: str
    traceback: str
    """For operators and admins only; empty for others."""


class HistoryOut(msgspec.Struct):
    """Every run of a task and every action on it, the oldest first."""

    history: list[RunOut]


class ActionOut(msgspec.Struct):
    """The result of an action on one task."""

    task_id: str
    answer: str


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
    redrives: int
    labels: dict[str, str]


class DeadLetterPage(msgspec.Struct):
    """One page of dead letters, the latest failure first."""

    dead_letters: list[DeadLetterOut]
    next: str | None


class FunctionOut(msgspec.Struct):
    """A task function whose tasks may be submitted."""

    name: str
    queue: str
    priority: Priority
    signature: str
    doc: str
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
    """`seconds`; `unknown` without any history; `never` if no task finished in the last ten minutes."""
    seconds: float | None


class QueueOut(msgspec.Struct):
    """The statistics of one queue."""

    queue: str
    ready: int
    """Tasks that start as soon as a worker has a free slot."""
    paced: int
    """Tasks that wait for a rate, token or in-flight limit."""
    blocked: int
    """Tasks that cannot run: their gate is parked, a long window is used up, or no live worker runs them."""
    running: int
    retrying: int
    scheduled: int
    held: int
    suspended: int
    dead: int
    oldest_ready_at: float | None
    done_last_minute: int
    done_last_10_minutes: int
    waits: list[WaitOut]
    """Why tasks are paced or blocked."""
    drain: DrainOut


class QueuesOut(msgspec.Struct):
    """The queues that hold a task, or finished one in the last ten minutes, by name."""

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
    running: int
    started_at: float
    heartbeat_at: float
    live: bool
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
    role: str
    tenant: str | None
    action: str
    target: str
    answer: str
    why: str


class AuditPage(msgspec.Struct):
    """One page of the audit log, the newest entry first."""

    entries: list[AuditOut]
    next: str | None


class HealthOut(msgspec.Struct):
    """Whether the process is alive or ready."""

    status: str


class FieldError(msgspec.Struct):
    """One error in a request."""

    at: str
    detail: str


class ProblemDetails(msgspec.Struct):
    """Why a request was refused (RFC 9457). Some kinds have further members."""

    type: str
    """URL of a page about this type of problem; its last part never changes."""
    title: str
    status: int
    detail: str
    code: str = ""
    """Code of the Tidegate error that caused the problem, if any."""
    errors: list[FieldError] = []
