"""The values that cross the store contract. Both back ends answer in these, so both answer alike.

Moments are seconds since the epoch by the store's clock (`…_at`); durations are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from tidegate.domain.failure import LastFailure
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals
from tidegate.limits.admission import Block
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import Gate
from tidegate.policy.backlog import WaitReason

# --- enqueue ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTask:
    """One task to be stored. Its id is made by the client, so that a resend is recognised."""

    id: str
    """UUIDv7 as text."""
    function: str
    queue: str
    priority: Priority
    args: bytes
    codec_tag: str
    fingerprint: bytes = b""
    """Of function and arguments; compared when a key is met again."""
    upstream: str = ""
    tenant: str = ""
    key: str | None = None
    """Idempotency key: the first task of (tenant, key) answers for `key_seconds`, whatever its state."""
    key_seconds: float = 7 * 86_400.0
    unique: str | None = None
    """Uniqueness name; free again at the final state or after `unique_seconds`."""
    unique_seconds: float | None = None
    """None: until the final state."""
    delay_seconds: float = 0.0
    run_at: float | None = None
    """An instant the caller named; wins over `delay_seconds`. In the past: due at once."""
    total_timeout_seconds: float | None = None
    """Overrides the task function's own total timeout; infinite for none."""
    deadline_seconds: float | None = None
    """From the enqueue; nothing stops it."""
    deadline_at: float | None = None
    """A moment the caller named; wins over `deadline_seconds`."""
    timeout_seconds: float | None = None
    """Overrides the task function's own timeout."""
    max_attempts: int | None = None
    """Overrides the task function's own number."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The answer to one `NewTask`."""

    task_id: str
    """The stored task: the given id, or that of the task which holds the key."""
    created: bool
    """False: another task was there before (same key or unique name). True for one sent again, by its id."""


# --- claim and run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """What the steward must know of a running task to bury or retry it without the user's code."""

    crash_limit: int = 3
    base_seconds: float = 10.0
    """Wait after the first crash; doubled each time, at most `max_seconds`."""
    max_seconds: float = 600.0
    max_attempts: int = 3
    """Charged attempts, unless the task has a number of its own: a held gate is not tried by the last one."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What one pool process asks for in one claim."""

    worker_id: str
    slots: int
    """At most this many tasks; > 0."""
    queues: tuple[str, ...]
    """Served queues in listed order; `("*",)` for all."""
    functions: Mapping[str, CrashPolicy]
    """Functions this process knows. Others are left for workers that know them."""
    is_strict: bool = False
    """True: queues in listed order; False: by rank across queues."""
    reserved: Mapping[Priority, int] = field(default_factory=dict)
    """Slots of this claim kept for lower priorities that have waited for their share."""


class ClaimedTask(NamedTuple):
    """A task this worker now runs. A tuple, since thousands a second are made of rows."""

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
    """When it became runnable: the wait a user feels is claim time minus this."""
    claimed_at: float
    spent_seconds: float
    """Since its first start, parks and suspensions left out; 0 on the first run."""
    deadline_at: float | None = None
    """Only where the caller or the function named a deadline."""
    total_timeout_seconds: float | None = None
    """Only where the caller named one; infinite for none."""
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    wait_seconds: float = 0.0
    """Its slot of the upstream's or function's limit is so far ahead; it starts then."""
    is_probe: bool = False
    """It tries whether a held upstream works again: never charged."""
    last_failure: LastFailure | None = None
    """Why an earlier run failed, the latest that did; None on the first run."""


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The answer to a claim."""

    tasks: tuple[ClaimedTask, ...]
    is_alive: bool = True
    """False: the worker's row is retired. It must stop; its runs may have been taken up by others."""
    next_claim_seconds: float | None = None
    """Limits left tasks behind, and by then more may be taken; None: nothing waits for a limit's time."""


class CancelRequest(NamedTuple):
    """A person's wish that a running task stops."""

    fence: Fence
    force: bool = False
    """Do not wait for the body to listen."""


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """How far a run has come; the last one stays readable after the end."""

    fence: Fence
    done: float
    total: float | None
    note: str = ""


# --- workers ---------------------------------------------------------------------------------------------


REAPER_WORKER_ID = "00000000-0000-0000-0000-000000000000"
"""The id of the row by which reapers know of each other's passes; no worker has it."""
EMBEDDED_WORKER_NAME = "embedded"
"""The name of every worker inside another process."""


@dataclass(frozen=True, slots=True)
class NewWorker:
    """One pool process, about to start."""

    id: str
    """Incarnation: a fresh UUID for each process start, never a name that can come back."""
    name: str
    pool: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    lease_seconds: float
    version: str = ""
    application: str = ""
    """The reference under which its manifest is kept; empty: it keeps none."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One pool process as the store knows it."""

    id: str
    name: str
    pool: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    started_at: float
    heartbeat_at: float
    expires_at: float
    retired_at: float | None
    running: int
    version: str = ""
    application: str = ""
    """The reference under which its manifest is kept; empty: unknown."""


class ReaperPass(NamedTuple):
    """A look of a reaper, as the store wrote it down."""

    at: float
    """When, by the store's clock."""
    since_at: float
    """Since when such looks, by any reaper, have followed each other without a gap."""
    restored_workers: tuple[str, ...] = ()
    """Workers that held runs without a row, and have one again."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A run whose worker is retired: to be decided by the steward, without the user's code."""

    fence: Fence
    worker_id: str
    function: str
    queue: str
    started_at: float
    crash_policy: CrashPolicy
    counters: Counters
    is_loss: bool
    """True: its lease ran out (machine or supervisor lost). False: its process was seen dead."""
    why: str
    """How the worker ended: `killed by signal 9`, `lease ran out`."""
    cancel_requested: bool
    is_culprit: bool | None = None
    """Whether this run is known to have caused the end; None: nobody knows which did."""
    upstream: str = ""
    """Which it may have been calling; empty for none."""


# --- reading ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskRow:
    """Everything the store knows of one task but payload and result, from one snapshot."""

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
    """When it is or was due to become ready; of one that waits, the moment planned when it began to."""
    started_at: float | None
    """Of the present or last run."""
    finished_at: float | None
    worker_id: str | None
    cancel_requested: bool
    reason: str
    """Of the last failure; empty if none."""
    message: str
    """Of the last failure, or why it waits."""
    progress_done: float | None = None
    progress_total: float | None = None
    progress_note: str = ""
    key: str | None = None
    max_attempts: int | None = None
    deadline_at: float | None = None
    redriven_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    usage: UsageTotals | None = None
    """What the calls of all its runs consumed; None: no answer of one stated it."""
    held_until_at: float | None = None
    """Of one that is kept back after its planned moment: until then; None where nothing keeps it."""
    held_by: str = ""
    """What keeps it back: `gate` of its upstream, retry budget of its `upstream` or of the `system`."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The final state of a task and, if it succeeded, its result."""

    state: State
    data: bytes
    """Encoded; empty unless succeeded. `b"null"` for None."""
    codec_tag: str
    reason: str = ""
    error_class: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run of a task, or one act of a person on it, in time order."""

    kind: str
    """`run` for runs; else `enqueued`, `redriven`, `cancel requested`, `priority changed`, `run now`."""
    at: float
    """Start of the run, or moment of the act."""
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
    """Why it goes on as it does, in words."""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks; every given field must match."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    function: str | None = None
    tenant: str | None = None
    reason: str | None = None
    error_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    before: float | None = None
    """Dead letters: failed before this moment. Others: enqueued before it."""

    @property
    def is_empty(self) -> bool:
        """Whether it matches everything."""
        return self == TaskFilter()


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One dead task, with what a person needs to judge it."""

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


class CancelStatus(StrEnum):
    """What a cancel did to one task."""

    CANCELLED = "cancelled"
    """It was not running; it never will."""
    REQUESTED = "asked"
    """It runs; its body is asked to stop, and no further run starts."""
    FINISHED = "finished"
    """It was final before."""
    UNKNOWN = "unknown"


class ActionStatus(StrEnum):
    """What another act by id (redrive, run_now, re-rank) did to one task."""

    DONE = "done"
    REFUSED = "refused"
    """Its state forbids it."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at a glance. Counts are of tasks."""

    queue: str
    ready: int = 0
    """May start as soon as a worker has a free slot."""
    paced: int = 0
    """Wait for their slots of a rate, token or in-flight limit; never part of `ready`."""
    blocked: int = 0
    """Cannot run at any pace; never part of `ready` or `paced`."""
    running: int = 0
    retrying: int = 0
    scheduled: int = 0
    held: int = 0
    suspended: int = 0
    dead: int = 0
    oldest_ready_at: float | None = None
    """When the longest-waiting task became ready that is not blocked."""
    done_last_minute: int = 0
    """Tasks that reached a final state in the last 60 seconds; of the minute before this one, its share."""
    done_last_10_minutes: int = 0
    history_seconds: float = 0.0
    """How far back completions of this queue are known, at most 600; 0: it never finished any."""
    limited: int = 0
    """Of the ready and paced tasks, those that a rate limit counts."""
    limited_seconds: float = 0.0
    """Until the last of those may start at the rate of their limits, which other queues may share."""
    waits: tuple[WaitReason, ...] = ()
    """Why tasks are paced or blocked, in words."""


# --- upstreams -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpstreamRow:
    """One upstream: its limits, its gate as of now, and what stands before it."""

    name: str
    limits: Limits
    gate: Gate
    block: Block | None
    """Why its tasks are blocked; None if they flow."""
    in_flight: int
    """Runs under way, and calls that no run stands for."""
    ready: int
    """Tasks in the main queue: blocked ones if `block` is set."""
    retrying: int
    paced: int = 0
    """Of `ready`, those that wait for a slot of its limits."""
    waits_for: str = ""
    """What the paced ones wait for, in words."""


@dataclass(frozen=True, slots=True)
class RetryBudgetRow:
    """One retry budget in its present window."""

    kind: GateKind
    name: str
    """Of the upstream; empty for the system's."""
    amount: float
    """Re-runs it allows in a window."""
    window_seconds: float
    used: int
    """Re-runs that left since `used_since_at`. Windows of the count follow each other edge to edge, while the
    pace is kept in every window, wherever it begins: so this is no measure of what may go now."""
    held: int
    """Due tasks that it keeps in the retry queue."""
    next_at: float
    """When the next re-run may go."""
    used_since_at: float = 0.0
