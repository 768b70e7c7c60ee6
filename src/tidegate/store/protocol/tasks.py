"""The part of the store contract for clients and people: tasks, dead letters and counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from tidegate.domain.spec import Priority
from tidegate.policy.backlog import UnservedReason
from tidegate.policy.surge import Window
from tidegate.policy.work import Work
from tidegate.store.alert_rows import NewNotice
from tidegate.store.failure_rows import FailureMark, MarkKind, UnknownFailureRow
from tidegate.store.history_rows import (
    DeathCountRow,
    FailureGroupRow,
    HistoryRange,
    StatisticsRow,
    TenantStatisticsRow,
    TotalCounts,
    WindowCounts,
)
from tidegate.store.operation_rows import PLAIN_REDRIVE, Payloads, RedriveTerms
from tidegate.store.overview_rows import MonitoringRow, OverviewRow, TopRow
from tidegate.store.rows import (
    ActionStatus,
    CancelStatus,
    DeadLetterRow,
    EnqueueResult,
    HistoryRow,
    NewTask,
    QueueStats,
    StoredResult,
    TaskFilter,
    TaskRow,
)


class Tasks(Protocol):
    """What clients do: enqueue, read and cancel tasks."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store these tasks, all or none (5,000 at most); return one result per task, in the same order.

        A task whose id is already stored is not stored twice. The result of a resend is the same as the first
        time, `created=True`. So a client that resends after a lost result does not mistake its own task for
        another's. If another task holds the key or unique name, the result has the id of that task. If
        several tasks of one call have the same key, the first is stored and the others get its id. A new task
        is `ready`, or `scheduled` if it is due later, with or without a tenant.

        Raises:
            KeyConflictError: A task with another fingerprint holds a key. Nothing was stored.
        """

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store any number of tasks in the transaction that is open on the caller's async connection.

        The tasks exist once the caller commits. The results are those of `enqueue`. Errors of the connection
        are raised unchanged.

        Raises:
            OptionError: This kind of connection is not supported, or this store cannot join transactions.
            ConfigError: The connection leads to another database, or its role may not enqueue.
            KeyConflictError: As `enqueue`. The caller's transaction can continue; no task was stored.
        """

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Do what `enqueue_within` does, on a blocking connection."""

    async def enqueue_part(self, batch_id: str, tasks: Sequence[NewTask]) -> None:
        """Store one part of a larger enqueue (5,000 tasks at most), invisible until `commit_batch`."""

    async def commit_batch(self, batch_id: str) -> dict[str, str]:
        """Make all tasks of a batch visible; return {own id: id of the holder} where a key was taken.

        Keys are compared now, by the rules of `enqueue`. Safe to repeat. `release_batches` moves the rows to
        the main queue in small transactions, so that other writers do not wait long.

        Raises:
            KeyConflictError: As `enqueue`. The batch is dropped.
        """

    async def drop_batch(self, batch_id: str) -> None:
        """Delete an uncommitted batch and its tasks."""

    async def read_tasks(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        """Return the rows of those tasks that exist, as a mapping by id, from one snapshot."""

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        """Return the first `limit` task ids from `least` to `largest`, in order; only of `tenant`, if set."""

    async def get_result(self, task_id: str) -> StoredResult | None:
        """Return the result of a final task; None if it is not final.

        Raises:
            TaskNotFoundError: There is no such task.
        """

    async def get_payload(self, task_id: str) -> tuple[bytes, str]:
        """Return a task's encoded arguments and their codec tag.

        Raises:
            TaskNotFoundError: There is no such task.
        """

    async def get_history(self, task_id: str) -> list[HistoryRow]:
        """Return every run and action of a task, oldest first; empty if there is no such task."""

    async def list_tasks(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        """Return at most `limit` tasks, newest first, starting after the id `after`.

        The next page starts after an id, not at an offset.
        """

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelStatus]:
        """Cancel tasks in any state; return a status per id.

        A running task is asked to stop and never runs again. With `force` its worker does not wait for the
        function to stop by itself. A second call may add `force`.
        """

    async def reprioritise(self, task_ids: Sequence[str], priority: Priority) -> dict[str, ActionStatus]:
        """Give waiting or ready tasks another priority; their rank does not change."""

    async def run_now(self, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        """Make scheduled and retrying tasks ready now."""


class DeadLetters(Protocol):
    """What people do with dead tasks."""

    async def list_dead_letters(
        self,
        task_filter: TaskFilter,
        *,
        after: str | None = None,
        after_failed_at: float | None = None,
        limit: int = 50,
    ) -> list[DeadLetterRow]:
        """Return at most `limit` dead letters, latest failure first, starting after the id `after`.

        If that letter may have been redriven or purged since, also give the moment at which it failed.
        """

    async def find_fingerprints(self, digits: str, *, limit: int = 2) -> list[str]:
        """Return the known fingerprints that begin with these digits, in order."""

    async def count_dead_letters(self, task_filter: TaskFilter, *, in_doubt: bool = False) -> int:
        """Return how many dead letters match.

        With `in_doubt`, only those that `find_letters_in_doubt` finds.
        """

    async def redrive(
        self,
        task_ids: Sequence[str],
        *,
        args: Payloads | None = None,
        terms: RedriveTerms = PLAIN_REDRIVE,
    ) -> dict[str, ActionStatus]:
        """Send dead tasks back to the main queue; return a status per id.

        Counters restart at zero unless `terms` keeps the attempts. The history stays, and the run number
        continues to rise. An expired deadline that the caller set is moved to now plus its first length.
        `args` replaces payloads. No operation is recorded; `redrive_now` and `send_letters` record one.
        """

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        """Delete dead tasks for good, with payload and history; return a status per id."""


class Statistics(Protocol):
    """Counts that never scan finished tasks."""

    async def count_deaths(
        self,
        which: HistoryRange,
        *,
        step_minutes: int,
        error_class: str | None = None,
        fingerprint: str | None = None,
        tenant: str | None = None,
    ) -> list[DeathCountRow]:
        """Return how many tasks died, grouped by period, queue, function and reason, oldest first.

        A death is counted when it happens. A redrive, a purge and retention do not change the count. Deaths
        are not counted by tenant. If a tenant is given, its tasks that are still dead are counted.

        Args:
            which: The time, and the deaths that count.
            step_minutes: Length of a period: 1, 60 or 1,440. Deaths older than two days are counted by the
                hour, and older than 35 days by the day.
            error_class: Only deaths with this class of exception.
            fingerprint: Only deaths with this fingerprint.
            tenant: Only dead letters of this tenant.
        """

    async def list_failure_groups(
        self,
        which: HistoryRange,
        *,
        limit: int = 50,
        error_class: str | None = None,
        fingerprint: str | None = None,
        tenant: str | None = None,
    ) -> list[FailureGroupRow]:
        """Return the deaths grouped by fingerprint, the largest group first.

        Deaths are not counted by tenant. If a tenant is given, its tasks that are still dead are grouped.
        """

    async def mark_failure(
        self,
        fingerprint: str,
        kind: MarkKind,
        *,
        by: str,
        note: str = "",
        seconds: float | None = None,
    ) -> None:
        """Mark a group of failures, in place of an earlier mark. A group is not both resolved and muted.

        Args:
            fingerprint: The group.
            kind: The mark.
            by: Who sets it.
            note: Why.
            seconds: How long the mark holds; None: for good.
        """

    async def unmark_failure(self, fingerprint: str, kinds: Sequence[MarkKind]) -> bool:
        """Remove marks of a group; return whether it had one of them."""

    async def list_failure_marks(self, fingerprint: str | None = None) -> list[FailureMark]:
        """Return all marks, or those of one group, each with the last death of its group."""

    async def list_unknown_failures(
        self, since: float, until: float, *, function: str | None = None
    ) -> list[UnknownFailureRow]:
        """Return the failed attempts that no rule classified, by fingerprint, the largest group first.

        Attempts of all stored tasks count, even of tasks that succeeded later.
        """

    async def is_day_reported(self, day: str) -> bool:
        """Return whether the daily summary of a day was reported."""

    async def claim_daily_summary(
        self, day: str, *, keep_from: str, notices: Sequence[NewNotice] = ()
    ) -> bool:
        """Store the messages about a day, unless another process has; return whether this one did.

        The records of days before `keep_from` are deleted.
        """

    async def counted_since(self) -> int | None:
        """Return the first minute (counted from the epoch) that has counters; None if no minute has."""

    async def count_windows(
        self,
        windows: Sequence[Window],
        *,
        queue: str | None = None,
        function: str | None = None,
        reason: str | None = None,
        fingerprint: str | None = None,
    ) -> WindowCounts:
        """Return how many tasks died, and how many ended, in each range of minutes.

        Because of how counters are kept, ranges older than two days must consist of full hours, and no range
        may be older than 35 days. Ended tasks are chosen only by queue and function.
        """

    async def get_statistics(
        self,
        which: HistoryRange,
        *,
        step_minutes: int,
        apart: Collection[str] = ("queue", "function", "upstream"),
    ) -> list[StatisticsRow]:
        """Return counters of tasks and runs, grouped by period, queue, function and upstream, oldest first.

        A task counts as enqueued, cancelled or dead when that happens, and a run as started when it starts.
        Tokens and times count when the run ends. Redrives, purges and retention do not change the counters.

        Args:
            which: The time, and the tasks that count.
            step_minutes: Length of a period: 1, 60 or 1,440. Counters older than two days, and times older
                than six hours, are known only by the hour, and those older than 35 days only by the day.
                1,440 × 1,000,000 means one period for all of the time.
            apart: The names by which the result is grouped; the other names are empty in it.
        """

    async def get_tenant_statistics(
        self, which: HistoryRange, *, tenant: str | None = None, limit: int = 50
    ) -> list[TenantStatisticsRow]:
        """Return counters of tenants over the whole range, those with the most tasks first.

        Tenants are counted by the hour. Only the time of `which` is used.
        """

    async def get_totals(self) -> TotalCounts:
        """Return the counters of all tasks and runs since the store was made.

        No counter ever falls: redrives, purges and the retention of the history change nothing.
        """

    async def get_overview(self) -> OverviewRow:
        """Return the queues with their drain estimates, the upstreams and the workers, from one snapshot."""

    async def get_top(self, *, failures: int) -> TopRow:
        """Return the data of a live view, from one snapshot.

        Args:
            failures: How many of the newest dead letters, at most.
        """

    async def get_monitoring(self) -> MonitoringRow:
        """Return all data from which metrics are computed, in one snapshot."""

    async def get_work(self) -> Work:
        """Return the tasks that workers run or could run, with the gates and pauses that they meet."""

    async def get_queue_stats(self, unserved: UnservedReason | None = None) -> list[QueueStats]:
        """Return each queue that has a task, finished a task in the last ten minutes, or is paused, by name.

        Args:
            unserved: Finds ready tasks that no live worker can run; they count as blocked. None: not checked.
        """

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        """Store what an application declares (functions, pools), for processes that cannot import it."""

    async def load_manifests(self) -> dict[str, dict[str, Any]]:
        """Return the stored manifests by application."""
