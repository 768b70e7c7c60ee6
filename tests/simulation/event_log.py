"""Record everything that happens in a run: commits, faults, function runs and client responses.

Times are virtual seconds since the run started, unless stated otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from checker import (
    ClientObservations,
    FunctionNote,
    ObservedCancel,
    SubmittedTask,
)
from harness.faults import FaultLog
from harness.record import Commit, FinalSeen, submitted_task
from harness.relations import ParentEdges, SentMap, WaitNote, event_value
from harness.scripts import script_of
from harness.steps import CallNote
from simulation.plan import CallFaultKind, FaultKind
from tidegate.context import Context
from tidegate.domain.outcome import Fence
from tidegate.domain.states import State
from tidegate.store.rows import CancelStatus, ClaimResult, NewTask

if TYPE_CHECKING:
    from simulation.user_code_faults import UserCodeFaults


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
    fault_log: FaultLog = field(init=False)
    notes: list[FunctionNote] = field(default_factory=list)
    noted: dict[tuple[str, Fence], FunctionNote] = field(default_factory=dict)
    """The first note of each start and end, with its time by the clock of the run."""
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
    unique_names: dict[str, list[str]] = field(default_factory=dict)
    """Ids sent under each unique name, whether they were stored or not."""
    finals: dict[str, FinalSeen] = field(default_factory=dict)
    """The first final state that a client received, by task."""
    cancelling: set[str] = field(default_factory=set)
    """Tasks whose cancel was sent."""
    purges: Counter[str] = field(default_factory=Counter)
    """Purges of each task that were sent and not refused: such a task may be deleted."""
    calls: list[CallNote] = field(default_factory=list)
    """Notes of the calls of steps."""
    waits: list[WaitNote] = field(default_factory=list)
    """Notes of what waits returned."""
    sent_maps: dict[str, SentMap] = field(default_factory=dict)
    """Maps that were sent, by key, whether they were stored or not."""
    edges: dict[str, ParentEdges] = field(default_factory=dict)
    """The tasks after others that were sent."""
    events: dict[str, str] = field(default_factory=dict)
    """What each task gets that waits for an event."""
    user_code_faults: UserCodeFaults | None = None
    """Decides when the code of others fails; None: never."""
    is_open: bool = True
    _sent: dict[str, SubmittedTask] = field(default_factory=dict)
    _held: list[SubmittedTask] = field(default_factory=list)
    _cancels: list[ObservedCancel] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fault_log = FaultLog(now=self.now)

    # --- the store and the faults ---

    def record_commit(
        self, machine: str, method: str, arguments: tuple[Any, ...], options: dict[str, Any], answer: Any
    ) -> None:
        """Record a transaction; they are recorded in the order of their commits."""
        if self.is_open:
            commit = Commit(self.now(), machine, method, arguments, options, answer, self.store_now())
            self.commits.append(commit)
            if isinstance(answer, ClaimResult):
                self.last_claimer = machine

    def record_fault(
        self, kind: FaultKind, machine: str, seconds: float | None = None, what: str = ""
    ) -> None:
        """Record a fault from now on, for some seconds or for good."""
        if self.is_open:
            what = what or (f"{seconds:.1f} s" if seconds else "")
            self.fault_log.record_start(kind, machine, what=what, seconds=inf if seconds is None else seconds)
            self.injected[str(kind)] += 1

    def record_failed_call(self, machine: str, method: str, what: str) -> None:
        """Record one call that failed while the store was reachable."""
        self.injected[what] += 1
        self.fault_log.record_start(CallFaultKind.FAILED, machine, what=f"{method}: {what}", seconds=0.0)

    def record_uncaught(self, what: str) -> None:
        """Record an exception that no code caught."""
        if self.is_open:
            self.fault_log.problems.append(("uncaught", what))

    # --- the functions ---

    def record_call(self, note: CallNote) -> None:
        """Record a call of a step, its answer, or that the function has its result."""
        if self.is_open:
            self.calls.append(note)

    def record_wait(self, note: WaitNote) -> None:
        """Record what a wait of a function returned."""
        if self.is_open:
            self.waits.append(note)

    def record_note(
        self, event: str, machine: str, context: Context, *, digest: str = "", error: str = ""
    ) -> None:
        """Record a `start` of a function, or its `end`: the digest of its result, or the class of its error."""
        if self.is_open:
            number = self._numbers.setdefault(machine, len(self._numbers) + 1)
            fence = Fence(context.task_id, context.run)
            note = FunctionNote(event, *fence, number, self.store_now(), digest, error)
            self.notes.append(note)
            self.noted.setdefault((event, fence), replace(note, at=self.now()))

    # --- the clients ---

    def record_sent(self, tasks: Sequence[NewTask]) -> None:
        """Record that tasks were sent: from now on they may be stored or not."""
        for task in tasks:
            self._sent[task.id] = submitted_task(task, None)
            if task.after:
                self.edges[task.id] = ParentEdges(task.after, task.on_parent_failure)
            if "event" in script_of(task):
                self.events[task.id] = event_value(task.id)
            if task.unique is not None:
                self.unique_names.setdefault(task.unique, []).append(task.id)

    def record_accepted(self, tasks: Sequence[NewTask], holders: Sequence[str]) -> None:
        """Record the response to an enqueue: each task is stored, or another one has its unique name."""
        for task, holder in zip(tasks, holders, strict=True):
            submitted = submitted_task(task, holder)
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
        """Record the response to a cancel."""
        self._cancels.append(ObservedCancel(task_id, answer, self.store_now()))

    def record_final(self, task_id: str, state: State, digest: str) -> None:
        """Record the result that a client received of a succeeded or cancelled task; the first one counts."""
        self.finals.setdefault(task_id, FinalSeen(task_id, state, digest=digest))

    def accepted_ids(self) -> list[str]:
        """Return the tasks that clients know to be stored, in the order sent."""
        return [sent.task_id for sent in self._sent.values() if sent.ok]

    def observations(self) -> ClientObservations:
        """Return the responses that clients got."""
        return ClientObservations(
            (*self._sent.values(), *self._held), tuple(self._cancels), frozenset(+self.purges)
        )
