"""The reaper: retires workers whose lease ran out, and ends their runs so that the tasks run again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from tidegate.domain.outcome import Dead, Outcome
from tidegate.policy.crash import crash_limit_after, decide_orphan
from tidegate.store.orphans import Orphan, ReaperPass
from tidegate.store.protocol import Store
from tidegate.store.worker_rows import WorkerRow

log = logging.getLogger("tidegate.maintenance")
PAGE_SIZE = 500


class Reaper:
    """Retires workers whose lease ran out, but only after its own passes ran without a gap for a full lease.

    After an outage of the store, the sleep of a laptop or a jump of the clock, every lease has run out while
    most workers are alive. So workers get time to send a heartbeat first. A reaper retires a worker only if
    its own passes ran without a gap for as long as the lease, and it saw no heartbeat for nearly as long. The
    reaper measures both by its own monotonic clock, so a jump of the store's clock cannot retire living
    workers. Each pass starts with a write. While the store accepts only reads, heartbeats wait and every
    worker looks silent. The write of the pass waits too, and the delayed pass counts as a gap.

    In a fleet whose machines die often, no reaper may live for a full lease. Such a reaper uses the store's
    record of all reapers' passes: they ran without a gap for a lease, and no heartbeat came in that time. The
    reaper uses that record only for workers whose row has not changed since its own passes began.

    After a longer silence a worker is retired even if its lease has not run out: if the clock was set back,
    the lease of a dead worker ends far in the future.

    Args:
        store: Holds the workers.
        interval: Seconds between passes.
        lease: Seconds of the lease for a worker whose row was missing.
        clock: Monotonic seconds.
        on_retired: Called with each worker that it has retired.
    """

    def __init__(
        self,
        store: Store,
        *,
        interval: float,
        lease: float = 30.0,
        clock: Callable[[], float],
        on_retired: Callable[[WorkerRow], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._interval = interval
        self._lease = lease
        self._longest_gap = min(max(3 * interval, 1.0), lease / 2)
        self._clock = clock
        self._on_retired = on_retired
        self._uninterrupted_since: float | None = None
        self._last_pass = 0.0
        self._last_beats: dict[str, tuple[float, float]] = {}
        """For each living worker, the end of its lease and when this reaper first saw that end."""
        self._leases_at_start: dict[str, float] | None = None
        """For each worker that existed when our passes began, the end of its lease at that time."""

    def reset_patience(self) -> None:
        """Restart the count of passes without a gap, because a pass failed."""
        self._uninterrupted_since = None

    async def run_once(self) -> bool:
        """Make one pass. Return whether there is more to do at once.

        Raises:
            StoreError: The store is unreachable. The caller must call `reset_patience`.
        """
        reaper_pass = await self._store.record_reaper_pass(
            longest_gap_seconds=self._longest_gap, lease_seconds=self._lease
        )
        for worker_id in reaper_pass.restored_workers:
            log.warning(
                "worker %s has runs but no row: its row was restored; it is retired if it sends no heartbeat",
                worker_id,
            )
        uninterrupted_seconds = self._uninterrupted_seconds()
        living = [worker for worker in await self._store.list_workers() if worker.retired_at is None]
        self._record_beats(living)
        for worker in living:
            is_expired = worker.expires_at < reaper_pass.at
            if self._has_been_silent(worker, uninterrupted_seconds, is_expired=is_expired) or (
                is_expired and self._was_silent_before(worker, reaper_pass)
            ):
                await self._retire(worker, only_if_expired=is_expired)
        return await self.decide_orphans() >= PAGE_SIZE

    def _has_been_silent(self, worker: WorkerRow, uninterrupted_seconds: float, *, is_expired: bool) -> bool:
        """Return whether our own passes prove that a worker is dead."""
        lease = worker.expires_at - worker.heartbeat_at
        silent_for = self._last_pass - self._last_beats[worker.id][1]
        # We see a heartbeat up to one pass late, but its lease started with the heartbeat itself.
        enough = max(0.75 * lease, lease - self._interval) if is_expired else lease + 3 * self._interval
        return uninterrupted_seconds >= lease and silent_for >= enough

    def _was_silent_before(self, worker: WorkerRow, reaper_pass: ReaperPass) -> bool:
        """Return whether the passes of all reapers prove that a worker is dead.

        All times are by the store's clock.
        """
        lease = worker.expires_at - worker.heartbeat_at
        silent_for = reaper_pass.at - max(worker.heartbeat_at, reaper_pass.since_at)
        is_as_at_first = (self._leases_at_start or {}).get(worker.id) == worker.expires_at
        return silent_for >= lease + self._interval and is_as_at_first

    def _record_beats(self, living: Iterable[WorkerRow]) -> None:
        """Record the heartbeats since the last pass, and forget workers that are gone."""
        last_beats: dict[str, tuple[float, float]] = {}
        for worker in living:
            known, since = self._last_beats.get(worker.id, (0.0, 0.0))
            last_beats[worker.id] = (
                worker.expires_at,
                since if known == worker.expires_at else self._last_pass,
            )
        if self._leases_at_start is None:
            self._leases_at_start = {worker_id: lease_end for worker_id, (lease_end, _) in last_beats.items()}
        self._last_beats = last_beats

    async def decide_orphans(self) -> int:
        """End the runs of every retired worker; return how many runs there were."""
        orphans = await self._store.list_orphans(PAGE_SIZE)
        if orphans:
            outcomes = [_decide(orphan) for orphan in orphans]
            await self._store.finish(outcomes)
            for orphan, outcome in zip(orphans, outcomes, strict=True):
                _log_outcome(orphan, outcome)
        return len(orphans)

    async def _retire(self, worker: WorkerRow, *, only_if_expired: bool) -> None:
        if await self._store.retire_worker(
            worker.id, why="lease ran out", is_loss=True, only_if_expired=only_if_expired
        ):
            log.warning(
                "worker %s (%s:%d) did not renew its lease, which ran out at %s; its tasks are requeued",
                worker.name,
                worker.host,
                worker.pid,
                datetime.fromtimestamp(worker.expires_at, UTC).isoformat(timespec="milliseconds"),
            )
            if self._on_retired is not None:
                await self._on_retired(worker)

    def _uninterrupted_seconds(self) -> float:
        """Return for how many seconds our passes have run without a gap."""
        now = self._clock()
        gap = now - self._last_pass
        self._last_pass = now
        if self._uninterrupted_since is None or gap > max(3 * self._interval, 1.0):
            self._uninterrupted_since = now
            self._last_beats.clear()
            self._leases_at_start = None
        return now - self._uninterrupted_since


def _decide(orphan: Orphan) -> Outcome:
    limit = orphan.crash_policy.crash_limit
    return decide_orphan(
        orphan.fence,
        why=orphan.why,
        loss=orphan.is_loss,
        cancel_requested=orphan.cancel_requested,
        crash_limit=crash_limit_after(orphan.why, limit) if orphan.is_culprit else limit,
        base_seconds=orphan.crash_policy.base_seconds,
        cap_seconds=orphan.crash_policy.max_seconds,
        counters=orphan.counters,
        culprit=orphan.is_culprit,
        may_have_called=bool(orphan.upstream),
    )


def _log_outcome(orphan: Orphan, outcome: Outcome) -> None:
    level = logging.ERROR if isinstance(outcome, Dead) else logging.WARNING
    log.log(
        level,
        "%s: %s %s, run %d was orphaned (%s)",
        "dead" if isinstance(outcome, Dead) else "requeued",
        orphan.function,
        orphan.fence.task_id,
        orphan.fence.run,
        orphan.why,
    )
