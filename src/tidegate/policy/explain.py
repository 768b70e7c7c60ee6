"""Explains to people why a task does not run, from the state in the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.domain.states import FINAL, State
from tidegate.domain.text import format_duration
from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.retry_budget import RetryBudget, per_minute, used_retries
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import GateRow
from tidegate.policy.backlog import GateStatus
from tidegate.policy.live_workers import LiveWorkers

HOLDERS = {
    "gate": "the gate of its upstream",
    "upstream": "the retry budget of its upstream",
    "system": "the retry budget of the system",
}
"""Texts for what holds a retry back after its planned time, by the name that the store keeps."""


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """One task and everything that may hold it back."""

    state: State
    queue: str
    function: str
    upstream: str
    due_at: float | None
    message: str
    """The message of the last failure, or why the task waits."""
    gates: Sequence[GateRow]
    in_flight: int
    """The runs and calls of its upstream in flight."""
    serving: LiveWorkers
    """The live workers."""
    is_declared: bool
    """Whether an application that ran here declares the task's function."""
    held_until_at: float | None = None
    """Until when the task is held back after `due_at`; None if it is not held back."""
    held_by: str = ""
    """What holds the task back: one of `HOLDERS`; empty if nothing does."""
    parents: Sequence[tuple[str, State | None]] = ()
    """The tasks it waits for, each with its state; None: deleted."""
    pauses: Pauses = NO_PAUSES
    """The paused queues and functions."""

    def gate(self, kind: GateKind, name: str) -> GateRow | None:
        """Return the gate of this kind and name; None if there is none."""
        return next((row for row in self.gates if (row.kind, row.name) == (kind, name)), None)


def explain_wait(task: WaitingTask, now: float) -> list[str]:
    """Return why a task does not run, one sentence per cause; what it waits for now comes first."""
    if task.state in FINAL:
        return [f"it is final: {task.state}"]
    if task.state is State.RUNNING:
        return ["it is running"]
    found = [
        *_state_reasons(task, now),
        *_pause_reasons(task, now),
        *_limit_reasons(task, now),
        *_worker_reasons(task),
    ]
    return found or ["nothing blocks it: it is next, or other tasks go first"]


def _state_reasons(task: WaitingTask, now: float) -> list[str]:
    if task.state is State.SCHEDULED:
        return [f"schedule: due in {_left(task.due_at, now)}"]
    if task.state is State.RETRYING:
        retry = _format_retry(task, now)
        return [f"{retry} ({task.message})" if task.message else retry, *_budget_reasons(task, now)]
    if task.state is State.SUSPENDED:
        until = "" if task.due_at is None else f", for {_left(task.due_at, now)} at most"
        return [f"suspended: {task.message}{until}"]
    if task.state is State.READY:
        return []
    if task.state is State.HELD and task.held_by == "after":
        return _parent_reasons(task)
    return [f"it is {task.state}"]


def _parent_reasons(task: WaitingTask) -> list[str]:
    """Return why each task that this task waits for has not succeeded, failed tasks first."""
    if not task.parents:
        return ["after: every task that it waits for has succeeded; it is ready within seconds"]
    found = []
    for parent, state in sorted(task.parents, key=lambda each: (each[1] not in (State.DEAD, None), each[0])):
        if state is None:
            found.append(f"after: task {parent} was deleted before it succeeded; cancel this task")
        elif state is State.DEAD:
            found.append(f"after: task {parent} is dead; redrive it: tidegate dead redrive {parent}")
        elif state is State.CANCELLED:
            found.append(f"after: task {parent} was cancelled; cancel this task too")
        else:
            found.append(f"after: task {parent} is {state}")
    return found


def _format_retry(task: WaitingTask, now: float) -> str:
    if not task.held_by or task.due_at is None:
        return f"retry: due in {_left(task.due_at, now)}"
    planned = format_duration(max(0.0, now - task.due_at))
    holder = HOLDERS.get(task.held_by, task.held_by)
    left = _left(task.held_until_at, now)
    return f"retry: planned for {planned} ago, held back by {holder} for {left} more"


def _pause_reasons(task: WaitingTask, now: float) -> list[str]:
    found = task.pauses.of_queue(task.queue), task.pauses.of_function(task.function)
    return [f"{pause.kind} {pause.name}: {pause.describe(now)}" for pause in found if pause is not None]


def _limit_reasons(task: WaitingTask, now: float) -> list[str]:
    found = []
    for kind, name in ((GateKind.UPSTREAM, task.upstream), (GateKind.FUNCTION, task.function)):
        if name and (row := task.gate(kind, name)) is not None:
            status = GateStatus(row, task.in_flight if kind is GateKind.UPSTREAM else 0, now)
            found += [f"{status.name}: {reason}" for reason in status.reasons()]
    return found


def _budget_reasons(task: WaitingTask, now: float) -> list[str]:
    system = task.gate(GateKind.SYSTEM, "") or GateRow(GateKind.SYSTEM, "", Limits())
    own = task.gate(GateKind.UPSTREAM, task.upstream) if task.upstream else None
    found = []
    for row, name in ((own, f"upstream {task.upstream}"), (system, "the system")):
        rate = None if row is None else per_minute(row)
        if row is None or rate is None:
            continue
        wait = RetryBudget(row, now).wait(urgent=False)
        if wait > 0:
            amount = rate * row.limits.retry_window_seconds / 60
            found.append(
                f"budget: {name} has spent {used_retries(row, now)} of {amount:g} retries in "
                f"{format_duration(row.limits.retry_window_seconds)}; "
                f"the next may go in {format_duration(wait)}"
            )
    return found


def _worker_reasons(task: WaitingTask) -> list[str]:
    serving = task.serving
    if unserved := serving.unserved(task.queue, task.function):
        undeclared = f"no application that ran here declares {task.function}"
        return [unserved] if task.is_declared or serving.has_unknown_functions else [unserved, undeclared]
    if serving.free_slots(task.queue) == 0:
        return [f"all slots of the workers that serve {task.queue} are in use"]
    return []


def _left(moment: float | None, now: float) -> str:
    return "no known time" if moment is None else format_duration(max(0.0, moment - now))
