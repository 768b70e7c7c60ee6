"""Why a task does not run, in sentences, from what the store knows; what it waits for now comes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.domain.states import FINAL, State
from tidegate.domain.upstream import GateKind, GateRow, Limits, Meter
from tidegate.policy import gate as gates
from tidegate.policy import pacing
from tidegate.policy.admission import blocked
from tidegate.policy.budget import Budget, per_minute, used
from tidegate.policy.gate_words import block_in_words, gate_in_words
from tidegate.policy.learned import paced
from tidegate.policy.words import duration


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of one task and of what may stand before it."""

    state: State
    queue: str
    function: str
    upstream: str
    due_at: float | None
    message: str
    """Of the last failure, or why it waits."""
    gates: Sequence[GateRow]
    in_flight: int
    """Runs and calls of its upstream."""
    is_served: bool
    """Whether a live worker serves its queue."""
    is_declared: bool
    """Whether some application that ran here declares its function."""
    free_slots: int
    """Of the live workers that serve its queue."""

    def gate(self, kind: GateKind, name: str) -> GateRow | None:
        """Return one of the gates."""
        return next((row for row in self.gates if (row.kind, row.name) == (kind, name)), None)


def why(task: Waiting, now: float) -> list[str]:
    """Return what keeps a task, the most telling first."""
    if task.state in FINAL:
        return [f"it is final: {task.state}"]
    if task.state is State.RUNNING:
        return ["it runs"]
    found = [*_of_its_state(task, now), *_of_its_limits(task, now), *_of_the_workers(task)]
    return found or ["nothing holds it: it is next, or the tasks before it go first"]


def _of_its_state(task: Waiting, now: float) -> list[str]:
    if task.state is State.SCHEDULED:
        return [f"schedule: due in {_left(task.due_at, now)}"]
    if task.state is State.RETRYING:
        words = f"retry: due in {_left(task.due_at, now)}"
        return [f"{words} ({task.message})" if task.message else words, *_of_its_budgets(task, now)]
    if task.state is State.READY:
        return []
    return [f"it is {task.state}"]


def _of_its_limits(task: Waiting, now: float) -> list[str]:
    found = []
    for kind, name, what in (
        (GateKind.UPSTREAM, task.upstream, f"upstream {task.upstream}"),
        (GateKind.FUNCTION, task.function, f"rate limit of {task.function}"),
    ):
        if (row := task.gate(kind, name)) is not None and name:
            found += [f"{what}: {words}" for words in _of_a_gate(row, task.in_flight, now)]
    return found


def _of_a_gate(row: GateRow, in_flight: int, now: float) -> list[str]:
    gate, limits = gates.as_of(row.gate, row.limits, now), row.limits
    if (block := blocked(row, now)) is not None:
        return [f"gate: {block_in_words(block, limits, now)}"]
    if gates.is_held(gate):
        return [f"gate: {gate_in_words(gate, limits, now)}"]
    found = []
    if row.kind is GateKind.UPSTREAM and gates.room(gate, limits, in_flight) == 0:
        found.append(f"limit: {in_flight} are in flight, no more may be now")
    waits = {
        window.name: pacing.slot_at(window, row.meters.get(window.name, Meter()), now) - now
        for window in paced(limits, gate, now).windows
    }
    found += [f"limit: {name}, next slot in {duration(wait)}" for name, wait in waits.items() if wait > 0]
    return found


def _of_its_budgets(task: Waiting, now: float) -> list[str]:
    system = task.gate(GateKind.SYSTEM, "") or GateRow(GateKind.SYSTEM, "", Limits())
    own = task.gate(GateKind.UPSTREAM, task.upstream) if task.upstream else None
    found = []
    for row, name in ((own, f"upstream {task.upstream}"), (system, "the system")):
        rate = None if row is None else per_minute(row)
        if row is None or rate is None:
            continue
        wait = Budget(row, now).wait(urgent=False)
        if wait > 0:
            amount = rate * row.limits.retry_window_seconds / 60
            found.append(
                f"budget: {name} has spent {used(row, now)} of {amount:g} re-runs in "
                f"{duration(row.limits.retry_window_seconds)}; the next may go in {duration(wait)}"
            )
    return found


def _of_the_workers(task: Waiting) -> list[str]:
    checks: list[tuple[bool, Callable[[], str]]] = [
        (not task.is_served, lambda: f"nothing serves the queue {task.queue}: no live worker"),
        (not task.is_declared, lambda: f"no application that ran here declares {task.function}"),
        (
            task.is_served and task.free_slots == 0,
            lambda: f"all slots of the workers that serve {task.queue} are in use",
        ),
    ]
    return [words() for applies, words in checks if applies]


def _left(moment: float | None, now: float) -> str:
    return "no known time" if moment is None else duration(max(0.0, moment - now))
