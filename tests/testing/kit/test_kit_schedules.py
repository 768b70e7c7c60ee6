"""Schedules in a test: they tick as the test's clock goes on."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest

from tidegate import Context, Tidegate
from tidegate.testing import Kit

NOWHERE = "/dev/null/never-opened.db"
app = Tidegate(f"sqlite:///{NOWHERE}")
moments: list[datetime] = []
running: list[datetime] = []
most_running: list[int] = []


@app.schedule("0 * * * *", args=("hourly",))
@app.task(name="note")
async def note(ctx: Context, word: str) -> str:
    assert ctx.scheduled_for is not None
    assert ctx.schedule == "note"
    moments.append(ctx.scheduled_for)
    return word


slow_app = Tidegate(f"sqlite:///{NOWHERE}")


@slow_app.schedule("every 10m", overlap="queue", name="slow")
@slow_app.task(name="slow", timeout="2h", total_timeout="3h")
async def slow(ctx: Context) -> None:
    assert ctx.scheduled_for is not None
    moments.append(ctx.scheduled_for)
    running.append(ctx.scheduled_for)
    most_running.append(len(running))
    await asyncio.sleep(25 * 60)
    running.remove(ctx.scheduled_for)


@pytest.fixture(autouse=True)
def fresh_moments() -> None:
    for noted in (moments, running, most_running):
        noted.clear()


def test_a_day_of_an_hourly_schedule_is_24_tasks() -> None:
    with Kit(app) as kit:
        drained = kit.advance_sync(hours=24)
        assert drained.succeeded == 24
        kit.assert_enqueued(note, args=("hourly",), count=24)
    assert [later - earlier for earlier, later in itertools.pairwise(moments)] == [timedelta(hours=1)] * 23
    assert {(moment.tzinfo, moment.minute, moment.second) for moment in moments} == {(UTC, 0, 0)}


def test_two_advances_fire_what_one_fires() -> None:
    with Kit(app) as kit:
        assert sum(kit.advance_sync(hours=6).succeeded for _ in range(4)) == 24


def test_a_drain_fires_no_schedule_so_that_its_result_does_not_depend_on_the_time_of_day() -> None:
    with Kit(app) as kit:
        kit._clock.jump(7_200.0)
        assert len(kit.drain_sync()) == 0


def test_an_advance_that_reaches_no_tick_jumps_at_once() -> None:
    with Kit(app) as kit:
        now = kit.now()
        to_the_hour = timedelta(hours=1) - (now - now.replace(minute=0, second=0, microsecond=0))
        if to_the_hour < timedelta(minutes=1):
            kit.advance_sync(minutes=1)
            to_the_hour += timedelta(minutes=59)
        assert len(kit.advance_sync(to_the_hour - timedelta(seconds=50))) == 0
        assert kit.advance_sync(minutes=1).succeeded == 1


async def test_an_async_test_advances_schedules_too() -> None:
    async with Kit(app) as kit:
        assert (await kit.advance(hours=3)).succeeded == 3


def test_a_queued_tick_runs_after_the_earlier_task_and_never_beside_it() -> None:
    with Kit(slow_app) as kit:
        drained = kit.advance_sync(hours=2, limit=60)
    assert drained.succeeded in (5, 6)  # it depends on the minute at which the test begins
    assert set(most_running) == {1}
    waits = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert set(waits) <= {timedelta(minutes=10), timedelta(minutes=20), timedelta(minutes=30)}


def test_a_paused_schedule_does_not_tick() -> None:
    with Kit(app) as kit:
        kit._store.now_complete(kit._store.pause_schedule("note"))
        assert len(kit.advance_sync(hours=24)) == 0


def test_a_schedule_declared_after_the_test_began_ticks() -> None:
    late = Tidegate(f"sqlite:///{NOWHERE}")
    with Kit(late) as kit:

        @late.schedule("every 1h", name="late")
        @late.task(name="late")
        async def late_task() -> None: ...

        assert kit.advance_sync(hours=2).succeeded == 2
