"""What goes over the wire, in and out. Ids and large numbers are text, moments seconds since the epoch."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate.domain.spec import Priority as TaskPriority

_WORDS = [priority.word for priority in TaskPriority]

AskedPriority = Annotated[
    Any,
    msgspec.Meta(
        description="The most urgent first. Default: the function's own; `normal` unless it names one.",
        extra_json_schema={"type": ["string", "null"], "enum": [*_WORDS, None]},
    ),
]
"""Any value is read, so that a wrong one is refused with the words that work."""
Priority = Annotated[str, msgspec.Meta(extra_json_schema={"enum": _WORDS})]
Duration = Annotated[
    Any,
    msgspec.Meta(
        description="Seconds, or text such as `90s`, `15m`, `1h`, `7d`.",
        extra_json_schema={"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
    ),
]

# --- in --------------------------------------------------------------------------------------------------


class SubmitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One task to be stored."""

    task: str
    """Name of the task function: `module:function`, or its last part if that is the only one."""
    args: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """Its arguments: an object by name, or an array by position."""
    key: str | None = None
    """Idempotency key: the same key and payload name the same task for 7 days. In a single submit the
    Idempotency-Key header says the same."""
    unique: str | None = None
    """`until_final` or a time such as `1h`: one task by function and arguments until then."""
    delay_seconds: Duration = None
    run_at: str | None = None
    """ISO 8601 with an offset."""
    deadline_seconds: Duration = None
    """From now; nothing stops it."""
    deadline_at: str | None = None
    """The deadline as a moment: ISO 8601 with an offset. Instead of `deadline_seconds`."""
    labels: dict[str, str] | None = None
    queue: str | None = None
    """Operators and admins only, as the next four."""
    priority: AskedPriority = None
    timeout_seconds: Duration = None
    """For one attempt."""
    total_timeout_seconds: Duration = None
    """For the whole task from its first start; waits for an upstream are not counted."""
    max_attempts: int | None = None


class SubmitManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Tasks to be stored, all or none."""

    tasks: list[msgspec.Raw]


class CancelTaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to cancel."""

    why: str = ""
    force: bool = False
    """Do not wait for a body that does not listen."""


class TaskIdsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which tasks."""

    task_ids: list[str]


# --- out -------------------------------------------------------------------------------------------------


class SubmittedOut(msgspec.Struct):
    """A stored task."""

    task_id: str
    created: bool
    """False: it was there before, by the same key or unique name."""
    location: str
    """Where its status is."""


class SubmittedMany(msgspec.Struct):
    """Stored tasks, in the order given."""

    tasks: list[SubmittedOut]


class ProgressOut(msgspec.Struct):
    """The last progress a task told."""

    done: float
    total: float | None
    note: str


class UsageOut(msgspec.Struct):
    """What the calls of all runs of a task consumed. Those whose answer did not state it are not counted."""

    calls: int
    input_tokens: int
    """Everything read; the next two are parts of it."""
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    """Everything written; the next one is a part of it."""
    reasoning_tokens: int


class TaskOut(msgspec.Struct):
    """Where a task is and how far it has come."""

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
    """When it is or was due to become ready, as planned when it began to wait."""
    held_until_at: float | None
    """Until when it is kept back after that; null: it is not."""
    held_by: str | None
    """What keeps it back: its upstream's `gate`, or the retry budget of its `upstream` or of the `system`."""
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
    """Tasks, the newest first."""

    tasks: list[TaskOut]
    next: str | None
    """Send it as `after` for the next page; null: this is the last."""


class ErrorOut(msgspec.Struct):
    """Why a task did not succeed."""

    reason: str
    error_class: str
    message: str


class UnstorableOut(msgspec.Struct):
    """What a task returned could not be stored. It succeeded; its body ran once."""

    type: str
    """Of what it returned."""
    reason: str
    """Why it could not be stored."""


class TaskResult(msgspec.Struct):
    """The end of a task, or where it is until then."""

    task_id: str
    state: str
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    error: ErrorOut | None = None
    unstorable: UnstorableOut | None = None
    """Set where there was a result that could not be stored; `result` is null then."""


class RunOut(msgspec.Struct):
    """One run of a task, or one act of a person on it."""

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
    """Operators and admins only; empty for others."""


class HistoryOut(msgspec.Struct):
    """Every run and act of a task, oldest first."""

    history: list[RunOut]


class ActionOut(msgspec.Struct):
    """What an act did to one task."""

    task_id: str
    answer: str


class ActionsOut(msgspec.Struct):
    """What an act did to each of several tasks, in the order given."""

    tasks: list[ActionOut]


class DeadLetterOut(msgspec.Struct):
    """One dead letter. Its arguments are not shown: they may hold secrets."""

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
    """Dead letters, the latest failure first."""

    dead_letters: list[DeadLetterOut]
    next: str | None


class FunctionOut(msgspec.Struct):
    """A task function that may be submitted."""

    name: str
    queue: str
    priority: Priority
    signature: str
    doc: str
    arguments: dict[str, Any]
    """JSON Schema of what `args` takes."""


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
    """In words, with the time where it is known."""
    tasks: int


class DrainOut(msgspec.Struct):
    """An estimate of when the ready and paced tasks of a queue will have run."""

    kind: str
    """`seconds`; `unknown` without any history; `never` where none finished in ten minutes."""
    seconds: float | None


class QueueOut(msgspec.Struct):
    """One queue at a glance."""

    queue: str
    ready: int
    """May start as soon as a worker has a free slot."""
    paced: int
    """Wait for their slots of a rate, token or in-flight limit."""
    blocked: int
    """Cannot run: their gate is parked, a long window is used up, or no live worker runs them."""
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
    """The queues that hold a task or finished one in the last ten minutes, by name."""

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
    """Since its last beat, where it should have beaten again by now."""
    version: str
    application: str
    """As `MODULE:NAME`; empty: unknown."""


class WorkersOut(msgspec.Struct):
    """The pool processes that are not retired, or still hold runs."""

    workers: list[WorkerOut]


class AuditOut(msgspec.Struct):
    """One change on record."""

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
    """The record of changes, the newest first."""

    entries: list[AuditOut]
    next: str | None


class HealthOut(msgspec.Struct):
    """Whether the process lives, or is ready."""

    status: str


class FieldError(msgspec.Struct):
    """One fault of a request."""

    at: str
    detail: str


class ProblemDetails(msgspec.Struct):
    """Why a request was refused (RFC 9457). Some kinds have further members."""

    type: str
    """Address of a page on this kind of problem; its last part never changes."""
    title: str
    status: int
    detail: str
    code: str = ""
    """Of the Tidegate error behind it, if one is."""
    errors: list[FieldError] = []
