"""The maintenance job that fires due ticks. Any number of processes may run it at the same time."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Iterator, Sequence

from tidegate.domain.ids import IdMaker
from tidegate.domain.schedule import Overlap, TickOutcome, TickReason
from tidegate.errors import StoreError
from tidegate.policy.due_ticks import decide_due_ticks
from tidegate.schedule.scheduled_tasks import new_task
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import DueSchedule, FiredTick, Firing

log = logging.getLogger("tidegate.schedules")

PAGE_SIZE = 200
"""How many schedules are read at once."""
BATCH_TASKS = 500
"""The most tasks that one transaction enqueues, unless a single schedule has more."""


class ScheduleFirer:
    """Fires the due ticks of all schedules.

    The job plans from what it has read. The store refuses a plan if another process has fired or changed the
    schedule since then, so no leader is needed.

    Args:
        store: Holds the schedules.
        rng: For task ids.
    """

    def __init__(self, store: Store, *, rng: random.Random) -> None:
        self._store = store
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, rng.getrandbits)
        self._broken: set[str] = set()
        """The schedules whose ticks cannot be decided or stored; each is logged once."""

    async def run_once(self) -> bool:
        """Fire the due ticks. Always return False: there is never more to do at once.

        Raises:
            StoreError: The store is unreachable.
        """
        await self.fire_due()
        return False

    async def fire_due(self, until: float = math.inf) -> int:
        """Fire the due ticks; return how many tasks were enqueued.

        Args:
            until: Ticks after this moment are not due yet. For tests with their own clock.

        Raises:
            StoreError: The store is unreachable.
        """
        tasks = 0
        after: tuple[float, str] | None = None
        while due := await self._store.list_due_schedules(after=after, limit=PAGE_SIZE):
            now = min(await self._store.now(), until)
            firings = [firing for each in due if (firing := self._plan(each, now)) is not None]
            for batch in _batches(firings):
                tasks += await self._fire(batch)
            read = [
                (each.row.next_at, each.row.name)
                for each in due
                if each.row.next_at is not None and each.row.next_at <= now
            ]
            if len(read) < PAGE_SIZE:
                break
            after = max(read)
        return tasks

    def _plan(self, due: DueSchedule, now: float) -> Firing | None:
        """Decide about the due ticks of a schedule; return None if nothing changes or none can be decided."""
        row = due.row
        try:
            rule, task = row.rule, row.task
            decision = decide_due_ticks(
                rule, row.next_at, now, is_busy=bool(due.unfinished), queued=due.queued
            )
            if not decision.ticks and decision.next_at == row.next_at:
                return None
            ticks = []
            for decided in decision.ticks:
                fires = decided.outcome is TickOutcome.FIRED
                made = (
                    new_task(row.name, task, task_id=self._make_id(), scheduled_for=decided.at)
                    if fires
                    else None
                )
                ticks.append(FiredTick(decided, made, fires and rule.overlap is not Overlap.ALLOW))
        except Exception as error:  # one bad schedule must not stop the others
            self._report_broken(row.name, error)
            return None
        for tick in ticks:
            _log_unfired(row.name, tick)
        return Firing(row.name, row.revision, decision.next_at, ticks)

    async def _fire(self, firings: Sequence[Firing]) -> int:
        """Store some firings; if one cannot be stored, still store the others.

        Return how many tasks were enqueued.

        Raises:
            StoreError: The store is unreachable.
        """
        try:
            tasks = await self._store.fire_schedules(firings)
        except StoreError:
            raise
        except Exception as error:
            if len(firings) == 1:
                self._report_broken(firings[0].name, error)
                return 0
            return sum([await self._fire([firing]) for firing in firings])
        self._broken -= {firing.name for firing in firings}
        return tasks

    def _report_broken(self, name: str, error: Exception) -> None:
        if name not in self._broken:
            self._broken.add(name)
            log.error("schedule %s cannot fire, and waits until it is changed: %s", name, error)


def _batches(firings: Sequence[Firing]) -> Iterator[list[Firing]]:
    batch: list[Firing] = []
    tasks = 0
    for firing in firings:
        if batch and tasks + len(firing.ticks) > BATCH_TASKS:
            yield batch
            batch, tasks = [], 0
        batch.append(firing)
        tasks += len(firing.ticks)
    if batch:
        yield batch


def _log_unfired(name: str, tick: FiredTick) -> None:
    decided = tick.decided
    if decided.outcome is TickOutcome.MISSED or decided.reason == TickReason.TOO_LATE:
        log.warning(
            "schedule %s: %d tick%s %s (%s), the first planned for %.0f",
            name,
            decided.ticks,
            "" if decided.ticks == 1 else "s",
            decided.outcome,
            decided.reason,
            decided.at,
        )
