"""People and applications change schedules. No change fires a tick."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_build import MINUTELY, TASK, Schedules, schedule
from store_build import START, Build, SettableClock, expire

from tidegate.domain.schedule import Overlap, ScheduleRule
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter
from tidegate.store.schedule_rows import ScheduleAnswer, ScheduleRow

pytestmark = pytest.mark.anyio

HOURLY = ScheduleRule(cron="0 * * * *")
QUEUE = replace(MINUTELY, overlap=Overlap.QUEUE)


async def stored(store: Store, name: str = "minutely") -> ScheduleRow:
    row = await store.get_schedule(name)
    assert row is not None
    return row


async def names(store: Store) -> list[str]:
    return [row.name for row in await store.list_schedules()]


# --- people ----------------------------------------------------------------------------------------------


async def test_a_stored_schedule_reads_back_as_it_was_added(store: Store) -> None:
    added = schedule()
    assert await store.add_schedule(added) is ScheduleAnswer.DONE

    row = await stored(store)
    assert (row.name, row.application, row.rule, row.task) == ("minutely", "", MINUTELY, TASK)
    assert (row.next_at, row.changed_at, row.paused_at, row.tick) == (START + 60.0, START, None, None)


async def test_a_second_schedule_of_the_same_name_is_refused_unless_it_is_equal(store: Store) -> None:
    await store.add_schedule(schedule())

    assert await store.add_schedule(schedule()) is ScheduleAnswer.DONE
    assert await store.add_schedule(schedule(rule=HOURLY)) is ScheduleAnswer.EXISTS

    assert (await stored(store)).rule == MINUTELY


async def test_schedules_are_listed_by_name_in_pages_with_their_latest_tick(schedules: Schedules) -> None:
    for name in ("b", "a", "c"):
        await schedules.add(name)
    await schedules.pass_time(60.0)

    first = await schedules.store.list_schedules(limit=2)
    rest = await schedules.store.list_schedules(after=first[-1].name, limit=2)

    assert [row.name for row in (*first, *rest)] == ["a", "b", "c"]
    assert [row.tick.outcome if row.tick else None for row in (*first, *rest)] == ["fired"] * 3


async def test_an_edit_of_the_moments_counts_from_now_and_fires_nothing(
    schedules: Schedules, clock: SettableClock
) -> None:
    await schedules.add(rule=HOURLY)
    clock.advance(3_000.0)

    edited = schedule(next_at=START + 3_060.0)
    assert await schedules.store.edit_schedule(edited) is ScheduleAnswer.DONE
    await schedules.firer.run_once()

    assert await schedules.ticks() == []
    assert (await stored(schedules.store)).next_at == START + 3_060.0


async def test_an_edit_of_the_task_keeps_a_tick_that_is_due(
    schedules: Schedules, clock: SettableClock
) -> None:
    await schedules.add()
    clock.advance(60.0)

    edited = schedule(task=replace(TASK, queue="other"), next_at=START + 120.0)
    await schedules.store.edit_schedule(edited)
    await schedules.firer.run_once()

    assert await schedules.outcomes() == [(60.0, "fired", "")]
    (task,) = await schedules.store.list_tasks(TaskFilter(queue="other"))
    assert task.state is State.READY


async def test_a_firing_planned_before_an_edit_is_left_out(
    schedules: Schedules, clock: SettableClock
) -> None:
    await schedules.add()
    clock.advance(60.0)
    plan = await schedules.store.list_due_schedules()
    await schedules.store.edit_schedule(schedule(rule=HOURLY, next_at=START + 3_600.0))

    firing = schedules.firer._plan(plan[0], clock.now)
    assert firing is not None
    assert await schedules.store.fire_schedules([firing]) == 0
    assert await schedules.ticks() == []


async def test_a_schedule_that_does_not_exist_cannot_be_changed(store: Store, build: Build) -> None:
    unknown = ScheduleAnswer.UNKNOWN
    assert await store.edit_schedule(schedule()) is unknown
    assert await store.remove_schedule("minutely") is unknown
    assert await store.pause_schedule("minutely") is unknown
    assert await store.resume_schedule("minutely", None) is unknown
    assert await store.run_schedule("minutely", build.new(), counts=True) is unknown
    assert await store.get_schedule("minutely") is None
    assert await store.list_tasks(TaskFilter()) == []


async def test_a_removed_schedule_is_gone_and_its_ticks_stay(schedules: Schedules) -> None:
    await schedules.add(rule=QUEUE)
    for _ in range(2):
        await schedules.pass_time(60.0)

    assert await schedules.store.remove_schedule("minutely") is ScheduleAnswer.DONE
    await schedules.pass_time(60.0)

    assert await schedules.store.get_schedule("minutely") is None
    assert await schedules.outcomes() == [(60.0, "fired", ""), (120.0, "skipped", "removed")]


async def test_a_paused_schedule_does_not_tick_and_resumes_at_the_next_regular_tick(
    schedules: Schedules,
) -> None:
    await schedules.add()
    assert await schedules.store.pause_schedule("minutely") is ScheduleAnswer.DONE
    await schedules.pass_time(3 * 86_400.0)
    paused = await stored(schedules.store)
    assert (paused.paused_at, paused.next_at) == (START, None)

    later = START + 3 * 86_400.0 + 60.0
    assert await schedules.store.resume_schedule("minutely", later) is ScheduleAnswer.DONE
    await schedules.firer.run_once()

    assert await schedules.ticks() == []
    row = await stored(schedules.store)
    assert (row.paused_at, row.next_at) == (None, later)


async def test_a_second_pause_keeps_the_moment_of_the_first(schedules: Schedules) -> None:
    await schedules.add()
    await schedules.store.pause_schedule("minutely")
    schedules.clock.advance(10.0)
    await schedules.store.pause_schedule("minutely")

    assert (await stored(schedules.store)).paused_at == START


async def test_a_resume_of_a_schedule_that_is_not_paused_changes_nothing(schedules: Schedules) -> None:
    await schedules.add()
    before = await stored(schedules.store)

    await schedules.store.resume_schedule("minutely", START + 999.0)

    assert await stored(schedules.store) == before


async def test_a_pause_skips_the_tick_that_waits(schedules: Schedules) -> None:
    await schedules.add(rule=QUEUE)
    for _ in range(2):
        await schedules.pass_time(60.0)

    await schedules.store.pause_schedule("minutely")

    assert (await schedules.outcomes())[1] == (120.0, "skipped", "paused")
    assert await schedules.store.list_due_schedules() == []


async def test_an_edit_of_a_paused_schedule_leaves_it_paused(schedules: Schedules) -> None:
    await schedules.add()
    await schedules.store.pause_schedule("minutely")

    await schedules.store.edit_schedule(schedule(rule=HOURLY))

    row = await stored(schedules.store)
    assert (row.rule, row.next_at, row.paused_at) == (HOURLY, None, START)


async def test_a_run_by_hand_enqueues_a_task_and_leaves_the_next_tick(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add()
    task = build.new()

    assert await schedules.store.run_schedule("minutely", task, counts=True) is ScheduleAnswer.DONE
    assert await schedules.store.run_schedule("minutely", task, counts=True) is ScheduleAnswer.DONE

    (tick,) = await schedules.ticks()
    assert (tick.outcome, tick.reason, tick.at, tick.task_id) == ("fired", "by hand", START, task.id)
    assert await build.state(task.id) is State.READY
    assert (await stored(schedules.store)).next_at == START + 60.0


async def test_a_run_by_hand_counts_for_the_overlap_of_the_next_tick(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add()
    await schedules.store.run_schedule("minutely", build.new(), counts=True)

    await schedules.pass_time(60.0)

    assert (await schedules.outcomes())[1] == (60.0, "skipped", "overlap")


async def test_runs_by_hand_at_the_moment_of_a_tick_are_recorded_too(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add()
    await schedules.pass_time(60.0)
    for _ in range(2):
        status = await schedules.store.run_schedule("minutely", build.new(), counts=True)
        assert status is ScheduleAnswer.DONE

    moments = [tick.at - START for tick in await schedules.ticks()]
    assert moments == pytest.approx([60.0, 60.001, 60.002])


async def test_a_paused_schedule_can_be_run_by_hand(schedules: Schedules, build: Build) -> None:
    await schedules.add()
    await schedules.store.pause_schedule("minutely")

    assert await schedules.store.run_schedule("minutely", build.new(), counts=True) is ScheduleAnswer.DONE

    assert (await stored(schedules.store)).paused_at == START


async def test_ticks_are_listed_in_pages_from_the_newest(schedules: Schedules) -> None:
    await schedules.add()
    for _ in range(5):
        await schedules.pass_time(60.0)

    first = await schedules.store.list_ticks("minutely", limit=3)
    rest = await schedules.store.list_ticks("minutely", before_at=first[-1].at, limit=3)

    assert [tick.at - START for tick in (*first, *rest)] == [300.0, 240.0, 180.0, 120.0, 60.0]


# --- retention -------------------------------------------------------------------------------------------


async def test_old_ticks_are_deleted_but_not_those_that_still_count(schedules: Schedules) -> None:
    await schedules.add(rule=QUEUE)
    await schedules.add("old", rule=replace(MINUTELY, overlap=Overlap.ALLOW))
    for _ in range(2):
        await schedules.pass_time(60.0)
    await schedules.store.pause_schedule("old")
    schedules.clock.advance(31 * 86_400.0)

    await expire(schedules.store, finished_seconds=86_400.0, dead_seconds=1e9)

    assert await schedules.ticks("old") == []
    assert [outcome for _, outcome, _ in await schedules.outcomes()] == ["fired", "queued"]
