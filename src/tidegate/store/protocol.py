"""The store contract: operations on batches. One conformance suite tests them on every back end.

Each method is one transaction unless its docstring says otherwise. A caller may repeat it with the same ids:
if the result of a COMMIT was lost, the second call returns the true result. The store's clock decides;
callers pass durations. Every method raises `StoreUnavailableError` or `StoreBusyError` when the store cannot
be reached, and otherwise only the errors its docstring names. SQL errors are always wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tidegate.domain.failure import CallFailure
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.domain.spec import Priority
from tidegate.limits.settings import LimitDeclaration, Limits
from tidegate.limits.values import CallSlot, Gate, GateRow, ObservedLimit, PermitRecord
from tidegate.policy.backlog import UnservedReason
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.rows import (
    ActionStatus,
    CancelRequest,
    CancelStatus,
    ClaimRequest,
    ClaimResult,
    DeadLetterRow,
    EnqueueResult,
    HistoryRow,
    NewTask,
    NewWorker,
    Orphan,
    ProgressUpdate,
    QueueStats,
    ReaperPass,
    RetryBudgetRow,
    StoredResult,
    TaskFilter,
    TaskRow,
    UpstreamRow,
    WorkerRow,
)
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk, StreamHead


class Lifecycle(Protocol):
    """Open and close the store, and manage its schema."""

    async def open(self) -> None:
        """Connect and check the schema. Raise SchemaError if it does not fit this version. Safe to repeat."""

    async def count_newer_migrations(self) -> int:
        """Check the schema; return how many of its migrations this version does not know.

        Usually 0. It is more during a rolling deploy, when newer code has migrated the schema and this
        version can still work with it.

        Raises:
            SchemaError: The schema is older than this version, or a newer migration has made it incompatible.
        """

    async def close(self) -> None:
        """Finish running calls and close all connections. Safe to repeat, and safe without `open`."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations applied. Two may run at once."""

    async def now(self) -> float:
        """Return the store's clock. It never goes backwards within one process."""

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since the last return, or after `timeout_seconds`.

        The result is a hint. A change between two calls makes the second call return at once. The method may
        return without a change. If it misses a change, it returns after `timeout_seconds`.
        """

    async def check_integrity(self) -> list[str]:
        """Check the store's integrity; return a description of each problem."""


class Tasks(Protocol):
    """What clients do: enqueue, read and cancel tasks."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store these tasks, all or none (5,000 at most); return one result per task, in the same order.

        A task whose id is already stored is not stored twice. Its result is the first one, `created=True`, so
        that a client that resends after a lost result does not mistake its own task for another's. If another
        task holds the key or unique name, the result has the id of that task. If several tasks of one call
        have the same key, the first is stored and the others get its id. A new task is `ready`, or
        `scheduled` if it is due later, with or without a tenant.

        Raises:
            KeyConflictError: A key is taken by a task with another fingerprint. Nothing was stored.
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

        Keys are compared here, by the rules of `enqueue`. Safe to repeat. `release_batches` moves the rows to
        the main queue in small transactions, so that other writers do not wait long.

        Raises:
            KeyConflictError: As `enqueue`. The batch is dropped.
        """

    async def drop_batch(self, batch_id: str) -> None:
        """Delete an uncommitted batch and its tasks."""

    async def read_tasks(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        """Return the rows of the tasks that exist, by id, from one snapshot."""

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


class Work(Protocol):
    """What pool processes do: claim and finish tasks, and save progress."""

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim up to `request.slots` ready tasks: each gets run + 1 and a `running` row of this worker.

        Reserved shares come first, then priorities. Within a priority, tasks are ordered by rank across the
        served queues (with `is_strict`, by the listed order of queues), then by id. The claim never reads
        tasks that are not due, whose channel is blocked, or whose function is unknown. A retired worker gets
        no tasks.

        The claim charges the limits of each task's upstream and function; each task comes with the wait until
        its slot. Tasks that a gate or a limit holds back are skipped and charged nothing.

        Not safe to repeat when the result is unknown: `find_lost_claims` finds the tasks of such a claim.
        """

    async def find_lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        """Return the runs that the store has for this worker and that are not among `known`.

        They come from a claim whose result was lost. The worker releases them.
        """

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        """Write the outcomes of these runs in one transaction; return a status per outcome, in order.

        `done`: written now. `already`: this outcome was written before. `fenced`: the run is no longer the
        current one, and nothing was written. If the task's cancel was requested, a Retrying or Released
        outcome ends it as cancelled. Each outcome except success adds a history row, a dead one adds a dead
        letter, and every outcome adds to the roll-up of its minute.
        """

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        """Store the latest progress of these runs; return the fences that are no longer current."""

    async def list_cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        """Return this worker's runs whose cancel was requested."""


class Streams(Protocol):
    """What running tasks emit. A stream ends when its task is final, and is deleted with the task."""

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        """Store what these runs emitted; return the fences that are no longer current.

        Chunks are numbered within the task, in order of run and position. A chunk whose position is stored
        already is a resend and changes nothing. Readers see all chunks of one call at once.
        """

    async def read_stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        """Return the state of each task that exists and the last number of its stream, from one snapshot.

        When the state is final and a reader has the last chunk, no more chunks follow, unless a person
        redrives the task.
        """

    async def read_chunks(
        self, after: Mapping[str, int], *, limit: int = 100, max_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        """Return up to `limit` chunks of each task that follow the given numbers, in order.

        Args:
            after: For each task id, the number of the last chunk the reader has; 0 to start.
            limit: Most chunks per task.
            max_bytes: Size at which the read stops, after the chunk that reaches it. Tasks are read in the
                given order: the first that has chunks gets at least one, later ones may get none.
        """


class Workers(Protocol):
    """Worker rows and their leases. A worker has one lease for all its tasks."""

    async def add_worker(self, worker: NewWorker) -> None:
        """Register a pool process. Its lease starts now."""

    async def extend_leases(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """Extend these leases to `lease_seconds` from now; return the ids that are retired or unknown."""

    async def list_workers(self) -> list[WorkerRow]:
        """Return all workers that are not retired, and retired ones that still have runs."""

    async def retire_worker(
        self,
        worker_id: str,
        *,
        why: str,
        is_loss: bool,
        only_if_expired: bool,
        culprit: Fence | None = None,
    ) -> bool:
        """Retire a worker for good; return whether it is retired now.

        A retired worker can no longer claim tasks or extend its lease. Its runs become orphans. A late finish
        of an orphan is accepted until the reaper has requeued it.

        Args:
            worker_id: The worker's id.
            why: How the worker ended, for the task history.
            is_loss: Whether its lease ran out; False if its process was seen to die.
            only_if_expired: Whether to change nothing while the lease has not run out by the store's clock.
            culprit: The run that is known to have ended the worker; None if unknown.
        """

    async def list_orphans(self, limit: int = 500) -> list[Orphan]:
        """Return at most `limit` runs whose worker is retired, oldest first."""

    async def record_reaper_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        """Record a pass of a reaper, and restore the worker rows that runs refer to and that are missing.

        The lease of a restored row starts now. A live worker extends it; otherwise the worker is reaped like
        any other. The write waits for the same locks as a heartbeat.
        """

    async def delete_retired_workers(self, older_than_seconds: float) -> int:
        """Delete workers without runs that were retired that long ago; return how many."""


class Maintenance(Protocol):
    """Maintenance operations. All machines may run them at the same time."""

    async def promote(self, limit: int = 500) -> int:
        """Move up to `limit` due tasks from scheduled and retrying to ready; return how many were due.

        A task keeps the rank it got when it began to wait. A re-run that spends retry budget needs budget of
        its upstream and of the system. Without budget it is postponed; postponed tasks are spread over time.
        Tasks of an upstream whose gate is parked are postponed too. After a gate has opened, tasks that began
        to wait before that leave early, as far as the budgets and the server's own waits allow.
        """

    async def release_batches(self, limit: int = 5_000) -> int:
        """Move up to `limit` tasks of committed batches to their queues; return how many were moved."""

    async def delete_expired(
        self, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000
    ) -> int:
        """Delete expired rows, at most `limit` of each kind; return how many were deleted.

        These are expired keys, counters older than 90 days, audit entries older than a year, uncommitted
        batches older than a day, final tasks older than `finished_seconds` and dead letters older than
        `dead_seconds`, each with everything that belongs to it.
        """

    async def checkpoint(self) -> None:
        """Do the back end's own upkeep (SQLite: checkpoint the write-ahead log)."""


class Upstreams(Protocol):
    """Gates, limits and retry budgets, shared by all processes.

    The claim charges limits: each claimed task has a slot of every limit of its upstream and its function.
    `finish` reports to the gates how runs ended. `promote` charges the retry budgets.
    """

    async def declare_limits(self, declared: Sequence[LimitDeclaration]) -> list[GateRow]:
        """Store the limits that an application declares; return the rows now in force, in the given order.

        The latest declaration counts, except for limits that a person set (`Limits.set_by_person`).
        """

    async def list_gates(self) -> list[GateRow]:
        """Return every stored gate: those of upstreams, limited functions and the system."""

    async def list_upstreams(self) -> list[UpstreamRow]:
        """Return every upstream with its counts of waiting and running tasks, by name."""

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        """Give an upstream other limits, at once and for all processes; return whether the upstream exists.

        The limits named in `limits.set_by_person` stay when an application declares others.
        """

    async def park_gate(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        """Park an upstream's gate by hand; return whether the upstream exists.

        It stays parked for `seconds`; None: until a person opens it.
        """

    async def open_gate(self, upstream: str) -> bool:
        """Open an upstream's gate by hand; return whether the upstream exists."""

    async def request_probe(self, upstream: str) -> bool:
        """Let the next task of a parked upstream run as a probe; return whether the upstream exists."""

    async def acquire_slot(
        self,
        upstream: str,
        *,
        max_wait_seconds: float,
        permit_record: PermitRecord | None = None,
        on_last_attempt: bool = False,
    ) -> CallSlot:
        """Charge one call that no claim charged: a run's second call, or a call outside any task.

        If the slot is granted, the call may start after the slot's wait. If not, nothing is charged. An
        unknown upstream has no limits. Not safe to repeat: if the result is lost, the slot is lost too.

        Args:
            upstream: Its name, or that of a key's gate.
            max_wait_seconds: How long the call may wait.
            permit_record: The permit to store in the same transaction if the upstream limits calls in flight.
                None if the call's run is already counted.
            on_last_attempt: Whether a failure would use up the task's last attempt. Such a call probes a gate
                only if a probe has been due for long.
        """

    async def release_permits(self, permit_ids: Sequence[str]) -> None:
        """Stop counting these calls as in flight. Safe to repeat; unknown ids are ignored."""

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        """Extend these permits to at least `seconds` from now. A released permit is not restored."""

    async def report_failure(self, upstream: str, call_failure: CallFailure) -> Gate:
        """Apply a call's failure to the gate of its upstream; return the gate."""

    async def report_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        """Apply a probe that did not fail because of its upstream to the gate. Safe to repeat.

        Args:
            upstream: Its name, or that of a key's gate.
            is_good: Whether the upstream answered: the gate opens. If not, the next call may probe.
            seconds: How many seconds ago the probe began.
        """

    async def report_success(self, upstream: str) -> None:
        """Apply a successful call to its upstream's gate, which forgets its failures. Safe to repeat.

        Use it for calls that no finished run reports. Nothing is written if the gate has no failures.
        """

    async def report_limits(self, upstream: str, observed: Sequence[ObservedLimit]) -> GateRow | None:
        """Store the limits that responses of an upstream showed; return its gate, None if it is unknown.

        Safe to repeat, in any order: of two responses the one to the later call counts.
        """

    async def list_retry_budgets(self) -> list[RetryBudgetRow]:
        """Return the retry budgets, the system's first, then those of upstreams by name."""


class DeadLetters(Protocol):
    """What people do with dead tasks."""

    async def list_dead_letters(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetterRow]:
        """Return at most `limit` dead letters, latest failure first, starting after the id `after`."""

    async def count_dead_letters(self, task_filter: TaskFilter) -> int:
        """Return how many dead letters match."""

    async def redrive(
        self, task_ids: Sequence[str], *, args: Mapping[str, tuple[bytes, str]] | None = None
    ) -> dict[str, ActionStatus]:
        """Send dead tasks back to the main queue; return a status per id.

        Counters restart at zero, the history stays, and the run number continues to rise. An expired deadline
        of the caller is extended by its first length. `args` replaces payloads: {id: (bytes, codec tag)}.
        """

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        """Delete dead tasks for good, with payload and history; return a status per id."""


class Statistics(Protocol):
    """Counts that never scan finished tasks."""

    async def get_queue_stats(self, unserved: UnservedReason | None = None) -> list[QueueStats]:
        """Return each queue that has a task or finished one in the last ten minutes, by name.

        Args:
            unserved: Finds ready tasks that no live worker can run; they count as blocked. None: not checked.
        """

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        """Store what an application declares (functions, pools), for processes that cannot import it."""

    async def load_manifests(self) -> dict[str, dict[str, Any]]:
        """Return the stored manifests by application."""


class Access(Protocol):
    """Access tokens for the HTTP API, and the audit log of what their users changed."""

    async def add_token(self, token: NewToken) -> None:
        """Store a token's digest with the rights it grants."""

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """Return the token with this digest; None if it does not exist, has expired or was revoked."""

    async def list_tokens(self) -> list[TokenRow]:
        """Return all tokens, oldest first, including expired and revoked ones."""

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token for good; return whether one with this id exists. Safe to repeat."""

    async def add_audit_entries(self, entries: Sequence[NewAuditEntry]) -> None:
        """Store audit entries, all or none. A resent entry, recognised by its id, is skipped."""

    async def list_audit_entries(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return at most `limit` audit entries, newest first, starting after the id `after`."""


class Store(
    Lifecycle,
    Tasks,
    Work,
    Streams,
    Workers,
    Maintenance,
    Upstreams,
    DeadLetters,
    Statistics,
    Access,
    Protocol,
):
    """The whole contract: what a back end implements."""
