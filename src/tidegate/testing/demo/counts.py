"""The demo's counts at one moment, read from the store and the provider's call log."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.store.protocol import Store
from tidegate.testing.provider.ledger import Ledger


@dataclass(frozen=True, slots=True)
class DemoCounts:
    """The counts of tasks and calls at one moment."""

    elapsed_seconds: float
    submitted: int
    ready: int = 0
    running: int = 0
    waiting: int = 0
    """Tasks that wait for their next run."""
    dead: int = 0
    calls: int = 0
    """Calls that reached the provider."""
    throttled: int = 0
    """Calls that the provider refused for their rate."""

    @property
    def succeeded(self) -> int:
        """Tasks that succeeded: all that are neither unfinished nor dead."""
        return self.submitted - self.unfinished - self.dead

    @property
    def unfinished(self) -> int:
        """Tasks that are not final."""
        return self.ready + self.running + self.waiting


async def read_counts(store: Store, ledger: Ledger, *, elapsed: float, submitted: int) -> DemoCounts:
    """Return the present counts.

    Raises:
        StoreError: The store cannot be reached.
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
