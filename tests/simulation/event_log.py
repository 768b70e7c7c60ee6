"""Record everything that happens in a run: commits, faults, function runs and client responses.

Times are virtual seconds since the run started, unless stated otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checker import (
    ClientObservations,
    FunctionNote,
    ObservedCancel,
    SubmittedTask,
    digest_of,
)
from simulation.plan import FaultKind
from tidegate.context import Context
from tidegate.domain.states import State
from tidegate.store.rows import CancelStatus, ClaimResult, NewTask

if TYPE_CHECKING:
    from simulation.user_code_faults import UserCodeFaults


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


@dataclass(slots=True)
class SimulatedFault:
    """Something done to one machine, or to all."""

    kind: FaultKind
    machine: str
    """The machine; empty for all machines."""
    began_at: float
    ended_at: float = float("inf")
    what: str = ""

    def touches(self, machine: str, begin: float, end: float) -> bool:
        """Return whether it was felt by a machine in a span of time."""
        return self.machine in {"", machine} and self.began_at <= end and self.ended_at >= begin


@dataclass(slots=True)
class WorkerDrain:
    """One stop of a worker."""

    machine: str
    worker_id: str
    began_at: float
    ended_at: float | None = None


@dataclass(slots=True)
class EventLog:
    """Everything that is recorded in one run.

    Args:
        now: Returns virtual seconds since the run started.
        store_now: Returns seconds since the epoch, never behind the store clock of any process.
    """

    now: Callable[[], float]
    store_now: Callable[[], float]
    commits: list[Commit] = field(default_factory=list)
    faults: list[SimulatedFault] = field(default_factory=list)
    drains: list[WorkerDrain] = field(default_factory=list)
    notes: list[FunctionNote] = field(default_factory=list)
    single_faults: list[tuple[float, str, str]] = field(default_factory=list)
    """Single calls that failed: time, machine, method."""
    worker_started_at: dict[str, float] = field(default_factory=dict)
    """When the worker of each machine started."""
    injected: Counter[str] = field(default_factory=Counter)
    """What was done to the run, by name: faults once each, failing calls call by call."""
    last_claimer: str = ""
    """The machine that was given a run last."""
    crashes: int = 0
    """Machines that died with their process under way."""
    workers: dict[str, str] = field(default_factory=dict)
    """Machine by worker id."""
    loop_errors: list[str] = field(default_factory=list)
    """Uncaught exceptions."""
    unique_names: dict[str, list[str]] = field(default_factory=dict)
    """Ids sent under each unique name, whether they were stored or not."""
    finals: dict[str, tuple[State, str]] = field(default_factory=dict)
    """Final state and digest of the result that a client received, by task."""
    user_code_faults: UserCodeFaults | None = None
    """Decides when the code of others fails; None: never."""
    is_open: bool = True
    _sent: dict[str, SubmittedTask] = field(default_factory=dict)
    _held: list[SubmittedTask] = field(default_factory=list)
    _cancels: list[ObservedCancel] = field(default_factory=list)
    _purges: Counter[str] = field(default_factory=Counter)
    _numbers: dict[str, int] = field(default_factory=dict)

    # --- the store and the nemesis ---

    def record_commit(
        self, machine: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any], answer: Any
    ) -> None:
        """Note a transaction, in the order in which they were made."""
        if self.is_open:
            commit = Commit(self.now(), machine, method, arguments, options, answer, self.store_now())
            self.commits.append(commit)
            if isinstance(answer, ClaimResult):
                self.last_claimer = machine

    def record_fault(
        self, kind: FaultKind, machine: str, seconds: float | None = None, what: str = ""
    ) -> None:
        """Record a fault from now on, for some seconds or for good."""
        now = self.now()
        fault = SimulatedFault(kind, machine, now, what=what or (f"{seconds:.1f} s" if seconds else ""))
        if seconds is not None:
            fault.ended_at = now + seconds
        if self.is_open:
            self.faults.append(fault)
            self.injected[str(kind)] += 1

    def record_single_fault(self, machine: str, method: str, what: str) -> None:
        """Record one call that failed while the store was reachable."""
        self.injected[what] += 1
        self.single_faults.append((self.now(), machine, method))

    # --- the functions ---

    def record_start(self, machine: str, context: Context) -> None:
        """Record that a function starts."""
        self._note("start", machine, context)

    def record_end(self, machine: str, context: Context, *, digest: str = "", error: str = "") -> None:
        """Record that a function returned a result with this digest, or raised an error of this class."""
        self._note("end", machine, context, digest, error)

    def _note(self, event: str, machine: str, context: Context, digest: str = "", error: str = "") -> None:
        if self.is_open:
            number = self._numbers.setdefault(machine, len(self._numbers) + 1)
            self.notes.append(
                FunctionNote(event, context.task_id, context.run, number, self.store_now(), digest, error)
            )

    def machine_that_wrote(self, note: FunctionNote) -> str:
        """Return the machine whose function left a note."""
        return next(name for name, number in self._numbers.items() if number == note.pid)

    # --- the clients ---

    def record_sent(self, tasks: Sequence[NewTask]) -> None:
        """Note that tasks are on their way: from now on they may be there or not."""
        for task in tasks:
            self._sent[task.id] = _submitted(task, task.id, ok=False)
            if task.unique is not None:
                self.unique_names.setdefault(task.unique, []).append(task.id)

    def record_accepted(self, tasks: Sequence[NewTask], holders: Sequence[str]) -> None:
        """Record the response to an enqueue: each task is stored, or another one has its unique name."""
        for task, holder in zip(tasks, holders, strict=True):
            submitted = _submitted(task, holder, ok=True)
            if holder == task.id:
                self._sent[task.id] = submitted
            else:
                del self._sent[task.id]
                self._held.append(submitted)

    def record_refused(self, tasks: Sequence[NewTask]) -> None:
        """Record that the store refused some tasks, so they must not exist."""
        for task in tasks:
            del self._sent[task.id]

    def record_cancel(self, task_id: str, answer: CancelStatus) -> None:
        """Note an answered cancel."""
        self._cancels.append(ObservedCancel(task_id, answer, self.store_now()))

    def record_purge_sent(self, task_id: str) -> None:
        """Record that a purge was sent: from now on the task may be deleted."""
        self._purges[task_id] += 1

    def record_purge_refused(self, task_id: str) -> None:
        """Note that a purge was refused."""
        self._purges[task_id] -= 1

    def record_final(self, task_id: str, state: State, digest: str) -> None:
        """Record the result that a client received of a succeeded or cancelled task; the first one counts."""
        self.finals.setdefault(task_id, (state, digest))

    def accepted_ids(self) -> list[str]:
        """Return the tasks that clients know to be stored, in the order sent."""
        return [sent.task_id for sent in self._sent.values() if sent.ok]

    def observations(self) -> ClientObservations:
        """Return the responses that clients got."""
        return ClientObservations(
            (*self._sent.values(), *self._held), tuple(self._cancels), frozenset(+self._purges)
        )


def _submitted(task: NewTask, task_id: str, *, ok: bool) -> SubmittedTask:
    return SubmittedTask(task_id, digest_of(task.args), key=task.key, tenant=task.tenant, ok=ok)
