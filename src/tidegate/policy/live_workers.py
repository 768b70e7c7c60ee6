"""Decides whether a live worker can run a task: the worker must serve its queue and declare its function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

ANY_QUEUE = "*"
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """One live pool process and the tasks it can run."""

    queues: Collection[str]
    functions: Collection[str] | None = None
    """The functions that the process's application declares; None if unknown."""
    free_slots: int = 0
    slots: int = 0

    def serves(self, queue: str) -> bool:
        """Return whether the process claims tasks of this queue."""
        return ANY_QUEUE in self.queues or queue in self.queues

    def declares(self, function: str) -> bool:
        """Return whether the process can run this function; True if its functions are unknown."""
        return self.functions is None or function in self.functions


@dataclass(frozen=True, slots=True)
class LiveWorkers:
    """All live workers together."""

    workers: Sequence[LiveWorker]

    def unserved(self, queue: str, function: str) -> str:
        """Return why no live worker runs such tasks, and what to do; empty if a worker does."""
        if not self.workers:
            return f"nothing serves the queue {queue}: no live worker; start one: tidegate worker MODULE:APP"
        serving = [worker for worker in self.workers if worker.serves(queue)]
        if not serving:
            queues = {name for worker in self.workers for name in worker.queues}
            return (
                f"nothing serves the queue {queue}: the live workers serve {_listed(queues)};"
                f" add it to a pool's queues in tidegate.toml, or start one: tidegate worker --queues {queue}"
            )
        if not any(worker.declares(function) for worker in serving):
            return (
                f"no live worker that serves {queue} declares the function {function}: it was renamed or"
                f' removed, or another application declares it; give it its old name (name="{function}"),'
                f" start a worker of that application, or, if it is in a module that the application does not"
                f' import, write modules = ["{function.partition(":")[0]}"] into tidegate.toml'
            )
        return ""

    @property
    def has_unknown_functions(self) -> bool:
        """Return whether some worker's functions are unknown."""
        return any(worker.functions is None for worker in self.workers)

    def free_slots(self, queue: str) -> int:
        """Return the free slots of the workers that serve a queue."""
        return sum(worker.free_slots for worker in self.workers if worker.serves(queue))

    def slots(self, queue: str) -> int:
        """Return all slots of the workers that serve a queue."""
        return sum(worker.slots for worker in self.workers if worker.serves(queue))


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _MOST_NAMES} more" if len(ordered) > _MOST_NAMES else ""
    return ", ".join(ordered[:_MOST_NAMES]) + more
