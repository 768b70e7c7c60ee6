"""The values that the store contract takes and returns, the same on both back ends.

Moments are seconds since the epoch by the store's clock (`…_at`); durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tidegate.domain.failure import LastFailure
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.usage import Tokens, UsageTotals
from tidegate.limits.pauses import Pause
from tidegate.policy.backlog import WaitReason
from tidegate.policy.drain import EMPTY, Drain

# --- enqueue ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTask:
    """One task to store. The client makes its id, so that the store recognises a resend."""

    id: str
    """UUIDv7 as text."""
    function: str
    queue: str
    priority: Priority
    args: bytes
    codec_tag: str
    fingerprint: bytes = b""
    """A hash of function and arguments, compared when a key is used again."""
    upstream: str = ""
    tenant: str = ""
    key: str | None = None
    """Idempotency key: for `key_seconds`, a second enqueue of (tenant, key) returns the first task."""
    key_seconds: float = 7 * 86_400.0
    unique: str | None = None
    """Unique name: no second task can have it until this one is final or `unique_seconds` have passed."""
    unique_seconds: float | None = None
    """How long the unique name is held at most; None: until the task is final."""
    delay_seconds: float = 0.0
    run_at: float | None = None
    """A moment the caller named; overrides `delay_seconds`. A past moment makes the task due now."""
    total_timeout_seconds: float | None = None
    """Overrides the task function's own total timeout; infinity for no timeout."""
    deadline_seconds: float | None = None
    """Seconds from the enqueue. Waits and parks do not extend them."""
    deadline_at: float | None = None
    """A moment the caller named; overrides `deadline_seconds`."""
    timeout_seconds: float | None = None
    """Overrides the task function's own timeout."""
    max_attempts: int | None = None
    """Overrides the task function's own number."""
    labels: Mapping[str, str] = field(default_factory=dict)
    on_final: FinalHook | None = None
    """The task to enqueue when this task reaches a final state."""
    after: tuple[str, ...] = ()
    """Tasks that must succeed before this task is ready."""
    on_parent_failure: str = "wait"
    """What happens if one of them dies or is cancelled: `wait`, `cancel` or `run`."""


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The result for one `NewTask`."""

    task_id: str
    """The id of the stored task: the given id, or the id of the task that holds the key."""
    created: bool
    """False: another task already had the key or unique name. A resend of the same id gets True."""


# --- claim and run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """What maintenance needs to retry or dead-letter a crashed task without the user's code."""

    crash_limit: int = 3
    base_seconds: float = 10.0
    """Wait after the second crash, doubled each time, at most `max_seconds`. After the first crash there is
    no wait."""
    max_seconds: float = 600.0
    max_attempts: int = 3
    """Most charged attempts, unless the task has its own number. The last attempt does not probe a gate."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The parameters of one claim of a pool process."""

    worker_id: str
    slots: int
    """At most this many tasks; > 0."""
    queues: tuple[str, ...]
    """Served queues in listed order; `("*",)` for all."""
    functions: Mapping[str, CrashPolicy]
    """Functions this process knows. Tasks of other functions stay for workers that know them."""
    is_strict: bool = False
    """True: queues in listed order; False: by rank across queues."""
    reserved: Mapping[Priority, int] = field(default_factory=dict)
    """How many slots of this claim are reserved for each lower priority that is owed some of its share."""


class ClaimedTask(NamedTuple):
    """A task this worker now runs. The value is a tuple for speed: thousands a second are made from rows."""

    fence: Fence
    function: str
    queue: str
    priority: Priority
    upstream: str
    tenant: str
    args: bytes
    codec_tag: str
    counters: Counters
    enqueued_at: float
    ready_at: float
    """When the task became ready. The wait that a user notices is `claimed_at` minus this moment."""
    claimed_at: float
    spent_seconds: float
    """Seconds since the task's first start, without parks and suspensions; 0 on the first run."""
    deadline_at: float | None = None
    """None unless the caller or the function set a deadline."""
    total_timeout_seconds: float | None = None
    """None unless the caller set one; infinity for no timeout."""
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    wait_seconds: float = 0.0
    """Seconds until the rate-limit slot reserved for this task. The worker starts the task then."""
    is_probe: bool = False
    """Whether this run probes an upstream that did not work. A probe is never charged an attempt."""
    last_failure: LastFailure | None = None
    """The latest failure of an earlier run; None on the first run."""
    charged: Tokens | None = None
    """The tokens that the claim charged for the run's first call; None if no limit counts tokens."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The result of a claim."""

    tasks: tuple[ClaimedTask, ...]
    is_alive: bool = True
    """False: the worker's row is retired. The worker must stop; its runs may have been requeued."""
    next_claim_seconds: float | None = None
    """Seconds until a limit lets more tasks be claimed; None if no task waits for a limit."""


class CancelRequest(NamedTuple):
    """A person's request that a running task stops."""

    fence: Fence
    force: bool = False
    """Do not wait for the function to stop by itself."""


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """The progress of a run. The last update stays readable after the run ends."""

    fence: Fence
    done: float
    total: float | None
    note: str = ""


# --- reading ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Everything the store has on one task except payload and result, from one snapshot."""

    id: str
    function: str
    queue: str
    priority: Priority
    upstream: str
    tenant: str
    state: State
    run: int
    counters: Counters
    redrives: int
    enqueued_at: float
    due_at: float | None
    """When the task is or was due to become ready. For a waiting task this is the moment first planned."""
    started_at: float | None
    """Start of the current or last run."""
    finished_at: float | None
    worker_id: str | None
    cancel_requested: bool
    reason: str
    """Reason of the last failure; empty if there was none."""
    message: str
    """Message of the last failure, or why the task waits."""
    progress_done: float | None = None
    progress_total: float | None = None
    progress_note: str = ""
    key: str | None = None
    max_attempts: int | None = None
    deadline_at: float | None = None
    redriven_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    usage: UsageTotals | None = None
    """The tokens that the calls of all runs used; None if no response stated its usage."""
    held_until_at: float | None = None
    """Until when the task is held back after its planned moment; None if it is not held back."""
    held_by: str = ""
    """What holds the task back: its upstream's `gate`, or the retry budget of its `upstream` or of the
    `system`. `after`: a held task waits for other tasks."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The final state of a task and, if it succeeded, its result."""

    state: State
    data: bytes
    """The encoded result; empty unless the task succeeded. A result of None is `b"null"`."""
    codec_tag: str
    reason: str = ""
    error_class: str = ""
    message: str = ""
    fingerprint: str | None = None
    """The fingerprint of a dead task's failure; None for other tasks."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run of a task, or one action of a person on it."""

    kind: str
    """`run` for runs; for actions `enqueued`, `redriven`, `cancel requested`, `priority changed`, `run
    now`, `approved` or `rejected`."""
    at: float
    """Start of the run, or moment of the action."""
    run: int | None = None
    ended_at: float | None = None
    """None while the run lasts."""
    worker_id: str = ""
    outcome: str = ""
    """`succeeded`, `retrying`, `released`, `dead`, `cancelled`; empty while the run lasts."""
    verdict: str = ""
    reason: str = ""
    charge: str = ""
    error_class: str = ""
    message: str = ""
    traceback: str = ""
    status: int | None = None
    code: str = ""
    request_id: str = ""
    evidence: str = ""
    next_run_at: float | None = None
    why: str = ""
    """Why the task was retried, parked or ended, as text."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Selects tasks. Every field that is set must match."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    function: str | None = None
    tenant: str | None = None
    reason: str | None = None
    error_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    before: float | None = None
    """Dead letters must have failed before this moment, other tasks must have been enqueued before it."""
    fingerprint: str | None = None
    """Only dead letters have a fingerprint."""
    since: float | None = None
    """Dead letters must have failed at this moment or later."""

    @property
    def is_empty(self) -> bool:
        """Whether the filter matches every task."""
        return self == TaskFilter()


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One dead task, with the fields that a person needs to decide about it."""

    task_id: str
    function: str
    queue: str
    tenant: str
    args: bytes
    codec_tag: str
    reason: str
    error_class: str
    message: str
    failed_at: float
    redriven_at: float | None
    redrives: int
    run: int
    counters: Counters
    labels: Mapping[str, str]
    fingerprint: str | None = None
    """None if older code stored the letter and maintenance has not added the fingerprint yet."""


class CancelStatus(StrEnum):
    """The effect of a cancel on one task."""

    CANCELLED = "cancelled"
    """The task was not running, and will not run."""
    REQUESTED = "requested"
    """The task is running. The function of the task is asked to stop, and no further run starts."""
    FINISHED = "finished"
    """The task was final already."""
    UNKNOWN = "unknown"


class ActionStatus(StrEnum):
    """What another action (redrive, run now, reprioritise) did to one task."""

    DONE = "done"
    REFUSED = "refused"
    """The task's state does not allow it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts and estimates for one queue. Counts are of tasks."""

    queue: str
    ready: int = 0
    """Tasks that may start as soon as a worker has a free slot."""
    paced: int = 0
    """Tasks that wait for a slot of a rate, token or in-flight limit; not part of `ready`."""
    blocked: int = 0
    """Tasks that cannot run until something changes; not part of `ready` or `paced`."""
    running: int = 0
    retrying: int = 0
    scheduled: int = 0
    held: int = 0
    suspended: int = 0
    dead: int = 0
    oldest_ready_at: float | None = None
    """When the oldest ready task that is not blocked became ready."""
    enqueued_last_minute: int = 0
    """Tasks that were enqueued in the last 60 seconds. The previous minute counts in proportion."""
    done_last_minute: int = 0
    """Tasks that became final in the last 60 seconds, counted in the same way."""
    done_last_10_minutes: int = 0
    history_seconds: float = 0.0
    """Length of the period for which completions were counted, at most 600; 0 if there were none."""
    waits: tuple[WaitReason, ...] = ()
    """Why tasks are paced or blocked."""
    pause: Pause | None = None
    """The pause of this queue; None if it is not paused."""
    drain: Drain = EMPTY
    """When the ready and paced tasks will be done, and what limits this."""
