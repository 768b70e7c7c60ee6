"""Build the values of the contract from stored columns that several operations read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidegate.domain.failure import LastFailure, Reason, Verdict
from tidegate.domain.moments import to_datetime
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.redaction import redact
from tidegate.domain.spec import Priority
from tidegate.limits.admission import Admission
from tidegate.store.rows import ClaimedTask, CrashPolicy, DeadLetterRow, Orphan, WorkerRow

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
    """Return a task claimed now, from its stored columns and from what the limits grant it."""
    (
        task_id, run, function, queue, priority, upstream, tenant, args, codec_tag, attempts, parks, crashes,
        losses, releases, rules, enqueued_at, ready_at, first_started_at, parked_at, paused, deadline_at,
        timeout_seconds, total_timeout_seconds, max_attempts, labels, last_failure,
    ) = row  # fmt: skip
    return ClaimedTask(
        fence=Fence(format_id(task_id), run + 1),
        function=function,
        queue=queue,
        priority=PRIORITIES[priority],
        upstream=upstream,
        tenant=tenant,
        args=args,
        codec_tag=codec_tag,
        counters=build_counters(attempts, parks, crashes, losses, releases, rules) if run else _NO_COUNTERS,
        enqueued_at=enqueued_at,
        ready_at=ready_at,
        claimed_at=now,
        spent_seconds=_spent(now, first_started_at, parked_at, paused),
        deadline_at=deadline_at,
        timeout_seconds=timeout_seconds,
        total_timeout_seconds=total_timeout_seconds,
        max_attempts=max_attempts,
        labels=decode_labels(labels) if labels else _NO_LABELS,
        wait_seconds=admitted.wait_seconds,
        is_probe=admitted.is_probe,
        last_failure=last_failure_of(last_failure) if last_failure else None,
    )


def build_worker_row(row: Sequence[Any]) -> WorkerRow:
    """Return a worker from its stored columns."""
    worker_id, name, pool, host, pid, queues, slots, *moments, running, version, application = row
    started_at, heartbeat_at, expires_at, retired_at = moments
    return WorkerRow(
        id=worker_id,
        name=name,
        pool=pool,
        host=host,
        pid=pid,
        queues=msgspec.json.decode(queues, type=tuple[str, ...]),
        slots=slots,
        started_at=started_at,
        heartbeat_at=heartbeat_at,
        expires_at=expires_at,
        retired_at=retired_at,
        running=running,
        version=version,
        application=application,
    )


def build_orphan(row: Sequence[Any], format_id: FormatId) -> Orphan:
    """Return a run whose worker is retired, with everything maintenance needs to decide what follows."""
    (
        task_id, run, worker_id, function, queue, started_at, crash_limit, base, cap, attempts, parks,
        crashes, losses, releases, rules, lost, why, cancel_requested, culprit, upstream,
    ) = row  # fmt: skip
    return Orphan(
        fence=Fence(format_id(task_id), run),
        worker_id=worker_id,
        function=function,
        queue=queue,
        started_at=started_at,
        crash_policy=CrashPolicy(crash_limit, base, cap),
        counters=build_counters(attempts, parks, crashes, losses, releases, rules),
        is_loss=bool(lost),
        why=why,
        cancel_requested=bool(cancel_requested),
        is_culprit=None if culprit is None else bool(culprit),
        upstream=upstream,
    )


def build_dead_letter(row: Sequence[Any], format_id: FormatId) -> DeadLetterRow:
    """Return a dead task with what a person needs to decide about it."""
    (
        task_id, function, queue, tenant, args, codec_tag, reason, error_class, message, failed_at,
        redriven_at, redrives, run, attempts, parks, crashes, losses, releases, rules, labels,
    ) = row  # fmt: skip
    return DeadLetterRow(
        task_id=format_id(task_id),
        function=function,
        queue=queue,
        tenant=tenant,
        args=args,
        codec_tag=codec_tag,
        reason=reason,
        error_class=error_class,
        message=redact(message),
        failed_at=failed_at,
        redriven_at=redriven_at,
        redrives=redrives,
        run=run,
        counters=build_counters(attempts, parks, crashes, losses, releases, rules),
        labels=decode_labels(labels),
    )


def last_failure_of(stored: str) -> LastFailure:
    """Return the failure that a claim read; a value that only a newer version knows counts as unknown."""
    verdict, reason, message, run, at = msgspec.json.decode(stored, type=tuple[str, str, str, int, float])
    return LastFailure(
        Reason(reason) if reason in _REASONS else Reason.UNKNOWN,
        Verdict(verdict) if verdict in _VERDICTS else Verdict.UNKNOWN,
        redact(message),
        run,
        to_datetime(at),
    )


def _spent(now: float, first_started_at: float | None, parked_at: float | None, paused: float) -> float:
    """Return the seconds since the first start, without the time it waited for an upstream."""
    if first_started_at is None:
        return 0.0
    until = now if parked_at is None else parked_at
    return max(0.0, until - first_started_at - paused)
