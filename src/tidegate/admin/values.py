"""What `app.admin` returns. Moments are datetimes in UTC, by the store's clock; durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tidegate.domain.moments import to_datetime, to_datetime_or_none
from tidegate.domain.states import State
from tidegate.limits.options import facts
from tidegate.limits.pauses import Pause, PauseKind
from tidegate.limits.values import GateState, ParkedBy
from tidegate.operations.upstreams import describe_upstream, tasks_before
from tidegate.policy.backlog import WaitReason
from tidegate.policy.drain import Drain
from tidegate.store.live_workers import is_live, late_seconds
from tidegate.store.rows import DeadLetterRow, QueueStats, StoredResult, TaskRow
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow
from tidegate.store.worker_rows import WorkerRow


@dataclass(frozen=True, slots=True)
class PauseStatus:
    """A queue or task function whose tasks do not start until someone resumes it."""

    kind: PauseKind
    """`queue` or `function`."""
    name: str
    paused_at: datetime
    paused_by: str
    """Who paused it."""
    why: str


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Counts of one queue's tasks, and when the queue will be empty."""

    queue: str
    ready: int
    """How many tasks may start as soon as a worker has a free slot."""
    paced: int
    """How many tasks wait for a rate, token or in-flight limit; not counted in `ready`."""
    blocked: int
    """How many tasks wait for something else, such as a closed gate; not counted in `ready` or `paced`."""
    running: int
    retrying: int
    scheduled: int
    held: int
    suspended: int
    dead: int
    oldest_ready_at: datetime | None
    """When the oldest ready task that is not blocked became ready."""
    done_last_minute: int
    """How many tasks reached a final state in the last 60 seconds."""
    done_last_10_minutes: int
    waits: tuple[WaitReason, ...]
    """Why tasks are paced or blocked."""
    drain: Drain
    """Estimated time until the ready and paced tasks have run."""
    pause: PauseStatus | None = None
    """The pause of the queue; None if it is not paused."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker process."""

    worker_id: str
    """The id of the process; each start of the process gets a new one."""
    name: str
    pool: str
    host: str
    pid: int
    queues: tuple[str, ...]
    """The queues that the process serves; `("*",)` for all."""
    slots: int
    """The most tasks that the process runs at once."""
    running: int
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    """When its lease ends, unless the process sends another heartbeat."""
    retired_at: datetime | None
    is_live: bool
    """Whether the process is not retired and its lease is valid."""
    late_seconds: float | None
    """Seconds since the last heartbeat if the next one is overdue; otherwise None."""
    version: str
    application: str
    """The application as `MODULE:NAME`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead task. The task's arguments may be private and are left out."""

    task_id: str
    function: str
    queue: str
    tenant: str | None
    reason: str
    """The reason of the failure, a value of `Reason`."""
    error_class: str
    """The dotted name of the exception class; empty if there was no exception."""
    message: str
    failed_at: datetime
    run: int
    """The number of the last run."""
    attempts: int
    """How many runs were charged."""
    redrives: int
    redriven_at: datetime | None
    labels: Mapping[str, str]
    fingerprint: str | None = None
    """The fingerprint of the failure, as in its `FailureGroup`. None for a moment after an upgrade."""


@dataclass(frozen=True, slots=True)
class ProviderLimit:
    """One limit of a provider, as response headers show it."""

    dimension: str
    """What the limit counts: `requests`, `tokens`, `input_tokens`, `output_tokens`."""
    limit: float | None
    window_seconds: float | None
    """The period over which the provider counts, in seconds; None if unknown."""
    remaining: float | None
    seen_at: datetime
    opens_at: datetime | None
    """If too little is left, the moment before which no call starts; otherwise None."""


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """One upstream: its gate, its limits, and the tasks that wait for it."""

    name: str
    gate: GateState
    parked_by: ParkedBy | None
    """Who or what parked the gate; None if it is open."""
    reason: str
    """The reason of the failure that parked the gate, or of the last failure."""
    message: str
    since_at: datetime | None
    """When the gate entered this state; None if it has never changed."""
    until_at: datetime | None
    """When a parked gate opens by itself; None if it does not."""
    next_probe_at: datetime | None
    """When one task may next try a parked gate; None if no task may."""
    description: str
    """A sentence about the gate's state, or why its tasks are blocked."""
    limits: Mapping[str, float]
    """The limits that are set, by the names of the parameters of `app.upstream(…)`."""
    limits_set_by_person: tuple[str, ...]
    """The limits that a person has set. Such limits override the code until they follow it again."""
    provider_limits: tuple[ProviderLimit, ...]
    in_flight: int
    """How many calls are in flight: each run counts as one; further parallel calls and calls outside runs are
    added."""
    ready: int
    paced: int
    blocked: int
    retrying: int


@dataclass(frozen=True, slots=True)
class RetryBudgetStatus:
    """One retry budget in its present window."""

    upstream: str | None
    """The upstream; None for the budget of the whole system."""
    amount: float
    """How many re-runs the budget allows in a window."""
    window_seconds: float
    used: int
    """How many re-runs started since `used_since_at`."""
    used_since_at: datetime
    held: int
    """How many due tasks wait because this budget is used up."""
    next_at: datetime
    """When the next re-run may start."""


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """Why a task does not run."""

    task_id: str
    state: State
    reasons: tuple[str, ...]
    """The reasons as sentences, the most important first."""


def queue_status(row: QueueStats) -> QueueStatus:
    """Return the public form of a queue's counts."""
    return QueueStatus(
        queue=row.queue,
        ready=row.ready,
        paced=row.paced,
        blocked=row.blocked,
        running=row.running,
        retrying=row.retrying,
        scheduled=row.scheduled,
        held=row.held,
        suspended=row.suspended,
        dead=row.dead,
        oldest_ready_at=to_datetime_or_none(row.oldest_ready_at),
        done_last_minute=row.done_last_minute,
        done_last_10_minutes=row.done_last_10_minutes,
        waits=row.waits,
        drain=row.drain,
        pause=None if row.pause is None else pause_status(row.pause),
    )


def pause_status(row: Pause) -> PauseStatus:
    """Return the public form of a pause."""
    return PauseStatus(row.kind, row.name, to_datetime(row.paused_at), row.paused_by, row.why)


def worker_status(row: WorkerRow, now: float) -> WorkerStatus:
    """Return the public form of a worker's row."""
    return WorkerStatus(
        worker_id=row.id,
        name=row.name,
        pool=row.pool,
        host=row.host,
        pid=row.pid,
        queues=row.queues,
        slots=row.slots,
        running=row.running,
        started_at=to_datetime(row.started_at),
        heartbeat_at=to_datetime(row.heartbeat_at),
        expires_at=to_datetime(row.expires_at),
        retired_at=to_datetime_or_none(row.retired_at),
        is_live=is_live(row, now),
        late_seconds=late_seconds(row, now),
        version=row.version,
        application=row.application,
    )


def dead_letter(row: DeadLetterRow) -> DeadLetter:
    """Return the public form of a dead letter's row."""
    return DeadLetter(
        task_id=row.task_id,
        function=row.function,
        queue=row.queue,
        tenant=row.tenant or None,
        reason=row.reason,
        error_class=row.error_class,
        message=row.message,
        failed_at=to_datetime(row.failed_at),
        run=row.run,
        attempts=row.counters.attempts,
        redrives=row.redrives,
        redriven_at=to_datetime_or_none(row.redriven_at),
        labels=row.labels,
        fingerprint=row.fingerprint,
    )


def dead_letter_of_task(row: TaskRow, result: StoredResult | None) -> DeadLetter:
    """Return the public form of a dead task's row.

    Args:
        row: The row.
        result: The fields that the row lacks: the class of the error, and the fingerprint.
    """
    return DeadLetter(
        task_id=row.id,
        function=row.function,
        queue=row.queue,
        tenant=row.tenant or None,
        reason=row.reason,
        error_class="" if result is None else result.error_class,
        message=row.message,
        failed_at=to_datetime(row.finished_at or row.enqueued_at),
        run=row.run,
        attempts=row.counters.attempts,
        redrives=row.redrives,
        redriven_at=to_datetime_or_none(row.redriven_at),
        labels=row.labels,
        fingerprint=None if result is None else result.fingerprint,
    )


def upstream_status(row: UpstreamRow, now: float) -> UpstreamStatus:
    """Return the public form of an upstream's row."""
    gate = row.gate
    return UpstreamStatus(
        name=row.name,
        gate=gate.state,
        parked_by=gate.parked_by,
        reason=gate.reason,
        message=gate.message,
        since_at=to_datetime_or_none(gate.since_at or None),
        until_at=to_datetime_or_none(gate.until_at),
        next_probe_at=to_datetime_or_none(gate.probe_at),
        description=describe_upstream(row, now),
        limits=facts(row.limits),
        limits_set_by_person=row.limits.set_by_person,
        provider_limits=tuple(
            ProviderLimit(
                dimension=learned.dimension.value,
                limit=learned.limit,
                window_seconds=learned.window_seconds,
                remaining=learned.remaining,
                seen_at=to_datetime(learned.seen_at),
                opens_at=to_datetime_or_none(learned.opens_at),
            )
            for learned in gate.learned_limits
        ),
        in_flight=row.in_flight,
        **tasks_before(row),
        retrying=row.retrying,
    )


def retry_budget_status(row: RetryBudgetRow) -> RetryBudgetStatus:
    """Return the public form of a retry budget's row."""
    return RetryBudgetStatus(
        upstream=row.name or None,
        amount=row.amount,
        window_seconds=row.window_seconds,
        used=row.used,
        used_since_at=to_datetime(row.used_since_at),
        held=row.held,
        next_at=to_datetime(row.next_at),
    )
