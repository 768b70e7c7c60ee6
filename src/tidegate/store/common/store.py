"""The part of the store contract that both back ends implement with the same code."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidegate.domain.failure import CallFailure
from tidegate.domain.outcome import Fence
from tidegate.limits.settings import LimitDeclaration, Limits
from tidegate.limits.values import CallSlot, Gate, GateRow, ObservedLimit, PermitRecord
from tidegate.policy.backlog import UnservedReason
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.common import access, dead, gates, permits, reads, runs, stats, workers
from tidegate.store.common.session import Session
from tidegate.store.orphans import Orphan, ReaperPass
from tidegate.store.protocol import Store
from tidegate.store.rows import (
    CancelRequest,
    DeadLetterRow,
    HistoryRow,
    NewWorker,
    ProgressUpdate,
    QueueStats,
    StoredResult,
    TaskFilter,
    TaskRow,
    WorkerRow,
)
from tidegate.store.streams import StreamHead
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow

T = TypeVar("T")
Work = Callable[[Session], Coroutine[Any, Any, T]]
"""What one store call does with a session. A second try runs it from the start."""


class CommonStore(Store):
    """Store methods over a `Session`. A back end adds how work is run, and the methods that differ.

    The protocol documents each method.
    """

    @abstractmethod
    async def _read(self, work: Work[T], *, snapshot: bool = False, generic_plan: bool = False) -> T:
        """Run work that only reads.

        Args:
            work: The work.
            snapshot: Whether it has several statements that must read one snapshot.
            generic_plan: Whether one plan of its statement fits all values.
        """

    @abstractmethod
    async def _write(
        self,
        work: Work[T],
        *,
        alone: bool = False,
        generic_plan: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Run work that writes, in one transaction.

        Args:
            work: The work.
            alone: Whether it is a single statement, which needs no explicit transaction.
            generic_plan: Whether one plan of its statement fits all values.
            repeatable: Whether it may be repeated after a lost connection.
            notify: Whether other processes may wait for the change. They are not notified of an answer of 0.
        """

    # --- tasks ---

    async def read_tasks(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        return await self._read(lambda db: reads.read_tasks(db, task_ids))

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        return await self._read(lambda db: reads.find_ids(db, least, largest, tenant, limit))

    async def get_result(self, task_id: str) -> StoredResult | None:
        return await self._read(lambda db: reads.get_result(db, task_id), generic_plan=True)

    async def get_payload(self, task_id: str) -> tuple[bytes, str]:
        return await self._read(lambda db: reads.get_payload(db, task_id), generic_plan=True)

    async def get_history(self, task_id: str) -> list[HistoryRow]:
        return await self._read(lambda db: reads.get_history(db, task_id), snapshot=True)

    async def list_tasks(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        return await self._read(lambda db: reads.list_tasks(db, task_filter, after, limit), snapshot=True)

    # --- work ---

    async def save_progress(self, notes: Sequence[ProgressUpdate]) -> list[Fence]:
        if not notes:
            return []
        return await self._write(
            lambda db: runs.save_progress(db, notes), alone=True, generic_plan=True, notify=True
        )

    async def find_lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        fences = frozenset(known)
        # A write, so that it runs after a claim that has not finished.
        return await self._write(lambda db: runs.find_lost_claims(db, worker_id, fences))

    async def list_cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        return await self._read(lambda db: runs.list_cancel_requests(db, worker_id))

    async def read_stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        return await self._read(lambda db: reads.read_stream_heads(db, task_ids))

    # --- workers ---

    async def add_worker(self, worker: NewWorker) -> None:
        await self._write(lambda db: workers.add_worker(db, worker), alone=True)

    async def list_workers(self) -> list[WorkerRow]:
        return await self._read(workers.list_workers)

    async def retire_worker(
        self,
        worker_id: str,
        *,
        why: str,
        is_loss: bool,
        only_if_expired: bool,
        culprit: Fence | None = None,
    ) -> bool:
        retire = functools.partial(
            workers.retire_worker, why=why, is_loss=is_loss, only_if_expired=only_if_expired, culprit=culprit
        )
        return await self._write(lambda db: retire(db, worker_id), notify=True)

    async def list_orphans(self, limit: int = 500) -> list[Orphan]:
        return await self._read(lambda db: workers.list_orphans(db, limit))

    async def record_reaper_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        return await self._write(
            lambda db: workers.record_reaper_pass(db, longest_gap_seconds, lease_seconds)
        )

    async def delete_retired_workers(self, older_than_seconds: float) -> int:
        return await self._write(
            lambda db: workers.delete_retired_workers(db, older_than_seconds), alone=True
        )

    # --- dead letters ---

    async def list_dead_letters(
        self, task_filter: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetterRow]:
        return await self._read(
            lambda db: dead.list_dead_letters(db, task_filter, after, limit), snapshot=True
        )

    async def count_dead_letters(self, task_filter: TaskFilter) -> int:
        return await self._read(lambda db: dead.count_dead_letters(db, task_filter))

    # --- counts and manifests ---

    async def get_queue_stats(self, unserved: UnservedReason | None = None) -> list[QueueStats]:
        return await self._read(lambda db: stats.get_queue_stats(db, unserved), snapshot=True)

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        await self._write(lambda db: stats.save_manifest(db, app, manifest), alone=True)

    async def load_manifests(self) -> dict[str, dict[str, Any]]:
        return await self._read(stats.load_manifests)

    # --- access ---

    async def add_token(self, token: NewToken) -> None:
        await self._write(lambda db: access.add_token(db, token), alone=True)

    async def find_token(self, digest: bytes) -> TokenRow | None:
        return await self._read(lambda db: access.find_token(db, digest))

    async def list_tokens(self) -> list[TokenRow]:
        return await self._read(access.list_tokens)

    async def revoke_token(self, token_id: str) -> bool:
        return await self._write(lambda db: access.revoke_token(db, token_id), alone=True)

    async def add_audit_entries(self, entries: Sequence[NewAuditEntry]) -> None:
        if entries:
            await self._write(lambda db: access.add_audit_entries(db, entries), alone=True)

    async def list_audit_entries(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        return await self._read(lambda db: access.list_audit_entries(db, after, limit))

    # --- upstreams ---

    async def declare_limits(self, declared: Sequence[LimitDeclaration]) -> list[GateRow]:
        return await self._write(lambda db: gates.declare_limits(db, declared))

    async def list_gates(self) -> list[GateRow]:
        return await self._read(gates.rows)

    async def list_upstreams(self) -> list[UpstreamRow]:
        return await self._read(gates.list_upstreams, snapshot=True)

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        return await self._write(lambda db: gates.set_limits(db, upstream, limits), notify=True)

    async def park_gate(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        return await self._write(lambda db: gates.park_gate(db, upstream, seconds, why), notify=True)

    async def open_gate(self, upstream: str) -> bool:
        return await self._write(lambda db: gates.open_gate(db, upstream), notify=True)

    async def request_probe(self, upstream: str) -> bool:
        return await self._write(lambda db: gates.request_probe(db, upstream), notify=True)

    async def acquire_slot(
        self,
        upstream: str,
        *,
        max_wait_seconds: float,
        permit_record: PermitRecord | None = None,
        on_last_attempt: bool = False,
    ) -> CallSlot:
        return await self._write(
            lambda db: permits.acquire_slot(db, upstream, max_wait_seconds, permit_record, on_last_attempt),
            repeatable=False,
        )

    async def release_permits(self, permit_ids: Sequence[str]) -> None:
        await self._write(lambda db: permits.release(db, permit_ids), alone=True, notify=True)

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        await self._write(lambda db: permits.extend(db, permit_ids, seconds), alone=True)

    async def report_failure(self, upstream: str, failure: CallFailure) -> Gate:
        effect = await self._write(lambda db: gates.report_failure(db, upstream, failure))
        return effect.gate

    async def report_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        await self._write(lambda db: gates.apply_probe(db, upstream, seconds, is_good=is_good), notify=True)

    async def report_success(self, upstream: str) -> None:
        await self._write(lambda db: gates.report_success(db, upstream))

    async def report_limits(self, upstream: str, observed: Sequence[ObservedLimit]) -> GateRow | None:
        return await self._write(lambda db: gates.record_limits(db, upstream, observed))

    async def list_retry_budgets(self) -> list[RetryBudgetRow]:
        return await self._read(gates.list_retry_budgets, snapshot=True)
