"""Makes schedules for the tests of every store, and fires them as maintenance does."""

from __future__ import annotations

import random
from typing import Any

from store_build import START, SettableClock

from tidegate.codec.tags import CODEC
from tidegate.domain.schedule import ScheduledTask, ScheduleRule
from tidegate.policy.ticks import next_tick
from tidegate.schedule.firing import ScheduleFirer
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import NewSchedule, ScheduleAnswer, TickRow

MINUTELY = ScheduleRule(cron="* * * * *")
TASK = ScheduledTask(function="app:work", queue="main", args='{"n":1}', codec_tag=CODEC)


def schedule(name: str = "minutely", rule: ScheduleRule = MINUTELY, **changes: Any) -> NewSchedule:
    """Return a schedule to store, whose next tick is the first one after the start."""
    if "next_at" not in changes:
        changes["next_at"] = next_tick(rule, START)
    return NewSchedule(name, rule, **{"task": TASK} | changes)


class Schedules:
    """One process that fires schedules, with the store's clock."""

    def __init__(self, store: Store, clock: SettableClock) -> None:
        self.store = store
        self.clock = clock
        self.firer = ScheduleFirer(store, rng=random.Random(3))

    async def add(self, name: str = "minutely", rule: ScheduleRule = MINUTELY, **changes: Any) -> None:
        """Store a person's schedule."""
        assert await self.store.add_schedule(schedule(name, rule, **changes)) is ScheduleAnswer.DONE

    async def pass_time(self, seconds: float) -> None:
        """Move the clock, and fire what is due."""
        self.clock.advance(seconds)
        await self.firer.run_once()

    async def ticks(self, name: str = "minutely") -> list[TickRow]:
        """Return the ticks of a schedule, oldest first."""
        return list(reversed(await self.store.list_ticks(name, limit=1_000)))

    async def outcomes(self, name: str = "minutely") -> list[tuple[float, str, str]]:
        """Return (seconds since the start, outcome, reason) of each tick, oldest first."""
        return [(tick.at - START, tick.outcome.value, tick.reason) for tick in await self.ticks(name)]
