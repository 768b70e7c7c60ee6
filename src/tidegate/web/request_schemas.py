"""Types of request bodies. Ids are strings."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tidegate.domain.spec import Priority

_WORDS = [priority.word for priority in Priority]

AskedPriority = Annotated[
    Any,
    msgspec.Meta(
        description="The priority, most urgent first. Default: that of the function, otherwise `normal`.",
        extra_json_schema={"type": ["string", "null"], "enum": [*_WORDS, None]},
    ),
]
"""The priority. Any JSON value is decoded, so that the refusal can list the valid priorities."""
Duration = Annotated[
    Any,
    msgspec.Meta(
        description="Seconds, or a string such as `90s`, `15m`, `1h`, `7d`.",
        extra_json_schema={"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
    ),
]


class SubmitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One task to enqueue."""

    task: str
    """The name of the task function: `module:function`, or only the part after the colon if it is unique."""
    args: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """The arguments: an object (by name) or an array (by position)."""
    key: str | None = None
    """The idempotency key: for 7 days, a submit with the same key and payload returns the same task. A single
    submit may send it in the Idempotency-Key header instead."""
    unique: str | None = None
    """`until_final`, or a time such as `1h`. Until then, a second task with this function and arguments is
    refused."""
    delay_seconds: Duration = None
    """The time until the task is due."""
    run_at: str | None = None
    """When to run the task: ISO 8601 with an offset."""
    deadline_seconds: Duration = None
    """End the task after this time from now, even if it is still waiting."""
    deadline_at: str | None = None
    """The deadline as ISO 8601 with an offset, instead of `deadline_seconds`."""
    labels: dict[str, str] | None = None
    """Labels: a few names and values by which the task can be found."""
    after: list[str] | None = None
    """Ids of tasks that must succeed before this one may run."""
    on_failure: str | None = None
    """What happens if one of them dies or is cancelled: `wait` (the default), `cancel` or `run`."""
    on_final: str | None = None
    """The name of a task function of which a task is enqueued when this task succeeds, dies or is cancelled.
    Its argument describes the end of this task."""
    queue: str | None = None
    """The queue. For operators and admins only, like the next four fields."""
    priority: AskedPriority = None
    timeout_seconds: Duration = None
    """The time limit of one attempt."""
    total_timeout_seconds: Duration = None
    """The time limit of all runs, counted from the first start; waits for an upstream do not count."""
    max_attempts: int | None = None
    """The most charged attempts before the task is dead."""


class SendEventRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An event for the tasks that wait for it."""

    name: str
    """1 to 200 characters, such as `order:123:paid`."""
    data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    """What the tasks get: any JSON value."""
    key: str | None = None
    """Makes the request safe to repeat: while an event is kept, another with the same name and key changes
    nothing."""
    keep_seconds: Duration = None
    """How long it is kept for tasks that begin to wait later. Default: 7 days."""
    tenant: str | None = None
    """The tenant whose tasks get it. Default: the token's tenant, else tasks without a tenant."""


class SubmitManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The tasks to enqueue: all or none."""

    tasks: list[msgspec.Raw]
    """The tasks, each as in a single submit."""


class CancelTaskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to cancel a task."""

    why: str = ""
    """A reason, kept in the task's history."""
    force: bool = False
    """Do not wait for a function that ignores the request to stop."""


class TaskIdsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The tasks of a bulk action."""

    task_ids: list[str]
    """Task ids, or their first digits."""


class MarkFailureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A mark on a group of failures."""

    note: str = ""
    """The reason, for the next person."""


class MuteFailureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A group of failures to mute."""

    note: str = ""
    """The reason, for the next person."""
    seconds: float | None = None
    """How long the mute lasts; null: for ever."""


class PauseQueueRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to pause or resume."""

    queue: str
    why: str = ""
    """The reason, shown wherever the pause is shown."""


class PauseFunctionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A task function to pause or resume."""

    function: str
    """The full name: `module:function`."""
    why: str = ""
    """The reason, shown wherever the pause is shown."""


class WorkerRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A worker, or one of its processes."""

    worker: str
    """The name of a worker, or the id of one process."""
    why: str = ""


class ReloadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The workers whose processes restart."""

    worker: str | None = None
    """The name of a worker; null for all workers."""
    why: str = ""


class SetPoolRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new concurrency for a pool."""

    pool: str
    concurrency: int | None
    """How many tasks each process runs at once; null for the number in the code."""
    why: str = ""


class RateLimitRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new rate limit for a task function."""

    function: str
    """The full name: `module:function`."""
    rate: str
    """The limit, such as `80/min`; `none` for no limit, `code` for the limit in the code."""
    why: str = ""


class ScheduleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A schedule to add."""

    task: str
    """The name of the task function: `module:function`, or only the part after the colon if it is unique."""
    when: str
    """Five fields of cron, a word such as `@daily`, or an interval such as `every 30s`."""
    name: str | None = None
    """The schedule's name, without a slash. Default: the function's."""
    args: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    """The arguments of each task: an object (by name) or an array (by position)."""
    timezone: str | None = None
    """The IANA time zone of a cron rule. Default: `UTC`."""
    catch_up: str | None = None
    """`none`, `one` (the default) or `all`: what happens to missed ticks."""
    catch_up_limit: int | None = None
    """With `all`: the most missed ticks that fire. Default: 100."""
    catch_up_window: Duration = None
    """With `all`: the greatest age of missed ticks that fire. Default: `1d`."""
    overlap: str | None = None
    """`skip` (the default), `queue` or `allow`: what happens while a task of an earlier tick is not final."""
    not_later_than: Duration = None
    """A tick that is later than this is skipped. Default: no limit."""
    queue: str | None = None
    priority: AskedPriority = None
    tenant: str | None = None
    """The tenant that the tasks are for."""
    timeout_seconds: Duration = None
    """The time limit of one attempt."""
    total_timeout_seconds: Duration = None
    """The time limit of all runs, counted from the first start."""
    deadline_seconds: Duration = None
    """End each task after this time from its enqueue, even if it is still waiting."""
    max_attempts: int | None = None
    labels: dict[str, str] | None = None


class ScheduleChangeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Changes to a schedule. A field that is left out or null stays the same."""

    when: str | None = None
    """The new cron expression or interval. The next tick is then the first one from now."""
    args: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    """The new arguments, which replace all present ones."""
    timezone: str | None = None
    catch_up: str | None = None
    catch_up_limit: int | None = None
    catch_up_window: Duration = None
    overlap: str | None = None
    not_later_than: Duration = None
    """The new limit; `none` removes the limit."""
    queue: str | None = None
    priority: AskedPriority = None
    tenant: str | None = None
    timeout_seconds: Duration = None
    total_timeout_seconds: Duration = None
    deadline_seconds: Duration = None
    max_attempts: int | None = None
    labels: dict[str, str] | None = None
