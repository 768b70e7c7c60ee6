"""Make the record of a chaos run from the files that its processes wrote and the contents of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.faults import ChaosFaultLog
from chaos.plan import ChaosPlan
from chaos.process_logs import ClientLogs, StartedProcesses
from checker import FunctionNote, StoreSnapshot
from harness.record import RunRecord, TaskRun, WorkerLife, runs_from_histories
from harness.relations import StoredMap, WaitNote, derived_tasks
from tidegate.domain.outcome import Fence
from tidegate.store.rows import CancelStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRecord(RunRecord):
    """The record of a chaos run. Times are seconds since the epoch."""

    plan: ChaosPlan
    fault_log: ChaosFaultLog
    began_at: float
    sent_again: int
    """Enqueues that were answered only when they were sent again by another process."""
    longest_drain: float
    """Seconds that the last stop took."""


def make_record(
    plan: ChaosPlan,
    clients: ClientLogs,
    processes: StartedProcesses,
    snapshot: StoreSnapshot,
    notes: Sequence[FunctionNote],
    *,
    maps: Sequence[StoredMap] = (),
    wait_notes: Sequence[WaitNote] = (),
    open_at_end: int,
    **facts: Any,
) -> ChaosRecord:
    """Return the record of a run.

    Args:
        plan: What was run.
        clients: The responses that clients got.
        processes: The pool processes and children.
        snapshot: The contents of the store.
        notes: The functions' notes.
        maps: The maps in the store.
        wait_notes: What the functions noted of their waits.
        open_at_end: Tasks that were open when the faults ended.
        facts: The other members of the record.
    """
    workers = {
        worker_id: WorkerLife(
            pool.host,
            pool.at,
            pid=pool.pid,
            supervisor_pid=pool.parent,
            child_pids=frozenset(child.pid for child in processes.children.get(worker_id, ())),
        )
        for worker_id, pool in processes.pools.items()
    }
    runs = runs_from_histories(snapshot, notes, workers)
    relations = replace(clients.relations, maps=maps, notes=wait_notes)
    derived = tuple(derived_tasks(relations, snapshot))
    return ChaosRecord(
        plan=plan,
        observations=replace(clients.described, submitted=(*clients.described.submitted, *derived)),
        finals=clients.finals,
        cancelling=frozenset(clients.cancelling),
        cancel_requests=[
            (cancel.task_id, cancel.at)
            for cancel in clients.described.cancels
            if cancel.answer is CancelStatus.REQUESTED
        ],
        unique_names=clients.unique_names,
        became_visible_at=_became_visible_at(clients, runs),
        scripted_ends=clients.scripted_ends,
        deaf=clients.deaf,
        sent_again=clients.sent_again,
        notes=notes,
        snapshot=snapshot,
        runs=runs,
        workers=workers,
        relations=relations,
        bounds=plan.bounds(open_at_end),
        open_at_end=open_at_end,
        **facts,
    )


def _became_visible_at(clients: ClientLogs, runs: Mapping[Fence, TaskRun]) -> dict[str, float | None]:
    """Return when each task of a enqueue in batches was visible at the latest: at its first claim."""
    moments: dict[str, float | None] = dict.fromkeys(clients.batched)
    for fence, run in runs.items():
        if fence.run == 1 and fence.task_id in moments:
            moments[fence.task_id] = run.claimed_at
    return moments
