"""The part of the store contract for workers: runs, streams, leases and maintenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.store.orphans import Orphan, ReaperPass
from tidegate.store.rows import CancelRequest, ClaimRequest, ClaimResult, ProgressUpdate
from tidegate.store.streams import CHUNKS_BYTES, NewChunk, StoredChunk, StreamHead
from tidegate.store.worker_rows import NewWorker, WorkerRow


class Work(Protocol):
    """The methods of pool processes: claim and finish tasks, and save progress."""

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        """Claim up to `request.slots` ready tasks: each gets run + 1 and a `running` row for this worker.

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

        Such runs come from a claim whose reply was lost. The worker releases them.
        """

    async def finish(self, outcomes: Sequence[Outcome]) -> list[FinishStatus]:
        """Write the outcomes of these runs in one transaction; return a status per outcome, in order.

        `done`: written now. `already`: this outcome was written before. `fenced`: the run is no longer the
        current one, and nothing was written. If a cancel was requested, a Retrying or Released outcome makes
        the task cancelled, so that it does not run again. Each outcome except success adds a history row, a
        dead one adds a dead letter, and every outcome adds to the roll-up of its minute.
        """

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        """Store the latest progress of these runs; return the fences that are no longer current."""

    async def list_cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        """Return this worker's runs whose cancel was requested."""


class Streams(Protocol):
    """The chunks that running tasks emit.

    A stream ends when its task is final, and is deleted with the task.
    """

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
                given order: the first task that has chunks gets at least one chunk, later tasks may get none.
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
            is_loss: Whether the worker's lease ran out; False if its process was seen to die.
            only_if_expired: Whether to change nothing while the lease has not run out by the store's clock.
            culprit: The run that is known to have ended the worker; None if unknown.
        """

    async def list_orphans(self, limit: int = 500) -> list[Orphan]:
        """Return at most `limit` runs whose worker is retired, oldest first."""

    async def record_reaper_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        """Record a pass of a reaper, and restore missing worker rows to which runs refer.

        The lease of a restored row starts now. A live worker extends this lease; otherwise the worker is
        reaped like any other. The write waits for the same locks as a heartbeat.
        """

    async def delete_retired_workers(self, older_than_seconds: float) -> int:
        """Delete workers without runs that were retired longer ago than this; return how many."""


class Maintenance(Protocol):
    """Maintenance operations. All machines may run them at the same time."""

    async def promote(self, limit: int = 500) -> int:
        """Move up to `limit` due tasks from scheduled and retrying to ready; return how many were due.

        A task keeps the rank it got when it began to wait. A re-run that spends retry budget needs budget of
        its upstream and of the system. A task without budget is postponed; postponed tasks are spread over
        time. Tasks of an upstream whose gate is parked are postponed too. After a gate has opened, tasks that
        began to wait before that leave early, as far as the budgets and the server's own waits allow.
        """

    async def release_batches(self, limit: int = 5_000) -> int:
        """Move up to `limit` tasks of committed batches to their queues; return how many were moved."""

    async def delete_expired(self, *, ticks_seconds: float, limit: int = 1_000) -> int:
        """Delete expired rows, at most `limit` of each kind; return how many were deleted.

        The rows are expired keys and permits, counters older than 400 days, audit entries older than a year,
        uncommitted batches older than a day, fired ticks older than `ticks_seconds`, and what tasks that have
        ended still wait for. Final tasks are removed by `delete_final_tasks`.
        """

    async def compact_history(self, limit: int = 1_000) -> int:
        """Replace old counters of minutes by sums of hours, and older sums by sums of days.

        Return how many rows were replaced.

        At most about `limit` rows of each kind are replaced. The sums never change. Counters that are too old
        are deleted by `delete_expired`.
        """

    async def add_fingerprints(self, limit: int = 500) -> int:
        """Add fingerprints to deaths and unclassified failures that older code stored; return how many."""

    async def checkpoint(self) -> None:
        """Do the back end's own upkeep (SQLite: checkpoint the write-ahead log)."""
