"""The store contract: whole-batch operations with meaning, held to one conformance suite on every back end.

Each method is one transaction unless it says otherwise, and is safe to repeat with the same ids: after
an unknown COMMIT a resend is answered truthfully. The store's clock decides everything; callers send
durations. Every method raises `StoreUnavailableError` or `StoreBusyError` when the store is away; nothing
else but what it names. SQL errors never leave the back end unwrapped.
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
    """Opening, closing and the schema."""

    async def open(self) -> None:
        """Connect and check the schema. Raise SchemaError if it does not fit this version. Safe to repeat."""

    async def count_newer_migrations(self) -> int:
        """Check the schema; return how many migrations it has that this version does not know.

        0 as a rule; more while newer code is rolled out beside this, and the schema lets this work on.

        Raises:
            SchemaError: It is older, or one of those migrations says that this version cannot work with it.
        """

    async def close(self) -> None:
        """Finish what is under way and let go of everything. Safe to repeat, and without `open`."""

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations applied. Two may run at once."""

    async def now(self) -> float:
        """Return the store's clock. It never goes backwards within one process."""

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Return when something may have been committed since the last return, or after `timeout_seconds`.

        A hint, level-triggered: a change between two calls makes the second return at once. Spurious
        returns are allowed; a missed one costs no more than the caller's own timeout.
        """

    async def check_integrity(self) -> list[str]:
        """Examine the store's integrity; return what is wrong in words, nothing if it is sound."""


class Tasks(Protocol):
    """What clients do: enqueue, read, cancel."""

    async def enqueue(self, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store these tasks, all or none (5,000 at most), and answer in their order.

        A task whose id is stored already is stored no second time and answered as the first time,
        `created=True`: who lost that answer and sends again must not take its own task for another's. One
        whose key or unique name another task has is answered with the holder's id. Within one call the
        first holder of a key wins, later ones get its id. Tasks of a tenant and tasks without one are
        stored alike: `ready`, or `scheduled` if due later.

        Raises:
            KeyConflictError: A key is taken by a task with another fingerprint. Nothing was stored.
        """

    async def enqueue_within(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """Store these tasks, however many, in the transaction open on an async connection of the caller's.

        They exist if and when that transaction is committed, and are answered as by `enqueue`. The
        connection's own errors pass through.

        Raises:
            OptionError: The connection is of no use for this, or this store cannot join transactions.
            ConfigError: It leads to another database, or its role may not enqueue.
            KeyConflictError: As `enqueue`; the transaction is whole, without the tasks.
        """

    def enqueue_within_sync(self, conn: Any, tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        """As `enqueue_within`, on a connection that blocks."""

    async def enqueue_part(self, batch_id: str, tasks: Sequence[NewTask]) -> None:
        """Store a part of a larger enqueue (5,000 at most) where nothing can see it yet."""

    async def commit_batch(self, batch_id: str) -> dict[str, str]:
        """Make a batch's tasks visible at once; return {staged id: holder's id} where a key was taken.

        Keys are settled here, by the rules of `enqueue`. Repeating it is harmless. The rows reach the
        main queue in short batches (`release_batches`), so that no other writer waits long.

        Raises:
            KeyConflictError: As `enqueue`. The stage is dropped.
        """

    async def drop_batch(self, batch_id: str) -> None:
        """Forget an uncommitted stage and its tasks."""

    async def read_tasks(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        """Return the rows of those ids that exist, from one snapshot."""

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        """Return the first task ids from `least` to `largest`, in order; of one tenant, if named."""

    async def get_result(self, task_id: str) -> StoredResult | None:
        """Return the result of a final task; None if it is not final.

        Raises:
            TaskNotFoundError: No such task.
        """

    async def get_payload(self, task_id: str) -> tuple[bytes, str]:
        """Return a task's encoded arguments and their codec tag.

        Raises:
            TaskNotFoundError: No such task.
        """

    async def get_history(self, task_id: str) -> list[HistoryRow]:
        """Return every run and act of a task, oldest first; empty if there is no such task."""

    async def list_tasks(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        """Return tasks newest first, `limit` at most, continuing after the id `after`.

        Paged by key, never by offset.
        """

    async def cancel(
        self, task_ids: Sequence[str], *, why: str = "", force: bool = False
    ) -> dict[str, CancelStatus]:
        """Cancel tasks wherever they are; answer per id. A running one is asked, and never runs again.

        With `force` its worker does not wait for the body to listen. Asking again may add force.
        """

    async def reprioritise(self, task_ids: Sequence[str], priority: Priority) -> dict[str, ActionStatus]:
        """Give waiting or ready tasks another priority; their rank stays."""

    async def run_now(self, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        """Make scheduled and retrying tasks ready now."""


class Work(Protocol):
    """What pool processes do: claim, finish, tell progress."""

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Take up to `request.slots` ready tasks: each gets run + 1 and a `running` row of this worker.

        Order: reserved shares first, then by priority; inside a priority by rank over the served queues
        (or by listed order with `strict`), ties by id. Rows that are not due, whose channel does not
        flow, or whose function is unknown are never looked at. A retired worker gets nothing.
        What its upstream's and function's limits let through is charged here: each task comes with the wait
        until its slot. What a gate or a limit keeps back is passed over at no cost.
        Not safe to repeat after an unknown outcome: `find_lost_claims` finds what such a claim took.
        """

    async def find_lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        """Return the runs this worker holds by the store's word that are not among `known`.

        They come from a claim whose answer was lost; the worker releases them.
        """

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        """Write how these runs ended, in one transaction; answer per outcome, in order.

        `done`: written now. `already`: this outcome was written before. `fenced`: the run is not the
        current one, nothing was written. A Retrying or Released outcome of a task whose cancel was
        requested ends it as cancelled instead. Every end but success leaves a history row; dead ones a
        dead letter; each adds to the minute's roll-up.
        """

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        """Keep the last progress of these runs; return the fences that are no longer current."""

    async def list_cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        """Return this worker's runs whose cancel was requested."""


class Streams(Protocol):
    """What running tasks emit. A stream is closed by its task's final state, and goes when the task goes."""

    async def append_chunks(self, new: Sequence[NewChunk]) -> list[Fence]:
        """Keep what these runs emitted; return the fences that are no longer current.

        Numbered within the task in order of run and place. A chunk whose place is taken is a resend and
        changes nothing. Readers see a call's chunks all at once.
        """

    async def read_stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        """Return where those tasks that exist are and how far their streams go, from one snapshot.

        A task whose head is final and whose chunks are read up to its last one has nothing more to tell
        (unless a person redrives it).
        """

    async def read_chunks(
        self, after: Mapping[str, int], *, limit: int = 100, max_bytes: int = CHUNKS_BYTES
    ) -> dict[str, list[StoredChunk]]:
        """Return up to `limit` chunks for each task, in order, that follow the given numbers.

        Args:
            after: By task id the number after which to go on; 0 for the start.
            limit: Chunks a task.
            max_bytes: Of all chunks together: none follows the one that reaches it. Tasks come in the order
                given, so the first one that has chunks gets one at least, and later ones may get none.
        """


class Workers(Protocol):
    """Leases: held by the worker's row, not by each task."""

    async def add_worker(self, worker: NewWorker) -> None:
        """Register a pool process; its lease runs from now."""

    async def extend_leases(self, worker_ids: Sequence[str], lease_seconds: float) -> set[str]:
        """Move these workers' leases to `lease_seconds` from now; return the retired or unknown ids."""

    async def list_workers(self) -> list[WorkerRow]:
        """Return all workers that are not retired, and retired ones that still hold runs."""

    async def retire_worker(
        self,
        worker_id: str,
        *,
        why: str,
        is_loss: bool,
        only_if_expired: bool,
        culprit: Fence | None = None,
    ) -> bool:
        """Retire a worker for good: it can no longer claim or beat. Return whether it is retired now.

        With `only_if_expired`, nothing happens while its lease still runs by the store's clock. Its runs
        become orphans; a late finish of one that nobody took up yet is still accepted. `culprit` is the run
        that is known to have caused its end, if one is.
        """

    async def list_orphans(self, limit: int = 500) -> list[Orphan]:
        """Return runs whose worker is retired, oldest first."""

    async def record_reaper_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        """Write down that a reaper passes, and give runs whose worker has no row the row of one again.

        Such a row has a lease from now: a worker that lives beats for it, one that does not is reaped as any
        other. The write waits as long as beats must wait.
        """

    async def delete_retired_workers(self, older_than_seconds: float) -> int:
        """Delete retired workers without runs that were retired so long ago; return how many."""


class Maintenance(Protocol):
    """Housekeeping, safe on every machine at once."""

    async def promote(self, limit: int = 500) -> int:
        """Move up to `limit` due tasks from scheduled and retrying to ready; return how many were due.

        Their rank is the one they were given when they began to wait. A re-run that spends retry budget
        goes only as far as the budgets of its upstream and of the system reach; others are put off, spread,
        and so are those of an upstream whose gate does not flow. After a gate has opened, what began to wait
        before leaves early, as far as the budgets and the server's own waits allow.
        """

    async def release_batches(self, limit: int = 5_000) -> int:
        """Move up to `limit` tasks of committed stages to where they belong; return how many were moved."""

    async def delete_expired(
        self, *, finished_seconds: float, dead_seconds: float, limit: int = 1_000
    ) -> int:
        """Delete what has served its time; return how many rows went, `limit` a kind at most.

        Expired keys, counters older than 90 days, audit entries older than a year, uncommitted stages
        older than a day, final tasks older than `finished_seconds` and dead letters older than
        `dead_seconds`, each with all that belongs to it.
        """

    async def checkpoint(self) -> None:
        """Do the back end's own upkeep (SQLite: fold the write-ahead log back)."""


class Upstreams(Protocol):
    """Gates, limits and retry budgets, shared by all processes.

    The claim charges them: a task that it hands out has its slot of every limit of its upstream and its
    function. `finish` tells gates how runs ended; `promote` keeps the budgets.
    """

    async def declare_limits(self, declared: Sequence[LimitDeclaration]) -> list[GateRow]:
        """Keep what an application declares of limits; return the rows that count, in the order given.

        The latest declaration counts, except for limits that a person set (`Limits.set_by_person`).
        """

    async def list_gates(self) -> list[GateRow]:
        """Return every gate as it is stored: of upstreams, limited functions and the system."""

    async def list_upstreams(self) -> list[UpstreamRow]:
        """Return every upstream with what stands before it, by name."""

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        """Give an upstream other limits, from now on and for all; tell whether it is known.

        Those that `limits.set_by_person` names are kept when an application declares others.
        """

    async def park_gate(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        """Park an upstream by hand, for some seconds or until it is opened; tell whether it is known."""

    async def open_gate(self, upstream: str) -> bool:
        """Open an upstream's gate by hand; tell whether it is known."""

    async def request_probe(self, upstream: str) -> bool:
        """Let the next task of a parked upstream try whether it works; tell whether it is known."""

    async def acquire_slot(
        self,
        upstream: str,
        *,
        max_wait_seconds: float,
        permit_record: PermitRecord | None = None,
        on_last_attempt: bool = False,
    ) -> CallSlot:
        """Charge one call that no claim charged: a run's second one, or one outside any task.

        Granted, the call may start after the slot's wait; else nothing is charged. An upstream that is not
        known has no limits. Not safe to repeat: an answer that is lost costs its slot.

        Args:
            upstream: Its name, or that of a key's gate.
            max_wait_seconds: How long the call may wait.
            permit_record: The permit to record where the upstream limits what is in flight, in the same
                transaction; None: the call's run stands for it.
            on_last_attempt: Whether a failure would cost its task the last attempt: it tries a held gate
                only once a probe has been due for long.
        """

    async def release_permits(self, permit_ids: Sequence[str]) -> None:
        """Count these calls as in flight no longer. Safe to repeat; unknown ids do no harm."""

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        """Let these permits expire no earlier than so long from now. One that is gone stays gone."""

    async def report_failure(self, upstream: str, call_failure: CallFailure) -> Gate:
        """Let a failure that a call met move its upstream's gate; return the gate."""

    async def report_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        """Let a call that tried a held upstream, and did not fail by it, move the gate. Safe to repeat.

        Args:
            upstream: Its name, or that of a key's gate.
            is_good: It was answered: the gate opens. Else it told nothing, and the next may try.
            seconds: How long ago it began.
        """

    async def report_success(self, upstream: str) -> None:
        """Let a call that went well clear what failures left in its upstream's gate. Safe to repeat.

        For calls that no end of a run stands for: nothing is written where no failure is kept.
        """

    async def report_limits(self, upstream: str, observed: Sequence[ObservedLimit]) -> GateRow | None:
        """Keep what answers showed of an upstream's limits; return its gate, None if it is not known.

        Safe to repeat, in any order: of two answers the one to the later call counts.
        """

    async def list_retry_budgets(self) -> list[RetryBudgetRow]:
        """Return the retry budgets, the system's first, then those of upstreams by name."""


class DeadLetters(Protocol):
    """What people do with dead tasks."""

    async def list_dead_letters(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetterRow]:
        """Return dead letters, the latest failure first, continuing after the id `after`."""

    async def count_dead_letters(self, task_filter: TaskFilter) -> int:
        """Return how many dead letters match."""

    async def redrive(
        self, task_ids: Sequence[str], *, args: Mapping[str, tuple[bytes, str]] | None = None
    ) -> dict[str, ActionStatus]:
        """Send dead letters back to the main queue; answer per id.

        Counters start anew, the history stays, the run goes on rising, an expired deadline named by the
        caller is renewed with its first length. `args` replaces payloads: {id: (bytes, codec tag)}.
        """

    async def purge(self, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
        """Delete dead letters for good, with payload and history."""


class Statistics(Protocol):
    """Counts that never scan what is finished."""

    async def get_queue_stats(self, unserved: UnservedReason | None = None) -> list[QueueStats]:
        """Return each queue that holds a task or finished one in the last ten minutes, by name.

        Args:
            unserved: Which ready tasks no live worker runs: they count as blocked. None: not judged.
        """

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        """Keep what an application declares (functions, pools), for those who cannot import it."""

    async def load_manifests(self) -> dict[str, dict[str, Any]]:
        """Return the kept manifests by application."""


class Access(Protocol):
    """Who may come in over HTTP, and the record of what they changed."""

    async def add_token(self, token: NewToken) -> None:
        """Keep a token's digest with what it lets people do."""

    async def find_token(self, digest: bytes) -> TokenRow | None:
        """Return the token with this digest; None if there is none, or it is expired or revoked."""

    async def list_tokens(self) -> list[TokenRow]:
        """Return all tokens that were ever made, the oldest first, expired and revoked ones too."""

    async def revoke_token(self, token_id: str) -> bool:
        """Make a token worthless for good; return whether there is one of this id. Safe to repeat."""

    async def add_audit_entries(self, entries: Sequence[NewAuditEntry]) -> None:
        """Put changes on record, all or none. An entry whose id is there already is a resend."""

    async def list_audit_entries(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        """Return the record, the newest first, continuing after the id `after`."""


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
    """All of it."""
