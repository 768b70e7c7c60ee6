"""Several processes fire the same schedules and are killed at each step: one task a tick, and none is missed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from schedule_build import Schedules
from store_build import START, Build, SettableClock, succeeded

from tidegate.domain.schedule import CatchUp, Overlap, ScheduleRule, TickOutcome
from tidegate.domain.states import State
from tidegate.schedule.firing import ScheduleFirer
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter

pytestmark = pytest.mark.anyio

EACH = ScheduleRule(every_seconds=1, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
STEPS = [
    (call, moment)
    for call in ("list_due_schedules", "now", "fire_schedules")
    for moment in ("before", "after")
]


class Killed(BaseException):
    """The process ends at this point, so nothing catches it."""


class DyingStore:
    """The store as one process sees it, until it is killed at one of its calls.

    Args:
        store: The store.
        kills: Called with (call, `before` or `after`); returns whether the process is killed there. After the
            call its work is done, and the answer is lost.
    """

    def __init__(self, store: Store, kills: Callable[[str, str], bool]) -> None:
        self._store = store
        self._kills = kills

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Coroutine[Any, Any, Any]] = getattr(self._store, name)

        async def killable(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            if self._kills(name, "before"):
                raise Killed
            answer = await call(*args, **kwargs)
            if self._kills(name, "after"):
                raise Killed
            return answer

        return killable


async def live(store: Store, kills: Callable[[str, str], bool], rng: random.Random) -> bool:
    """Let a process fire what is due once; return whether it was killed meanwhile."""
    try:
        await ScheduleFirer(DyingStore(store, kills), rng=rng).run_once()  # type: ignore[arg-type]
    except Killed:
        return True
    return False


async def check_each_second(schedules: Schedules, names: list[str], seconds: int) -> None:
    """Check that each schedule has one task for each second, and that no task belongs to no tick."""
    stored = {row.id for row in await schedules.store.list_tasks(TaskFilter(), limit=10_000)}
    fired: set[str | None] = set()
    for name in names:
        ticks = await schedules.ticks(name)
        assert [tick.at - START for tick in ticks] == [float(second) for second in range(1, seconds + 1)]
        assert {tick.outcome for tick in ticks} == {TickOutcome.FIRED}
        fired |= {tick.task_id for tick in ticks}
    assert len(fired) == len(names) * seconds
    assert fired == stored


@pytest.mark.parametrize(("call", "moment"), STEPS, ids=["-".join(step) for step in STEPS])
async def test_a_process_killed_at_one_step_loses_and_repeats_no_tick(
    schedules: Schedules, twin: Store, call: str, moment: str
) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await schedules.add(name, EACH)
    rng = random.Random(1)

    for _ in range(4):
        schedules.clock.advance(1.0)
        assert await live(schedules.store, lambda *step: step == (call, moment), rng)
        assert not await live(twin, lambda *_: False, rng)

    await check_each_second(schedules, names, 4)


@pytest.mark.parametrize("seed", range(4))
async def test_five_processes_killed_at_random_fire_each_tick_once(
    schedules: Schedules, twin: Store, seed: int
) -> None:
    names = [f"s{number}" for number in range(6)]
    for name in names:
        await schedules.add(name, EACH)
    rng = random.Random(seed)

    kills = 0
    for _ in range(12):
        schedules.clock.advance(1.0)
        processes = [
            live(store, lambda *_: rng.random() < 0.15, rng) for store in [schedules.store, twin] * 2 + [twin]
        ]
        kills += sum(await asyncio.gather(*processes))
    await live(schedules.store, lambda *_: False, rng)

    assert kills > 5
    await check_each_second(schedules, names, 12)


async def test_processes_that_race_for_a_queued_tick_never_run_two_at_once(
    schedules: Schedules, twin: Store, build: Build, clock: SettableClock
) -> None:
    rule = replace(EACH, overlap=Overlap.QUEUE)
    await schedules.add("line", rule)
    rng = random.Random(2)
    worker = await build.worker()

    moments = []
    for _ in range(10):
        clock.advance(1.0)
        await asyncio.gather(
            *(live(store, lambda *_: rng.random() < 0.2, rng) for store in [schedules.store, twin] * 2)
        )
        await live(twin, lambda *_: False, rng)
        states = await schedules.store.list_tasks(TaskFilter(states=(State.READY, State.RUNNING)))
        assert len(states) == 1
        (task,) = await build.claim(worker)
        moments.append(task.labels["tidegate.scheduled_for"])
        await build.done(succeeded(task.fence))

    assert len(set(moments)) == 10
    assert moments == sorted(moments)
