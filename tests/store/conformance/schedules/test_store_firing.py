"""Due ticks become tasks: one task for a schedule and tick, with any number of processes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from schedule_build import MINUTELY, TASK, Schedules, schedule
from store_build import START, Build, SettableClock, dead, retrying, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.schedule import CatchUp, Overlap, ScheduleRule, TickOutcome
from tidegate.domain.states import State
from tidegate.policy.due_ticks import DecidedTick
from tidegate.store.history_rows import EventKind, EventTotalRow
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter
from tidegate.store.schedule_rows import FiredTick, Firing

pytestmark = pytest.mark.anyio

ALLOW = replace(MINUTELY, overlap=Overlap.ALLOW)


async def ready(store: Store) -> list[str]:
    return [row.id for row in await store.list_tasks(TaskFilter(states=(State.READY,)), limit=1_000)]


async def test_a_due_tick_enqueues_one_task_with_its_planned_moment(schedules: Schedules) -> None:
    await schedules.add()

    await schedules.pass_time(59.0)
    assert await ready(schedules.store) == []

    await schedules.pass_time(2.0)
    (task_id,) = await ready(schedules.store)
    row = (await schedules.store.read_tasks([task_id]))[task_id]
    assert row.labels["tidegate.schedule"] == "minutely"
    assert row.labels["tidegate.scheduled_for"] == "2027-01-15T08:01:00Z"
    assert (row.function, row.queue) == ("app:work", "main")
    assert await schedules.store.get_payload(task_id) == (b'{"n":1}', CODEC)
    (tick,) = await schedules.ticks()
    assert (tick.task_id, tick.at, tick.decided_at) == (task_id, START + 60.0, START + 61.0)


async def test_the_task_of_a_tick_is_followed_by_its_final_hook(schedules: Schedules, build: Build) -> None:
    await schedules.add(task=replace(TASK, on_final=FinalHook("app:report", "reports", 1)))
    await schedules.pass_time(61.0)
    (task,) = await build.claim(await build.worker())
    await build.done(succeeded(task.fence))

    (report,) = await schedules.store.list_tasks(TaskFilter(function="app:report"))
    args, _ = await schedules.store.get_payload(report.id)
    assert task.fence.task_id in args.decode()


async def test_a_schedule_without_a_due_tick_is_not_returned(schedules: Schedules) -> None:
    await schedules.add()

    assert await schedules.store.list_due_schedules() == []


async def test_two_processes_that_plan_the_same_tick_fire_it_once(
    schedules: Schedules, twin: Store, clock: SettableClock
) -> None:
    await schedules.add("a", ALLOW)
    await schedules.add("b", ALLOW)
    other = Schedules(twin, clock)
    clock.advance(60.0)

    await asyncio.gather(*(each.firer.run_once() for each in (schedules, other) for _ in range(3)))

    assert len(await ready(schedules.store)) == 2
    assert await schedules.outcomes("a") == await schedules.outcomes("b") == [(60.0, "fired", "")]


async def test_a_firing_from_an_older_revision_changes_nothing(
    schedules: Schedules, clock: SettableClock, build: Build
) -> None:
    await schedules.add()
    clock.advance(60.0)
    (due,) = await schedules.store.list_due_schedules()
    await schedules.firer.run_once()
    tick = DecidedTick(START + 120.0, START + 120.0, 1, TickOutcome.FIRED)
    late = Firing("minutely", due.row.revision, START + 180.0, [FiredTick(tick, build.new(), True)])

    assert await schedules.store.fire_schedules([late]) == 0

    assert len(await ready(schedules.store)) == 1
    row = await schedules.store.get_schedule("minutely")
    assert row is not None
    assert row.next_at == START + 120.0


async def test_a_tick_that_is_decided_already_is_not_fired_again_by_a_new_plan(
    schedules: Schedules, clock: SettableClock, build: Build
) -> None:
    await schedules.add()
    await schedules.pass_time(60.0)
    row = await schedules.store.get_schedule("minutely")
    assert row is not None
    again = DecidedTick(START + 60.0, START + 60.0, 1, TickOutcome.FIRED)

    firing = Firing("minutely", row.revision, row.next_at, [FiredTick(again, build.new(), True)])
    assert await schedules.store.fire_schedules([firing]) == 0

    assert len(await ready(schedules.store)) == 1


async def test_a_resent_firing_stores_its_task_once(
    schedules: Schedules, clock: SettableClock, build: Build
) -> None:
    await schedules.add()
    clock.advance(60.0)
    (due,) = await schedules.store.list_due_schedules()
    tick = DecidedTick(START + 60.0, START + 60.0, 1, TickOutcome.FIRED)
    firing = Firing("minutely", due.row.revision, START + 120.0, [FiredTick(tick, build.new(), True)])

    assert await schedules.store.fire_schedules([firing]) == 1
    assert await schedules.store.fire_schedules([firing]) == 0

    assert len(await ready(schedules.store)) == 1


async def test_many_ticks_of_one_round_are_stored_with_their_tasks(schedules: Schedules) -> None:
    rule = ScheduleRule(every_seconds=10, catch_up=CatchUp.ALL, catch_up_limit=1_000, overlap=Overlap.ALLOW)
    await schedules.add("often", rule)

    await schedules.pass_time(3_600.0)

    ticks = await schedules.ticks("often")
    assert [tick.at - START for tick in ticks] == [10.0 * number for number in range(1, 361)]
    assert {tick.task_id for tick in ticks} == set(await ready(schedules.store))


async def test_due_schedules_are_read_in_pages_and_all_fire(
    schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.schedule.firing.PAGE_SIZE", 3)
    for number in range(8):
        await schedules.add(f"s{number}")

    await schedules.pass_time(60.0)

    assert len(await ready(schedules.store)) == 8


async def test_a_schedule_that_cannot_be_decided_does_not_stop_the_others(
    schedules: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await schedules.add("a-bad", replace(MINUTELY, timezone="Nowhere/Else"), next_at=START + 60.0)
    await schedules.add("b-good")

    await schedules.pass_time(60.0)
    await schedules.pass_time(60.0)

    assert [reason for _, _, reason in await schedules.outcomes("b-good")] == ["", "overlap"]
    assert await schedules.outcomes("a-bad") == []
    assert caplog.text.count("schedule a-bad cannot fire") == 1


async def test_a_schedule_whose_task_cannot_be_stored_does_not_stop_the_others(
    schedules: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await schedules.add("a-bad", task=replace(TASK, function="nul\0here"))
    await schedules.add("b-good")

    await schedules.pass_time(60.0)

    assert await schedules.outcomes("b-good") == [(60.0, "fired", "")]
    assert await schedules.outcomes("a-bad") == []
    assert "schedule a-bad cannot fire" in caplog.text


# --- overlap ---------------------------------------------------------------------------------------------


async def test_a_tick_is_skipped_while_the_task_of_an_earlier_one_is_ready_or_running(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add()
    await schedules.pass_time(60.0)
    await schedules.pass_time(60.0)
    (task,) = await build.claim(await build.worker())
    await schedules.pass_time(60.0)
    await build.done(succeeded(task.fence))
    await schedules.pass_time(60.0)

    assert await schedules.outcomes() == [
        (60.0, "fired", ""),
        (120.0, "skipped", "overlap"),
        (180.0, "skipped", "overlap"),
        (240.0, "fired", ""),
    ]


async def test_a_retrying_task_counts_as_unfinished_and_a_dead_one_does_not(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add()
    await schedules.pass_time(60.0)
    (task,) = await build.claim(await build.worker())
    await build.done(retrying(task.fence, delay=90.0))
    await schedules.pass_time(60.0)
    schedules.clock.advance(31.0)
    await schedules.store.promote()
    (task,) = await build.claim(await build.worker())
    await build.done(dead(task.fence))
    await schedules.pass_time(29.0)

    assert [(outcome, reason) for _, outcome, reason in await schedules.outcomes()] == [
        ("fired", ""),
        ("skipped", "overlap"),
        ("fired", ""),
    ]


async def test_a_queued_tick_fires_when_the_earlier_task_is_final_and_one_more_waits_at_most(
    schedules: Schedules, build: Build
) -> None:
    await schedules.add(rule=replace(MINUTELY, overlap=Overlap.QUEUE))
    for _ in range(3):
        await schedules.pass_time(60.0)
    assert await schedules.outcomes() == [
        (60.0, "fired", ""),
        (120.0, "queued", "overlap"),
        (180.0, "skipped", "overlap"),
    ]
    assert len(await ready(schedules.store)) == 1

    (task,) = await build.claim(await build.worker())
    await build.done(succeeded(task.fence))
    await schedules.pass_time(1.0)

    assert (await schedules.outcomes())[1] == (120.0, "fired", "overlap")
    (task,) = await build.claim(await build.worker())
    assert task.labels["tidegate.scheduled_for"].endswith("08:02:00Z")


async def test_two_processes_release_a_queued_tick_once(
    schedules: Schedules, twin: Store, build: Build
) -> None:
    await schedules.add(rule=replace(MINUTELY, overlap=Overlap.QUEUE))
    for _ in range(2):
        await schedules.pass_time(60.0)
    (task,) = await build.claim(await build.worker())
    await build.done(succeeded(task.fence))
    other = Schedules(twin, schedules.clock)

    await asyncio.gather(*(each.firer.run_once() for each in (schedules, other) for _ in range(3)))

    assert len(await ready(schedules.store)) == 1


async def test_with_all_each_missed_tick_waits_its_turn(schedules: Schedules, build: Build) -> None:
    await schedules.add(rule=replace(MINUTELY, catch_up=CatchUp.ALL, overlap=Overlap.QUEUE))
    await schedules.pass_time(240.0)
    worker = await build.worker()

    moments = []
    for _ in range(4):
        (task,) = await build.claim(worker)
        moments.append(task.labels["tidegate.scheduled_for"][-6:-1])
        await build.done(succeeded(task.fence))
        await schedules.pass_time(1.0)

    assert moments == ["01:00", "02:00", "03:00", "04:00"]
    assert await ready(schedules.store) == []


async def test_a_queued_tick_is_skipped_when_not_later_than_has_passed(
    schedules: Schedules, build: Build
) -> None:
    rule = replace(MINUTELY, overlap=Overlap.QUEUE, not_later_than=90.0)
    await schedules.add(rule=rule)
    await schedules.pass_time(60.0)
    await schedules.pass_time(60.0)
    await schedules.pass_time(91.0)

    assert await schedules.outcomes() == [
        (60.0, "fired", ""),
        (120.0, "skipped", "too late"),
        (180.0, "queued", "overlap"),
    ]


# --- after an outage -------------------------------------------------------------------------------------


async def test_missed_ticks_are_recorded_once_with_their_number(schedules: Schedules) -> None:
    await schedules.add(rule=replace(ALLOW, catch_up=CatchUp.NONE))

    await schedules.pass_time(77 * 60.0 + 30.0)
    await schedules.pass_time(1.0)

    (missed,) = await schedules.ticks()
    assert (missed.outcome, missed.reason, missed.ticks) == ("missed", "catch-up", 77)
    assert (missed.at - START, missed.until_at - START) == (60.0, 77 * 60.0)
    assert await schedules.store.list_unfired_ticks(since=START) == [missed]
    assert await schedules.store.list_unfired_ticks(since=missed.decided_at + 1.0) == []
    assert (await schedules.store.get_totals()).events == [
        EventTotalRow(EventKind.TICK, "minutely", "", "missed", 77)
    ]


async def test_the_last_success_of_a_schedule_is_the_end_of_its_latest_task_that_succeeded(
    schedules: Schedules, build: Build, clock: SettableClock
) -> None:
    await schedules.add(rule=ALLOW)
    assert await schedules.store.list_last_successes() == {}
    for _ in range(2):
        await schedules.pass_time(60.0)
    first, second = await build.claim(await build.worker(lease=10_000))
    clock.advance(5)
    await build.done(succeeded(first.fence))
    ended = clock.now
    clock.advance(5)
    await build.done(dead(second.fence))
    assert await schedules.store.list_last_successes() == {"minutely": ended}


async def test_by_default_the_latest_missed_tick_fires_late(schedules: Schedules) -> None:
    await schedules.add()

    await schedules.pass_time(77 * 60.0 + 30.0)

    missed, late = await schedules.ticks()
    assert (missed.outcome, missed.ticks) == ("missed", 76)
    assert (late.outcome, late.reason, late.at - START) == ("fired", "late", 77 * 60.0)


async def test_the_queries_find_nothing_more_after_a_round(schedules: Schedules) -> None:
    for name in ("a", "b"):
        await schedules.add(name)
    await schedules.pass_time(600.0)

    assert await schedules.store.list_due_schedules() == []


async def test_a_schedule_is_returned_with_the_tasks_that_keep_it_busy(
    schedules: Schedules, clock: SettableClock
) -> None:
    await schedules.add()
    await schedules.pass_time(60.0)
    (task_id,) = await ready(schedules.store)
    clock.advance(60.0)

    (due,) = await schedules.store.list_due_schedules()

    assert [(task.task_id, task.state) for task in due.unfinished] == [(task_id, State.READY)]
    assert due.row.name == schedule().name
