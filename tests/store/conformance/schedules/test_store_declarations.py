"""An application declares a set of schedules. A newer set replaces an older one, and never the reverse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from schedule_build import MINUTELY, TASK, Schedules, schedule
from store_build import START, Build, SettableClock

from tidegate.domain.schedule import CatchUp, ScheduleRule
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import DeclaredSet, NewSchedule, ScheduleAnswer

pytestmark = pytest.mark.anyio

HOURLY = ScheduleRule(cron="0 * * * *")
APP = "app:app"


async def declare(store: Store, fingerprint: str, *declared: NewSchedule, app: str = APP) -> DeclaredSet:
    return await store.declare_schedules(app, fingerprint, declared, grace_seconds=60.0)


async def names(store: Store) -> list[str]:
    return [row.name for row in await store.list_schedules()]


async def test_a_declared_schedule_belongs_to_its_application_and_fires(schedules: Schedules) -> None:
    answer = await declare(schedules.store, "one", schedule())
    assert answer == DeclaredSet(is_in_force=True, generation=1, changed=("minutely",))

    await schedules.pass_time(60.0)

    row = await schedules.store.get_schedule("minutely")
    assert row is not None
    assert row.application == APP
    assert await schedules.outcomes() == [(60.0, "fired", "")]


async def test_the_same_set_again_changes_nothing_and_keeps_ticks_that_are_due(
    schedules: Schedules, clock: SettableClock
) -> None:
    await declare(schedules.store, "one", schedule())
    clock.advance(600.0)

    answer = await declare(schedules.store, "one", schedule(next_at=START + 660.0))

    assert answer == DeclaredSet(is_in_force=True, generation=1)
    await schedules.firer.run_once()
    assert [reason for *_, reason in await schedules.outcomes()] == ["catch-up", ""]


async def test_a_newer_set_adds_changes_and_removes(schedules: Schedules, clock: SettableClock) -> None:
    store = schedules.store
    await declare(store, "one", schedule("stays"), schedule("changes"), schedule("goes"))
    clock.advance(30.0)

    answer = await declare(store, "two", schedule("stays"), schedule("changes", HOURLY), schedule("comes"))

    assert answer.generation == 2
    assert sorted(answer.changed) == ["changes", "comes", "goes"]
    assert await names(store) == ["changes", "comes", "stays"]
    await schedules.pass_time(30.0)
    assert await schedules.outcomes("goes") == []
    assert await schedules.outcomes("stays") == [(60.0, "fired", "")]


async def test_an_old_worker_that_restarts_does_not_overwrite_a_newer_set(
    schedules: Schedules, build: Build, clock: SettableClock
) -> None:
    store = schedules.store
    await declare(store, "old", schedule(rule=MINUTELY), schedule("gone"))
    await declare(store, "new", schedule(rule=HOURLY))
    await build.worker(lease=7_200.0, schedule_set="new")
    clock.advance(3_500.0)

    answer = await declare(store, "old", schedule(rule=MINUTELY), schedule("gone"))

    assert answer == DeclaredSet(is_in_force=False, generation=2)
    assert await names(store) == ["minutely"]
    row = await store.get_schedule("minutely")
    assert row is not None
    assert row.rule == HOURLY


async def test_a_new_set_is_safe_before_its_first_worker_is_registered(
    store: Store, clock: SettableClock
) -> None:
    await declare(store, "old", schedule())
    await declare(store, "new", schedule("other"))
    clock.advance(59.0)

    assert not (await declare(store, "old", schedule())).is_in_force
    assert await names(store) == ["other"]


async def test_an_older_set_returns_after_a_rollback(
    schedules: Schedules, build: Build, clock: SettableClock
) -> None:
    store = schedules.store
    await declare(store, "old", schedule())
    await declare(store, "new", schedule("other"))
    worker = await build.worker(lease=7_200.0, schedule_set="new")
    clock.advance(100.0)
    await store.retire_worker(worker, why="stopped", is_loss=False, only_if_expired=False)

    answer = await declare(store, "old", schedule(next_at=START + 120.0))

    assert answer == DeclaredSet(is_in_force=True, generation=3, changed=("minutely", "other"))
    assert await names(store) == ["minutely"]
    await schedules.pass_time(20.0)
    assert await schedules.outcomes() == [(120.0, "fired", "")]


async def test_a_worker_whose_lease_ran_out_no_longer_keeps_its_set_in_force(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declare(store, "old", schedule())
    await declare(store, "new", schedule("other"))
    await build.worker(lease=90.0, schedule_set="new")

    clock.advance(80.0)
    assert not (await declare(store, "old", schedule())).is_in_force
    clock.advance(20.0)
    assert (await declare(store, "old", schedule())).is_in_force


async def test_code_without_schedules_that_is_older_does_not_remove_those_of_a_newer_set(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declare(store, "none")
    await declare(store, "new", schedule())
    await build.worker(lease=7_200.0, schedule_set="new")
    clock.advance(100.0)

    assert not (await declare(store, "none")).is_in_force
    assert await names(store) == ["minutely"]


async def test_a_schedule_that_the_code_no_longer_declares_stops(schedules: Schedules) -> None:
    await declare(schedules.store, "one", schedule())
    await schedules.pass_time(60.0)

    await declare(schedules.store, "two")
    await schedules.pass_time(600.0)

    assert await names(schedules.store) == []
    assert await schedules.outcomes() == [(60.0, "fired", "")]


async def test_a_removed_schedule_that_returns_does_not_make_up_the_time_between(
    schedules: Schedules,
) -> None:
    rule = replace(MINUTELY, catch_up=CatchUp.ONE)
    await declare(schedules.store, "one", schedule(rule=rule))
    await declare(schedules.store, "two")
    schedules.clock.advance(600.0)

    await declare(schedules.store, "three", schedule(rule=rule, next_at=START + 660.0))
    await schedules.firer.run_once()

    assert await schedules.ticks() == []


async def test_a_pause_by_a_person_outlasts_declarations(schedules: Schedules) -> None:
    store = schedules.store
    await declare(store, "one", schedule())
    await store.pause_schedule("minutely")

    await declare(store, "two", schedule(rule=HOURLY))
    await declare(store, "three")
    await declare(store, "four", schedule(rule=MINUTELY))

    row = await store.get_schedule("minutely")
    assert row is not None
    assert (row.paused_at, row.next_at) == (START, None)


async def test_a_change_of_the_policy_keeps_a_missed_tick(schedules: Schedules, clock: SettableClock) -> None:
    await declare(schedules.store, "one", schedule())
    clock.advance(90.0)

    changed = schedule(rule=replace(MINUTELY, catch_up_limit=5), next_at=START + 120.0)
    await declare(schedules.store, "two", changed)
    await schedules.firer.run_once()

    assert await schedules.outcomes() == [(60.0, "fired", "late")]


async def test_a_persons_schedule_is_not_overwritten_by_a_declaration(schedules: Schedules) -> None:
    await schedules.add()

    answer = await declare(schedules.store, "one", schedule(rule=HOURLY), schedule("other"))

    assert (answer.changed, answer.taken) == (("other",), ("minutely",))
    row = await schedules.store.get_schedule("minutely")
    assert row is not None
    assert (row.application, row.rule) == ("", MINUTELY)


async def test_a_declared_schedule_cannot_be_edited_or_removed_by_a_person(store: Store) -> None:
    await declare(store, "one", schedule())

    assert await store.edit_schedule(schedule(rule=HOURLY)) is ScheduleAnswer.DECLARED
    assert await store.remove_schedule("minutely") is ScheduleAnswer.DECLARED
    assert await store.add_schedule(schedule(task=replace(TASK, queue="q"))) is ScheduleAnswer.EXISTS


async def test_two_applications_have_sets_of_their_own(store: Store) -> None:
    await declare(store, "one", schedule("a"))
    await declare(store, "two", schedule("b"), app="other:app")

    await declare(store, "three")

    assert await names(store) == ["b"]


async def test_a_name_that_another_application_declares_is_taken_over(store: Store) -> None:
    await declare(store, "one", schedule())
    await declare(store, "two", schedule(), app="renamed:app")

    await declare(store, "three")

    row = await store.get_schedule("minutely")
    assert row is not None
    assert row.application == "renamed:app"
