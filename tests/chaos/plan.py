"""The plan of one run: its seed, its size, and the times within which the system must recover.

Every checked wait has its bound here. The checks add stalls of the machine to a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.record import Bounds, orphan_bound
from tidegate import Pool, Timings
from tidegate.worker.engine.pool_main import ORPHAN_SECONDS

SHORTEST_SECONDS = 5.0
KILLS_PER_SECOND = 1 / 3
FEWEST_KILLS = 12
RUNNING = 50
"""Tasks that must be running when the store becomes unreachable or everything is frozen."""
LONGEST_BODY_LEASES = 4.0
LONGEST_DELAY_LEASES = 3.0
CRASH_WAIT_SECONDS = 0.2
"""First wait after a second crash; doubled each time."""
CRASH_WAIT_CAP_SECONDS = 2.0
START_SECONDS = 60.0
"""For a worker command until its pool process takes tasks, on a machine with better things to do."""
BATCHED_FROM = 25
"""Tasks in one transaction; more are enqueued in batches; the real limit is 5,000."""


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """One run. The seed chooses the faults; what they hit depends on the machine."""

    seed: int
    seconds: float = 300.0
    """How long faults are injected, outages and freezes included."""
    workers: int = 4
    lease: float = 2.0

    @property
    def clients(self) -> int:
        """Client processes."""
        return max(1, self.workers // 2)

    @property
    def tasks_per_second(self) -> float:
        """Of all clients together."""
        return 4.0 * self.workers

    @property
    def kills(self) -> int:
        """How many kills of workers there must be."""
        return max(FEWEST_KILLS, math.ceil(self.seconds * KILLS_PER_SECOND))

    @property
    def outages(self) -> int:
        """How often the store becomes unreachable; everything is frozen as often, at other times."""
        return max(1, round(self.seconds / 100))

    @property
    def outage_seconds(self) -> float:
        """How long the store is unreachable or everything frozen: twice the lease."""
        return 2.0 * self.lease

    @property
    def slots(self) -> int:
        """Tasks at once on each worker."""
        return math.ceil(1.3 * RUNNING / self.workers)

    @property
    def timings(self) -> Timings:
        """Every clock of the workers, in the proportions of the defaults where they matter."""
        return Timings(
            lease=self.lease,
            beat=self.lease / 4,
            reap=self.lease / 4,
            promote=0.1,
            stop_grace=self.lease / 2,
            drain_grace=self.lease,
            cancel_poll=0.1,
            stall_limit=2.0 * self.lease,
        )

    @property
    def pool(self) -> Pool:
        """The pool of each worker."""
        return Pool(concurrency=self.slots, poll_interval=0.1)

    # --- bounds, in seconds ----------------------------------------------------------------------------

    @property
    def crash_bound(self) -> float:
        """After a kill, until the living supervisor has decided the runs of the dead process."""
        return 5.0

    @property
    def orphan_bound(self) -> float:
        """Time after a kill until any reaper without a fault has decided the runs of the dead worker."""
        return orphan_bound(self.timings)

    @property
    def observation_seconds(self) -> float:
        """Time after an outage or a freeze until a wrong decision of a reaper would show."""
        return self.lease + 3 * self.timings.reap

    @property
    def claim_bound(self) -> float:
        """Time after a run was decided and its wait is over until a worker without a fault claims it.

        The longest functions may use all slots.
        """
        return LONGEST_BODY_LEASES * self.lease + self.timings.promote + 2.0

    @property
    def orphan_process_bound(self) -> float:
        """After the kill of a supervisor, until its pool process has ended by itself."""
        return ORPHAN_SECONDS + 2.0

    @property
    def drain_bound(self) -> float:
        """After SIGTERM, until the worker command has ended."""
        return self.lease + 4 * self.timings.stop_grace + 5.0

    @property
    def cancel_bound(self) -> float:
        """Time after a cancel request until a function that notices it has stopped and its end is stored."""
        return self.timings.cancel_poll + 4.0

    def bounds(self, open_tasks: int) -> Bounds:
        """Return the bounds that the checks use, with this many open tasks at the end of the faults."""
        return Bounds(
            lease=self.lease,
            reap=self.timings.reap,
            orphan=self.orphan_bound,
            final=self.final_bound(open_tasks),
            stop=self.drain_bound,
            cancel=self.cancel_bound,
            crash=self.crash_bound,
            claim=self.claim_bound,
        )

    def final_bound(self, open_tasks: int) -> float:
        """Time after the last fault until this many open tasks are all final.

        Orphans are found first, by reapers that restart their patience. Each task may need a few more runs,
        each with the longest wait before it; all tasks share the slots.
        """
        rounds = 1 + open_tasks / (self.workers * self.slots)
        waits = LONGEST_DELAY_LEASES * self.lease + 3 * CRASH_WAIT_CAP_SECONDS
        return (
            START_SECONDS
            + self.orphan_bound
            + self.lease
            + waits
            + 3 * rounds * LONGEST_BODY_LEASES * self.lease
        )
