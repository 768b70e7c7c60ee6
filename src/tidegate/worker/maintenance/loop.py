"""All maintenance jobs of one process, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection

from tidegate.alerts.settings import AlertSettings
from tidegate.deadletter.decided import DoubtJob
from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.retention import Retention
from tidegate.errors import StoreError
from tidegate.maps.runner import MapRunner
from tidegate.schedule.firing import ScheduleFirer
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import WorkerRow
from tidegate.worker.maintenance.alert_jobs import AlertJobs
from tidegate.worker.maintenance.capacity import CapacityWatch
from tidegate.worker.maintenance.job import MaintenanceJob
from tidegate.worker.maintenance.parents import ParentsJob
from tidegate.worker.maintenance.reaper import Reaper
from tidegate.worker.maintenance.retention import RetentionSweep
from tidegate.worker.settings import Timings

DOUBT_SECONDS = 5.0
RETENTION_SECONDS = 60.0
CAPACITY_SECONDS = 60.0
RETENTION_LIMIT = 1_000
RETENTION_SHARE = 0.1
"""The part of the time that retention works while there is more to remove, so that running work is not
slowed."""
HISTORY_SECONDS = 60.0
COMPACT_LIMIT = 1_000
FINGERPRINT_LIMIT = 500
RELEASE_LIMIT = 5_000
OPERATION_STEP_SECONDS = 0.1
"""Time between two steps of a redrive, so that other writers get their turn. A step is a short
transaction."""
RETIRED_WORKER_SECONDS = 86_400.0


class MaintenanceLoop:
    """Runs the maintenance of a store until it is stopped.

    Args:
        store: An open store.
        timings: Intervals.
        retention: How long final tasks are kept.
        rng: For jitter.
        clock: Monotonic seconds.
        on_retired: Called with each worker that was retired because its lease ran out.
        alerts: The settings of alerts; None to evaluate none.
        kind: What this process is, for people.
    """

    def __init__(
        self,
        store: Store,
        timings: Timings,
        retention: Retention,
        *,
        rng: random.Random,
        clock: Callable[[], float],
        on_retired: Callable[[WorkerRow], Awaitable[None]] | None = None,
        alerts: AlertSettings | None = None,
        kind: str = "worker",
    ) -> None:
        self._store = store
        self._timings = timings
        self._retention = retention
        self._sweep = RetentionSweep(store, retention, clock=clock)
        self._reaper = Reaper(
            store, interval=timings.reap, lease=timings.lease, clock=clock, on_retired=on_retired
        )
        self.schedules = ScheduleFirer(store, rng=rng)
        """The job that fires schedules."""
        self._parents = ParentsJob(store)
        self._maps = MapRunner(store)
        self._reap_job = MaintenanceJob(
            "reap", timings.reap, self._reaper.run_once, rng=rng, on_failure=self._reaper.reset_patience
        )
        self._jobs = [
            MaintenanceJob("promote", timings.promote, self.promote, rng=rng),
            self._reap_job,
            MaintenanceJob("schedules", timings.promote, self.schedules.run_once, rng=rng),
            MaintenanceJob(
                "operations",
                timings.promote,
                OperationRunner(store).run_once,
                rng=rng,
                busy_interval=OPERATION_STEP_SECONDS,
            ),
            MaintenanceJob("parents", timings.promote, self._parents.run_once, rng=rng),
            MaintenanceJob("maps", timings.promote, self._maps.run_once, rng=rng),
            MaintenanceJob("doubts", DOUBT_SECONDS, DoubtJob(store).run_once, rng=rng),
            MaintenanceJob(
                "retention", RETENTION_SECONDS, self.delete_expired, rng=rng, share=RETENTION_SHARE
            ),
            MaintenanceJob("history", HISTORY_SECONDS, self.compact_history, rng=rng),
            MaintenanceJob("capacity", CAPACITY_SECONDS, CapacityWatch(store).run_once, rng=rng),
        ]
        self._alerts: AlertJobs | None = None
        if alerts is not None and alerts.is_enabled:
            self._alerts = AlertJobs(store, alerts, kind=kind, rng=rng)
            self._jobs += self._alerts.jobs

    def start(self) -> None:
        """Start every job."""
        for job in self._jobs:
            job.start()

    async def stop(self) -> None:
        """Stop every job."""
        await asyncio.gather(*(job.stop() for job in self._jobs))

    def own_pids(self) -> Collection[int]:
        """Return the ids of the child processes that maintenance jobs wait for."""
        return () if self._alerts is None else self._alerts.own_pids

    def busy_seconds(self) -> float:
        """Return how long the longest current round has been running; a large value means that it hangs."""
        return max(job.busy_seconds() for job in self._jobs)

    async def requeue_orphans(self) -> None:
        """Finish the runs of retired workers now, or as soon as the store is reachable again."""
        self._reap_job.wake()

    async def requeue_last_orphans(self, within: float) -> None:
        """Finish the runs of retired workers before this process ends, unless the store is unreachable.

        Args:
            within: Give up after this many seconds.
        """
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(within):
                await self._reaper.decide_orphans()

    async def promote(self) -> bool:
        """Make due tasks ready, one batch. Return whether there is more to do at once."""
        released = await self._store.release_batches(RELEASE_LIMIT)
        promoted = await self._store.promote(self._timings.promote_batch)
        return promoted >= self._timings.promote_batch or released > 0

    async def follow_ends(self) -> bool:
        """Admit tasks whose parents ended, and end complete maps. Return whether that changed anything."""
        before = self._parents.changes + self._maps.changes
        while await self._parents.run_once() or await self._maps.run_once():
            pass
        return self._parents.changes + self._maps.changes > before

    async def delete_expired(self) -> bool:
        """Delete one batch of expired data. Return whether there is more to do at once."""
        if await self._sweep.run_once() is not None:
            return True
        deleted = await self._store.delete_expired(
            ticks_seconds=self._retention.finished, limit=RETENTION_LIMIT
        )
        deleted += await self._store.delete_old_operations(self._retention.dead, RETENTION_LIMIT)
        deleted += await self._store.delete_old_maps(self._retention.finished)
        await self._store.delete_retired_workers(RETIRED_WORKER_SECONDS)
        await self._store.checkpoint()
        return deleted >= RETENTION_LIMIT

    async def compact_history(self) -> bool:
        """Replace one batch of old counters by sums, and add one batch of missing fingerprints.

        Return whether there is more to do at once.
        """
        named = await self._store.add_fingerprints(FINGERPRINT_LIMIT)
        compacted = await self._store.compact_history(COMPACT_LIMIT)
        return compacted >= COMPACT_LIMIT or named >= FINGERPRINT_LIMIT
