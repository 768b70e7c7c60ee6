"""The record of a finished run, from which all checks work. A driver fills in what it can know.

Times are seconds by the clock of the record: since the epoch, or virtual seconds since the run started. Only
the contents of the store and the functions' notes have the store's times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import msgspec

from checker import (
    ClientObservations,
    FunctionNote,
    RunLimits,
    StoreSnapshot,
    SubmittedTask,
    digest_of,
)
from harness.faults import Effect, Fault, FaultLog
from harness.paid_calls import PaidCalls
from harness.relations import Relations
from harness.steps import RecordedSteps
from tidegate.domain.outcome import Charge, Fence
from tidegate.store.rows import HistoryRow, NewTask
from tidegate.worker.settings import Timings

TAKEN = frozenset({Charge.CRASH, Charge.LOSS, Charge.RELEASE, Charge.INTERRUPTED})
"""Charges of runs that were taken from their worker, independent of their function."""


class FinalSeen(msgspec.Struct, tag="final", frozen=True):
    """A client received the final state of a task."""

    task_id: str
    state: str
    run: int = 0
    """That of the result; 0 if not known."""
    digest: str | None = None
    """`digest_of` the result, empty without one; None if not known."""


@dataclass(frozen=True, slots=True)
class ScriptedEnd:
    """How a task may end, as its function determines it."""

    may_succeed: bool = True
    dead_reasons: frozenset[str] = frozenset()
    """Reasons for which it may die, apart from crashes."""


ANY_END = ScriptedEnd()
"""The end of a task whose function determines nothing."""


@dataclass(frozen=True, slots=True)
class WorkerLife:
    """One process that claimed tasks, from the time when it was ready."""

    host: str
    ready_at: float
    ended_at: float = inf
    """When it ended; infinity if that is not known."""
    pid: int | None = None
    supervisor_pid: int | None = None
    child_pids: frozenset[int] = frozenset()


UNKNOWN_WORKER = WorkerLife("", inf)
"""A worker that never registered itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One run of a task: who claimed it, what its function recorded, and how it ended."""

    fence: Fence
    worker_id: str
    host: str
    worker: WorkerLife
    claimed_at: float
    taken_at: float | None = None
    """When its worker was retired; None if that is not known."""
    ended_at: float | None = None
    """When its end was stored; None: never."""
    outcome: str = ""
    """`succeeded`, `retrying`, `released`, `suspended`, `dead`, `cancelled`; empty while it lasts."""
    charge: str = ""
    reason: str = ""
    why: str = ""
    evidence: str = ""
    message: str = ""
    error_class: str = ""
    next_run_at: float | None = None
    start: FunctionNote | None = None
    """What the function recorded when it started, with the time of the record; None if it did not."""
    end: FunctionNote | None = None

    @property
    def is_taken(self) -> bool:
        """Whether it ended independent of its function."""
        return self.charge in TAKEN


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed transaction, whether or not its response arrived."""

    at: float
    machine: str
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    answer: Any
    store_at: float
    """By the store's clock, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The seconds within which the system must do something, if no fault hinders it."""

    lease: float
    reap: float
    orphan: float
    """From the death of a worker until its runs are decided."""
    final: float
    """From the last fault until every task is final."""
    stop: float
    """From the request to stop until a worker has ended."""
    cancel: float
    """From the request of a cancel until the run has ended."""
    crash: float = inf
    """From the death of a process until its own supervisor has decided its runs."""
    claim: float = inf
    """From the moment that a task is due until it is claimed."""
    job_pause: float = 5.0
    """The longest pause of a maintenance job after a failed round."""


def orphan_bound(timings: Timings) -> float:
    """Return the seconds from the death of a worker until a reaper without a fault has decided its runs.

    The last lease must run out. A reaper runs once per interval, varied by a tenth; it sees a heartbeat up to
    one pass late, allows three more passes, and decides in the next one.
    """
    return timings.lease + 5 * 1.1 * timings.reap + 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The record of a run."""

    observations: ClientObservations
    finals: Sequence[FinalSeen]
    cancelling: frozenset[str]
    """Tasks that a client wanted to cancel, answered or not."""
    cancel_requests: Sequence[tuple[str, float]]
    """Tasks that ran when their cancel was requested, with the time."""
    unique_names: Mapping[str, Sequence[str]]
    """Tasks by the unique name under which they were sent, stored or not."""
    became_visible_at: Mapping[str, float | None] = field(default_factory=dict)
    """When each task of a enqueue in batches became visible, by the store's clock; None: not known."""
    scripted_ends: Mapping[str, ScriptedEnd]
    """How each task may end; a task without an entry may end in any way."""
    injected_error: str | None = None
    """Text of all errors that stand for broken code of users; None if there are none."""
    deaf: frozenset[str] = frozenset()
    """Tasks whose functions do not notice a request to stop."""
    limits: Mapping[str, RunLimits]
    notes: Sequence[FunctionNote]
    snapshot: StoreSnapshot
    runs: Mapping[Fence, TaskRun]
    """All runs, those of one task in their order."""
    workers: Mapping[str, WorkerLife]
    """The processes that claimed tasks, by worker id."""
    fault_log: FaultLog
    commits: Sequence[Commit] = ()
    """Every transaction that changed a task; empty if the driver cannot see them."""
    bounds: Bounds
    is_virtual: bool = False
    """Whether time passes only where the run lets it, so that nothing is slow by itself."""
    faults_ended_at: float
    final_after: float | None
    """Seconds from then until every task was final; None: not within the bound."""
    open_at_end: int
    """Tasks that were open when the faults ended."""
    waiting: Sequence[str] = ()
    """Final tasks whose results clients still waited for some time after the end."""
    ended_at: float
    integrity_errors: Sequence[str] = ()
    recorded_steps: RecordedSteps = field(default_factory=RecordedSteps)
    """What the store and the functions recorded of steps."""
    paid_calls: PaidCalls = field(default_factory=PaidCalls)
    """What providers and functions recorded of paid calls."""
    relations: Relations = field(default_factory=Relations)
    """What is recorded of maps, tasks after others, and waits."""

    def felt_by(self, run: TaskRun, end: float) -> Iterator[Fault]:
        """Yield what the host of a run felt from its claim to a given time."""
        return self.fault_log.touching(run.host, run.claimed_at, end)

    def is_injected(self, why: str) -> bool:
        """Return whether a text quotes an error that stands for broken code of users."""
        return self.injected_error is not None and self.injected_error in why

    def was_hit(self, run: TaskRun, end: float, effects: Effect) -> bool:
        """Return whether a fault of its host explains an oddity of a run, from its claim to a given time."""
        return any(
            fault.has(effects) and not fault.has(Effect.HITS_ALL_ALIKE) for fault in self.felt_by(run, end)
        )


def submitted_task(task: NewTask, task_id: str | None) -> SubmittedTask:
    """Return an enqueue as its client saw it: with the id in the response, None without one."""
    digest = digest_of(task.args)
    return SubmittedTask(task_id or task.id, digest, key=task.key, tenant=task.tenant, ok=task_id is not None)


def runs_from_histories(
    snapshot: StoreSnapshot, notes: Sequence[FunctionNote], workers: Mapping[str, WorkerLife]
) -> dict[Fence, TaskRun]:
    """Return the runs from what the store recorded of them.

    Args:
        snapshot: The contents of the store.
        notes: The functions' notes, by the same clock as the store's.
        workers: The process of each worker id.
    """
    noted: dict[tuple[str, Fence], FunctionNote] = {}
    for note in notes:
        noted.setdefault((note.event, Fence(note.task_id, note.run)), note)
    return {
        fence: _run_of(fence, entry, workers.get(entry.worker_id, UNKNOWN_WORKER), noted)
        for task_id, entries in snapshot.histories.items()
        for entry in entries
        if entry.kind == "run" and (fence := Fence(task_id, entry.run or 0))
    }


def _run_of(
    fence: Fence, entry: HistoryRow, worker: WorkerLife, noted: Mapping[tuple[str, Fence], FunctionNote]
) -> TaskRun:
    return TaskRun(
        fence=fence,
        worker_id=entry.worker_id,
        host=worker.host,
        worker=worker,
        claimed_at=entry.at,
        ended_at=entry.ended_at,
        outcome=entry.outcome,
        charge=entry.charge,
        reason=entry.reason,
        why=entry.why,
        evidence=entry.evidence,
        message=entry.message,
        error_class=entry.error_class,
        next_run_at=entry.next_run_at,
        start=noted.get(("start", fence)),
        end=noted.get(("end", fence)),
    )
