"""Groups of failures: their states, failures without a rule, and the days that were reported."""

from __future__ import annotations

import asyncio

import pytest
from store_build import FAILED, START, Build, SettableClock, dead, retrying, succeeded

from tidegate.deadletter.group_states import read_states
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of
from tidegate.errors import OptionError
from tidegate.operations import failure_groups
from tidegate.operations.history import GroupFilters, HistoryFilters
from tidegate.policy.failure_state import FailureState
from tidegate.store.protocol import Store

DAY = 86_400.0
PRINT = fingerprint_of(FAILED).id


@pytest.fixture(autouse=True)
def within_a_minute(clock: SettableClock) -> None:
    """Let no failure happen at the end of the range that is read: the present moment."""
    clock.advance(1)


def unknown(message: str = "page 7 is empty", frame: str = "tag") -> Failure:
    traceback = f'Traceback (most recent call last):\n  File "/srv/app.py", line 7, in {frame}\nEmpty'
    return Failure(Verdict.UNKNOWN, Reason.UNKNOWN, message, error_class="app.Empty", traceback=traceback)


async def die(build: Build, failure: Failure = FAILED, **changes: str) -> None:
    task = await build.run(queue="main", **changes)
    await build.done(dead(task.fence, failure=failure))


async def state(store: Store) -> tuple[FailureState, bool]:
    (found,) = await failure_groups.list_groups(store, GroupFilters(since="30d"), limit=10)
    return found.state.state, found.state.is_reopened


@pytest.mark.parametrize("is_counted_by_day", [False, True])
async def test_a_resolved_group_opens_again_when_a_task_dies_of_it(
    build: Build, clock: SettableClock, is_counted_by_day: bool
) -> None:
    await die(build)
    assert await state(build.store) == (FailureState.OPEN, False)
    clock.advance(5)
    await failure_groups.resolve(build.store, PRINT[:6], by="ada", note="key renewed")
    assert await state(build.store) == (FailureState.RESOLVED, False)
    clock.advance(5)
    await die(build)
    if is_counted_by_day:
        clock.advance(DAY)
        await build.store.compact_history()
    assert await state(build.store) == (FailureState.OPEN, True)

    (found,) = await failure_groups.list_groups(build.store, GroupFilters(since="30d"), limit=10)
    assert (found.state.marked_by, found.state.note, found.state.marked_at) == (
        "ada",
        "key renewed",
        START + 6,
    )


async def test_another_failure_does_not_open_a_resolved_group(build: Build, clock: SettableClock) -> None:
    await die(build)
    clock.advance(1)
    await failure_groups.resolve(build.store, PRINT, by="ada")
    clock.advance(1)
    await die(build, unknown())
    states = await read_states(build.store)
    assert {name: each.state for name, each in states.items()} == {PRINT: FailureState.RESOLVED}


async def test_a_muted_group_is_counted_and_opens_when_its_time_is_over(
    build: Build, clock: SettableClock
) -> None:
    await die(build)
    await failure_groups.mute(build.store, PRINT, by="ada", duration="1h")
    clock.advance(3_500)
    await die(build)
    (found,) = await failure_groups.list_groups(build.store, GroupFilters(), limit=10)
    assert (found.group.deaths, found.state.state) == (2, FailureState.MUTED)
    clock.advance(200)
    assert await state(build.store) == (FailureState.OPEN, False)
    await failure_groups.mute(build.store, PRINT, by="ada")
    clock.advance(20 * DAY)
    assert await state(build.store) == (FailureState.MUTED, False)


async def test_a_group_has_the_last_state_that_a_person_gave_it(build: Build) -> None:
    await die(build)
    await failure_groups.mute(build.store, PRINT, by="ada")
    await failure_groups.resolve(build.store, PRINT, by="bob")
    assert await state(build.store) == (FailureState.RESOLVED, False)
    assert await failure_groups.reopen(build.store, PRINT)
    assert not await failure_groups.reopen(build.store, PRINT)
    assert await state(build.store) == (FailureState.OPEN, False)


async def test_groups_are_found_by_state_class_fingerprint_and_tenant(
    build: Build, clock: SettableClock
) -> None:
    await die(build)
    await die(build, unknown(), tenant="acme")
    clock.advance(1)
    await failure_groups.mute(build.store, PRINT, by="ada")

    async def found(state: FailureState | None = None, **filters: str) -> list[str]:
        groups = await failure_groups.list_groups(
            build.store,
            GroupFilters(**filters),  # type: ignore[typeddict-item]
            limit=10,
            state=state,
        )
        return [each.group.error_class for each in groups]

    assert await found(FailureState.MUTED) == ["builtins.OSError"]
    assert await found(FailureState.OPEN) == ["app.Empty"]
    assert await found(FailureState.RESOLVED) == []
    assert await found(error_class="app.Empty") == ["app.Empty"]
    assert await found(error_class="app.None") == []
    assert await found(fingerprint=PRINT[:8]) == ["builtins.OSError"]
    assert await found(tenant="acme") == ["app.Empty"]
    assert await found(tenant="acme", queue="other") == []
    assert await found(tenant="other") == []


async def test_a_group_that_nobody_has_seen_cannot_be_marked(build: Build) -> None:
    await die(build)
    for mark in (failure_groups.resolve, failure_groups.mute):
        with pytest.raises(OptionError, match="belongs to no group of failures"):
            await mark(build.store, "0" * 16, by="ada")
    with pytest.raises(OptionError, match="belongs to no group of failures"):
        await failure_groups.mark_reviewed(build.store, [PRINT, "0" * 16], by="ada")
    assert await build.store.list_failure_marks() == []


async def test_attempts_without_a_rule_are_grouped_also_those_of_tasks_that_succeeded(
    build: Build, clock: SettableClock
) -> None:
    first, second = await build.running(2, queue="main")
    await build.done(retrying(first.fence, failure=unknown("page 1 is empty"), delay=0))
    await build.done(dead(second.fence, failure=unknown("page 22 is empty")))
    await build.store.promote()
    clock.advance(10)
    (again,) = await build.claim(await build.worker(), queues=("main",))
    await build.done(retrying(again.fence, failure=unknown("page 1 is empty"), delay=0))
    await build.store.promote()
    clock.advance(10)
    (last,) = await build.claim(await build.worker(), queues=("main",))
    await build.done(succeeded(last.fence))
    await die(build, FAILED)

    (row,) = await build.store.list_unknown_failures(START, clock.now + 1)

    assert (row.attempts, row.tasks, row.succeeded) == (3, 2, 1)
    assert (row.first_at, row.last_at) == (START + 1, START + 11)
    assert (row.functions, row.frame, row.shape) == (
        ("app:work",),
        "srv/app.py:tag",
        "page <number> is empty",
    )
    assert (row.sample, row.sample_id) == ("page 1 is empty", first.fence.task_id)
    assert await build.store.list_unknown_failures(START + 12, clock.now + 1) == []
    assert await build.store.list_unknown_failures(START, clock.now + 1, function="app:other") == []


async def test_a_sample_is_redacted_and_cut(build: Build) -> None:
    task = await build.run()
    await build.done(
        retrying(task.fence, failure=unknown("api_key=sk-live-51H8xkqXyz0123456789 " + "x" * 500))
    )
    (row,) = await build.store.list_unknown_failures(START, START + 2)
    assert "sk-live" not in row.sample
    assert len(row.sample) <= 100


async def test_a_reviewed_failure_returns_from_another_frame_of_the_application(
    build: Build, clock: SettableClock
) -> None:
    async def listed() -> list[str]:
        clock.advance(1)
        found = await failure_groups.list_unknown(build.store, HistoryFilters(), limit=10)
        return [each.row.frame for each in found]

    await build.done(retrying((await build.run()).fence, failure=unknown()))
    assert await listed() == ["srv/app.py:tag"]
    await failure_groups.mark_reviewed(
        build.store, [fingerprint_of(unknown()).id[:7]], by="ada", note="known"
    )
    assert await listed() == []
    await build.done(retrying((await build.run()).fence, failure=unknown("page 8 is empty")))
    assert await listed() == [], "the same failure"
    await build.done(retrying((await build.run()).fence, failure=unknown(frame="split")))
    assert await listed() == ["srv/app.py:split"]
    (old, new) = await failure_groups.list_unknown(
        build.store, HistoryFilters(), limit=10, with_reviewed=True
    )
    assert (old.row.attempts, old.reviewed is not None, new.reviewed) == (2, True, None)


async def test_one_of_several_processes_reports_a_day(store: Store, twin: Store) -> None:
    claims = [one.claim_daily_summary("2027-01-15", keep_from="2026-01-01") for one in (store, twin) * 4]
    assert sorted(await asyncio.gather(*claims)) == [False] * 7 + [True]
    assert await twin.is_day_reported("2027-01-15")
    assert not await twin.is_day_reported("2027-01-16")
    assert await store.claim_daily_summary("2027-01-16", keep_from="2027-01-16")
    assert not await store.is_day_reported("2027-01-15"), "forgotten"
