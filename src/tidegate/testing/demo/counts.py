"""What can be said of the demo at one moment, read from the store and the provider's ledger."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.protocol import Store
from tidegate.testing.provider.ledger import Ledger


@dataclass(frozen=True, slots=True)
class DemoCounts:
    """A moment of the demo. Counts are of tasks, but for the calls."""

    elapsed_seconds: float
    submitted: int
    ready: int = 0
    running: int = 0
    waiting: int = 0
    """For their next run."""
    dead: int = 0
    calls: int = 0
    """The provider has seen."""
    throttled: int = 0
    """Of them refused for their rate."""

    @property
    def succeeded(self) -> int:
        """Tasks that are neither dead nor anywhere else."""
        return self.submitted - self.unfinished - self.dead

    @property
    def unfinished(self) -> int:
        """Tasks that are not final."""
        return self.ready + self.running + self.waiting


async def read_counts(store: Store, ledger: Ledger, *, elapsed: float, submitted: int) -> DemoCounts:
    """Return the figures of this moment.

    Raises:
        StoreError: The store is away.
    """
    queues = await store.get_queue_stats()
    calls = ledger.summary()
    return DemoCounts(
        elapsed_seconds=elapsed,
        submitted=submitted,
        ready=sum(queue.ready + queue.paced + queue.blocked for queue in queues),
        running=sum(queue.running for queue in queues),
        waiting=sum(queue.retrying + queue.scheduled + queue.held + queue.suspended for queue in queues),
        dead=sum(queue.dead for queue in queues),
        calls=calls.calls,
        throttled=calls.throttled,
    )
