"""Explains what delays a queue, with numbers and with the ids of tasks that wait."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidegate.domain.states import State
from tidegate.domain.text import counted
from tidegate.operations.overview import read_queues
from tidegate.operations.tasks import explain
from tidegate.policy.drain import Drain
from tidegate.store.protocol import Store
from tidegate.store.rows import QueueStats, TaskFilter

EXAMPLES = 3
"""How many tasks of each state are shown with their reasons."""


@dataclass(frozen=True, slots=True)
class WaitingExample:
    """One task that waits, and why."""

    task_id: str
    state: State
    function: str
    why: Sequence[str]


@dataclass(frozen=True, slots=True)
class QueueCauses:
    """What delays a queue."""

    queue: str
    drain: Drain
    causes: Sequence[str]
    """The causes as sentences, the most important first."""
    examples: Sequence[WaitingExample]


async def explain_queue(store: Store, queue: str, own: Collection[str]) -> QueueCauses | None:
    """Return what delays a queue; None if it has no task and finished none lately.

    Args:
        store: Holds the tasks.
        queue: The name of the queue.
        own: The functions that the caller's application declares.
    """
    stats = next((each for each in await read_queues(store) if each.queue == queue), None)
    if stats is None:
        return None
    examples = []
    for state in (State.READY, State.RETRYING):
        for row in await store.list_tasks(TaskFilter(states=(state,), queue=queue), limit=EXAMPLES):
            why = await explain(store, row, own)
            examples.append(WaitingExample(row.id, state, row.function, why))
    return QueueCauses(queue, stats.drain, _causes(stats), examples)


def _causes(stats: QueueStats) -> list[str]:
    waiting = stats.ready + stats.paced + stats.blocked
    kinds = f"{stats.ready} ready, {stats.paced} paced, {stats.blocked} blocked"
    waits = sorted(stats.waits, key=lambda wait: -wait.tasks)
    found = [
        f"{counted(waiting, 'task')} waiting: {kinds}; {stats.running} running",
        stats.drain.describe(),
        *(f"{counted(wait.tasks, 'task')} {wait.kind}: {wait.by}: {wait.reason}" for wait in waits),
    ]
    for tasks, words in (
        (stats.retrying, "wait for a retry"),
        (stats.scheduled, "are scheduled for later"),
        (stats.held, "are held"),
        (stats.suspended, "are suspended: they wait for a time, an event or other tasks"),
        (stats.dead, "are dead: tidegate dead groups"),
    ):
        if tasks:
            found.append(f"{tasks:,} {words}")
    return found
