"""The part of the store contract that both back ends keep by the same code."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tidegate.domain.outcome import Fence
from tidegate.domain.permit import Hold
from tidegate.domain.upstream import Declared, Gate, GateRow, Limits, Signal, Slot
from tidegate.domain.usage import Heard
from tidegate.policy.backlog import Unserved
from tidegate.store.access import AuditEntry, NewAuditEntry, NewToken, TokenRow
from tidegate.store.common import access, dead, gates, listing, permits, reads, runs, stats, workers
from tidegate.store.common.session import Session
from tidegate.store.protocol import Store
from tidegate.store.rows import (
    BudgetRow,
    CancelRequest,
    DeadLetter,
    HistoryRow,
    NewWorker,
    Orphan,
    ProgressNote,
    QueueStats,
    ReaperPass,
    StoredResult,
    TaskFilter,
    TaskRow,
    UpstreamRow,
    WorkerRow,
)
from tidegate.store.streams import StreamHead

T = TypeVar("T")
Work = Callable[[Session], Coroutine[Any, Any, T]]
"""What one store call does with a session. A second try runs it again from its start."""


class CommonStore(Store):
    """Store methods over a `Session`. A back end adds how work is run, and the methods that differ.

    What each method promises is in the protocol.
    """

    @abstractmethod
    async def _read(self, work: Work[T], *, snapshot: bool = False, steady: bool = False) -> T:
        """Do work that only reads.

        Args:
            work: What to do.
            snapshot: It has several statements, which must see the same moment.
            steady: The plan of its statement need not depend on the values.
        """

    @abstractmethod
    async def _write(
        self,
        work: Work[T],
        *,
        alone: bool = False,
        steady: bool = False,
        repeatable: bool = True,
        notify: bool = False,
    ) -> T:
        """Do work that writes, in one transaction.

        Args:
            work: What to do.
            alone: It is a single statement, which needs no transaction around it.
            steady: The plan of its statement need not depend on the values.
            repeatable: Doing it again after a lost connection does no harm.
            notify: Others may wait for what it changes.
        """

    # --- tasks ---

    async def read(self, task_ids: Sequence[str]) -> dict[str, TaskRow]:
        return await self._read(lambda db: reads.read(db, task_ids))

    async def find_ids(self, least: str, largest: str, *, tenant: str | None, limit: int) -> list[str]:
        return await self._read(lambda db: reads.find_ids(db, least, largest, tenant, limit))

    async def result(self, task_id: str) -> StoredResult | None:
        return await self._read(lambda db: reads.result(db, task_id), steady=True)

    async def payload(self, task_id: str) -> tuple[bytes, str]:
        return await self._read(lambda db: reads.payload(db, task_id), steady=True)

    async def history(self, task_id: str) -> list[HistoryRow]:
        return await self._read(lambda db: reads.history(db, task_id), snapshot=True)

    async def list_tasks(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[TaskRow]:
        return await self._read(lambda db: listing.list_tasks(db, which, after, limit), snapshot=True)

    # --- work ---

    async def progress(self, notes: Sequence[ProgressNote]) -> list[Fence]:
        if not notes:
            return []
        return await self._write(lambda db: runs.progress(db, notes), alone=True, steady=True, notify=True)

    async def lost_claims(self, worker_id: str, known: Iterable[Fence]) -> list[Fence]:
        fences = frozenset(known)
        # A write, so that it comes after a claim that is still under way.
        return await self._write(lambda db: runs.lost_claims(db, worker_id, fences))

    async def cancel_requests(self, worker_id: str) -> list[CancelRequest]:
        return await self._read(lambda db: runs.cancel_requests(db, worker_id))

    async def stream_heads(self, task_ids: Sequence[str]) -> dict[str, StreamHead]:
        return await self._read(lambda db: reads.stream_heads(db, task_ids))

    # --- workers ---

    async def add_worker(self, worker: NewWorker) -> None:
        await self._write(lambda db: workers.add_worker(db, worker), alone=True)

    async def workers(self) -> list[WorkerRow]:
        return await self._read(workers.workers)

    async def retire_worker(
        self,
        worker_id: str,
        *,
        why: str,
        loss: bool,
        only_if_expired: bool,
        culprit: Fence | None = None,
    ) -> bool:
        retire = functools.partial(
            workers.retire_worker, why=why, loss=loss, only_if_expired=only_if_expired, culprit=culprit
        )
        return await self._write(lambda db: retire(db, worker_id), notify=True)

    async def orphans(self, limit: int = 500) -> list[Orphan]:
        return await self._read(lambda db: workers.orphans(db, limit))

    async def begin_pass(self, *, longest_gap_seconds: float, lease_seconds: float) -> ReaperPass:
        return await self._write(lambda db: workers.begin_pass(db, longest_gap_seconds, lease_seconds))

    async def forget_workers(self, older_than_seconds: float) -> int:
        return await self._write(lambda db: workers.forget_workers(db, older_than_seconds), alone=True)

    # --- dead letters ---

    async def dead_letters(
        self, which: TaskFilter, *, after: str | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        return await self._read(lambda db: dead.dead_letters(db, which, after, limit), snapshot=True)

    async def count_dead(self, which: TaskFilter) -> int:
        return await self._read(lambda db: dead.count_dead(db, which))

    # --- counts and manifests ---

    async def queue_stats(self, unserved: Unserved | None = None) -> list[QueueStats]:
        return await self._read(lambda db: stats.queue_stats(db, unserved), snapshot=True)

    async def save_manifest(self, app: str, manifest: Mapping[str, Any]) -> None:
        await self._write(lambda db: stats.save_manifest(db, app, manifest), alone=True)

    async def manifests(self) -> dict[str, dict[str, Any]]:
        return await self._read(stats.manifests)

    # --- access ---

    async def add_token(self, token: NewToken) -> None:
        await self._write(lambda db: access.add_token(db, token), alone=True)

    async def find_token(self, digest: bytes) -> TokenRow | None:
        return await self._read(lambda db: access.find_token(db, digest))

    async def tokens(self) -> list[TokenRow]:
        return await self._read(access.tokens)

    async def revoke_token(self, token_id: str) -> bool:
        return await self._write(lambda db: access.revoke_token(db, token_id), alone=True)

    async def record(self, entries: Sequence[NewAuditEntry]) -> None:
        if entries:
            await self._write(lambda db: access.record(db, entries), alone=True)

    async def audit(self, *, after: str | None = None, limit: int = 50) -> list[AuditEntry]:
        return await self._read(lambda db: access.audit(db, after, limit))

    # --- upstreams ---

    async def declare(self, declared: Sequence[Declared]) -> list[GateRow]:
        return await self._write(lambda db: gates.declare(db, declared))

    async def gates(self) -> list[GateRow]:
        return await self._read(gates.rows)

    async def upstreams(self) -> list[UpstreamRow]:
        return await self._read(gates.upstreams, snapshot=True)

    async def set_limits(self, upstream: str, limits: Limits) -> bool:
        return await self._write(lambda db: gates.set_limits(db, upstream, limits), notify=True)

    async def park(self, upstream: str, *, seconds: float | None, why: str) -> bool:
        return await self._write(lambda db: gates.park(db, upstream, seconds, why), notify=True)

    async def open_gate(self, upstream: str) -> bool:
        return await self._write(lambda db: gates.open_gate(db, upstream), notify=True)

    async def probe(self, upstream: str) -> bool:
        return await self._write(lambda db: gates.probe(db, upstream), notify=True)

    async def take_slot(
        self,
        upstream: str,
        *,
        patience_seconds: float,
        hold: Hold | None = None,
        on_last_attempt: bool = False,
    ) -> Slot:
        return await self._write(
            lambda db: permits.take_slot(db, upstream, patience_seconds, hold, on_last_attempt),
            repeatable=False,
        )

    async def give_back_permits(self, permit_ids: Sequence[str]) -> None:
        await self._write(lambda db: permits.give_back(db, permit_ids), alone=True, notify=True)

    async def extend_permits(self, permit_ids: Sequence[str], *, seconds: float) -> None:
        await self._write(lambda db: permits.extend(db, permit_ids, seconds), alone=True)

    async def tell(self, upstream: str, signal: Signal) -> Gate:
        told = await self._write(lambda db: gates.told(db, upstream, signal))
        return told.gate

    async def tell_of_probe(self, upstream: str, *, is_good: bool, seconds: float) -> None:
        await self._write(lambda db: gates.tried(db, upstream, seconds, is_good=is_good), notify=True)

    async def answered(self, upstream: str) -> None:
        await self._write(lambda db: gates.answered(db, upstream))

    async def learn(self, upstream: str, heard: Sequence[Heard]) -> GateRow | None:
        return await self._write(lambda db: gates.learned(db, upstream, heard))

    async def budgets(self) -> list[BudgetRow]:
        return await self._read(gates.budgets, snapshot=True)
