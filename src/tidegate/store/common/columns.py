"""Build the values of the contract from the rows of statements.

A class here has a field for each column of a statement, with the same name and in the same order in both back
ends; `tests/store/test_store_columns.py` compares them with the SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from tidegate.domain.failure import LastFailure, Reason, Verdict
from tidegate.domain.moments import to_datetime
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.redaction import redact
from tidegate.domain.spec import Priority
from tidegate.limits.admission import Admission
from tidegate.store.orphans import Orphan
from tidegate.store.rows import ClaimedTask, CrashPolicy, DeadLetterRow
from tidegate.store.worker_rows import WorkerRow

PRIORITIES = tuple(Priority)
"""Priorities by their stored number."""

FormatId = Callable[[Any], str]
"""Converts an id from the back end's stored form to text."""

INTERRUPTIONS = "(interrupted)"
"""The name under which interrupted runs are counted among attempts by retry rule; no rule has this name."""

_NO_COUNTERS = Counters()
_REASONS, _VERDICTS = frozenset(Reason), frozenset(Verdict)
_FREE = Admission()
_NO_LABELS: dict[str, str] = {}


def decode_labels(stored: str | None) -> dict[str, str]:
    """Return a task's labels from their JSON."""
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def decode_rule_counts(stored: str | None) -> dict[str, int]:
    """Return the charged attempts by retry rule, and `INTERRUPTIONS`, from their JSON."""
    return msgspec.json.decode(stored, type=dict[str, int]) if stored else {}


class StoredClaim(NamedTuple):
    """A ready task, as `claim` reads it."""

    task_id: Any
    run: int
    function: str
    queue: str
    priority: int
    upstream: str
    tenant: str
    args: bytes
    codec_tag: str
    attempts: int
    parks: int
    crashes: int
    losses: int
    releases: int
    rule_attempts: str | None
    enqueued_at: float
    ready_at: float
    first_started_at: float | None
    parked_at: float | None
    paused_seconds: float
    deadline_at: float | None
    timeout_seconds: float | None
    total_timeout_seconds: float | None
    max_attempts: int | None
    labels: str | None
    last_failure: str | None


class StoredWorker(NamedTuple):
    """A worker, as `list_workers` reads it."""

    id: str
    name: str
    pool: str
    host: str
    pid: int
    queues: str
    slots: int
    started_at: float
    heartbeat_at: float
    expires_at: float
    retired_at: float | None
    running: int
    version: str
    application: str
    code: str
    most_slots: int


class StoredOrphan(NamedTuple):
    """A run whose worker is retired, as `list_orphans` reads it."""

    task_id: Any
    run: int
    worker_id: str
    function: str
    queue: str
    started_at: float
    crash_limit: int
    crash_base_seconds: float
    crash_max_seconds: float
    attempts: int
    parks: int
    crashes: int
    losses: int
    releases: int
    rule_attempts: str | None
    lost: bool | int
    retired_why: str
    cancel_requested: bool | int
    is_culprit: bool | int | None
    upstream: str


class StoredDeadLetter(NamedTuple):
    """A dead task, as `list_dead_letters` reads it."""

    task_id: Any
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
    attempts: int
    parks: int
    crashes: int
    losses: int
    releases: int
    rule_attempts: str | None
    labels: str | None
    fingerprint: str | None


class _CountedRow(Protocol):
    @property
    def attempts(self) -> int: ...
    @property
    def parks(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def losses(self) -> int: ...
    @property
    def releases(self) -> int: ...
    @property
    def rule_attempts(self) -> str | None: ...


def counters_of(row: _CountedRow) -> Counters:
    """Return a task's counters."""
    return build_counters(row.attempts, row.parks, row.crashes, row.losses, row.releases, row.rule_attempts)


def build_counters(
    attempts: int, parks: int, crashes: int, losses: int, releases: int, rules: str | None
) -> Counters:
    """Return a task's counters."""
    by_name = decode_rule_counts(rules)
    interruptions = by_name.pop(INTERRUPTIONS, 0)
    by_rule = tuple(sorted(by_name.items()))
    return Counters(attempts, parks, crashes, losses, releases, by_rule, interruptions)


def build_claimed_task(
    row: Sequence[Any], now: float, format_id: FormatId, admitted: Admission = _FREE
) -> ClaimedTask:
    """Return a task claimed now, from its stored columns and from the slot that the limits grant it."""
    # The row is a plain tuple with the fields of `StoredClaim`: reading 26 fields by name costs a third more.
    (
        task_id, run, function, queue, priority, upstream, tenant, args, codec_tag, attempts, parks, crashes,
        losses, releases, rules, enqueued_at, ready_at, first_started_at, parked_at, paused, deadline_at,
        timeout_seconds, total_timeout_seconds, max_attempts, labels, last_failure,
    ) = row  # fmt: skip
    # The arguments are in the order of the fields, for the same reason.
    return ClaimedTask(
        Fence(format_id(task_id), run + 1),
        function,
        queue,
        PRIORITIES[priority],
        upstream,
        tenant,
        args,
        codec_tag,
        build_counters(attempts, parks, crashes, losses, releases, rules) if run else _NO_COUNTERS,
        enqueued_at,
        ready_at,
        now,
        0.0 if first_started_at is None else _spent(now, first_started_at, parked_at, paused),
        deadline_at,
        total_timeout_seconds,
        timeout_seconds,
        max_attempts,
        decode_labels(labels) if labels else _NO_LABELS,
        admitted.wait_seconds,
        admitted.is_probe,
        last_failure_of(last_failure) if last_failure else None,
        admitted.charged,
    )


def build_worker_row(row: StoredWorker) -> WorkerRow:
    """Return a worker."""
    queues = msgspec.json.decode(row.queues, type=tuple[str, ...])
    return WorkerRow(**{**row._asdict(), "queues": queues})


def build_orphan(row: StoredOrphan, format_id: FormatId) -> Orphan:
    """Return a run whose worker is retired, with everything maintenance needs to decide what follows."""
    return Orphan(
        fence=Fence(format_id(row.task_id), row.run),
        worker_id=row.worker_id,
        function=row.function,
        queue=row.queue,
        started_at=row.started_at,
        crash_policy=CrashPolicy(row.crash_limit, row.crash_base_seconds, row.crash_max_seconds),
        counters=counters_of(row),
        is_loss=bool(row.lost),
        why=row.retired_why,
        cancel_requested=bool(row.cancel_requested),
        is_culprit=None if row.is_culprit is None else bool(row.is_culprit),
        upstream=row.upstream,
    )


def build_dead_letter(row: StoredDeadLetter, format_id: FormatId) -> DeadLetterRow:
    """Return a dead task with the fields that a person needs to decide about it."""
    return DeadLetterRow(
        task_id=format_id(row.task_id),
        function=row.function,
        queue=row.queue,
        tenant=row.tenant,
        args=row.args,
        codec_tag=row.codec_tag,
        reason=row.reason,
        error_class=row.error_class,
        message=redact(row.message),
        failed_at=row.failed_at,
        redriven_at=row.redriven_at,
        redrives=row.redrives,
        run=row.run,
        counters=counters_of(row),
        labels=decode_labels(row.labels),
        fingerprint=row.fingerprint,
    )


def last_failure_of(stored: str) -> LastFailure:
    """Return the failure that a claim read.

    The verdict and reason are unknown if only a newer version knows them.
    """
    verdict, reason, message, run, at = msgspec.json.decode(stored, type=tuple[str, str, str, int, float])
    return LastFailure(
        Reason(reason) if reason in _REASONS else Reason.UNKNOWN,
        Verdict(verdict) if verdict in _VERDICTS else Verdict.UNKNOWN,
        redact(message),
        run,
        to_datetime(at),
    )


def _spent(now: float, first_started_at: float | None, parked_at: float | None, paused: float) -> float:
    """Return the seconds since the task's first start, without the time it waited for an upstream."""
    if first_started_at is None:
        return 0.0
    until = now if parked_at is None else parked_at
    return max(0.0, until - first_started_at - paused)
