"""The patient reaper: workers whose lease ran out are retired, and their runs are taken up again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidegate.domain.outcome import Dead, Outcome
from tidegate.policy.crash import decide_orphan
from tidegate.store.protocol import Store
from tidegate.store.rows import Orphan

log = logging.getLogger("tidegate.steward")
PAGE = 500


class Reaper:
    """Retires expired workers, but only after one full lease of its own uninterrupted passes.

    After an outage of the store, or the sleep of a laptop, every lease has run out although most workers
    live. So everyone gets the time to beat first: a lease is judged only by a reaper that has itself
    been passing without a gap for as long as that lease.

    Args:
        store: Whose workers.
        interval: Seconds between passes.
        lease: Seconds of patience: the lease of the workers it may retire.
        clock: Monotonic seconds.
    """

    def __init__(self, store: Store, *, interval: float, lease: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._interval = interval
        self._lease = lease
        self._clock = clock
        self._passing_since: float | None = None
        self._last_pass = 0.0

    def interrupted(self) -> None:
        """Begin the patience anew: a pass failed."""
        self._passing_since = None

    async def act(self) -> bool:
        """Make one pass. Return whether there is more to do at once.

        Raises:
            StoreError: The store is away; patience begins anew.
        """
        now_at_start = await self._store.now()
        if self._is_patient():
            for worker in await self._store.workers():
                if worker.retired_at is None and worker.expires_at < now_at_start:
                    await self._retire(worker.id, worker.expires_at)
        return await self.bury_and_retry() >= PAGE

    async def bury_and_retry(self) -> int:
        """Decide the runs of every retired worker; return how many there were."""
        orphans = await self._store.orphans(PAGE)
        if orphans:
            outcomes = [_decide(orphan) for orphan in orphans]
            await self._store.finish(outcomes)
            for orphan, outcome in zip(orphans, outcomes, strict=True):
                _tell(orphan, outcome)
        return len(orphans)

    async def _retire(self, worker_id: str, expired_at: float) -> None:
        if await self._store.retire_worker(worker_id, why="lease ran out", loss=True, only_if_expired=True):
            log.warning(
                "worker %s did not renew its lease (ran out at %.3f); its runs are taken up again",
                worker_id,
                expired_at,
            )

    def _is_patient(self) -> bool:
        now = self._clock()
        gap = now - self._last_pass
        self._last_pass = now
        if self._passing_since is None or gap > max(3 * self._interval, 1.0):
            self._passing_since = now
        return now - self._passing_since >= self._lease


def _decide(orphan: Orphan) -> Outcome:
    return decide_orphan(
        orphan.fence,
        why=orphan.why,
        loss=orphan.loss,
        cancel_requested=orphan.cancel_requested,
        crash_limit=orphan.terms.crash_limit,
        base_seconds=orphan.terms.base_seconds,
        cap_seconds=orphan.terms.cap_seconds,
        counters=orphan.counters,
    )


def _tell(orphan: Orphan, outcome: Outcome) -> None:
    level = logging.ERROR if isinstance(outcome, Dead) else logging.WARNING
    log.log(
        level,
        "%s: %s %s, run %d was orphaned (%s)",
        "dead" if isinstance(outcome, Dead) else "taken up again",
        orphan.function,
        orphan.fence.task_id,
        orphan.fence.run,
        orphan.why,
    )
