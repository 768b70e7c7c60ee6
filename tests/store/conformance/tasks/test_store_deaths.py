"""Deaths: counted when they happen, by reason and fingerprint, and compacted without a change of their sums."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_back_ends import BackEnd
from store_build import START, Build, SettableClock, dead, expire

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.store.history_rows import DeathCountRow, FailureGroupRow, HistoryRange
from tidegate.store.protocol import Store

HOUR, DAY = 3_600.0, 86_400.0
EVER = HistoryRange(0.0, START + 500 * DAY)


def failed(
    message: str = "page 1 is empty", reason: Reason = Reason.REJECTED, cls: str = "app.Empty"
) -> Failure:
    return Failure(Verdict.PERMANENT, reason, message, error_class=cls)


async def die(build: Build, *failures: Failure, **changes: str) -> list[str]:
    """Let a task die of each failure, all in one batch; return their ids."""
    tasks = await build.running(len(failures), **changes)
    await build.done(*[dead(task.fence, failure=each) for task, each in zip(tasks, failures, strict=True)])
    return [task.fence.task_id for task in tasks]


async def test_deaths_are_counted_by_period_queue_function_and_reason(
    build: Build, clock: SettableClock
) -> None:
    await die(build, failed(), failed("page 2 is empty"), failed(reason=Reason.QUOTA), queue="main")
    clock.advance(HOUR)
    await die(build, failed(), queue="other")
    assert await build.store.count_deaths(EVER, step_minutes=60) == [
        DeathCountRow(START, "main", "app:work", "quota", 1),
        DeathCountRow(START, "main", "app:work", "rejected", 2),
        DeathCountRow(START + HOUR, "other", "app:work", "rejected", 1),
    ]


async def test_error_class_fingerprint_and_tenant_choose_the_deaths(
    build: Build, clock: SettableClock
) -> None:
    await die(build, failed(), failed("nothing at all"), failed(cls="app.Full"), queue="main")
    clock.advance(HOUR)
    (theirs,) = await die(build, failed(), queue="main", tenant="acme")
    groups = await build.store.list_failure_groups(EVER, error_class="app.Empty")
    fingerprint = next(each.fingerprint for each in groups if each.deaths == 2)

    async def count(step: int = 60, **names: str) -> list[tuple[float, int]]:
        rows = await build.store.count_deaths(EVER, step_minutes=step, **names)
        return [(row.at, row.deaths) for row in rows]

    later = START + HOUR
    assert await count(error_class="app.Empty") == [(START, 2), (later, 1)]
    assert await count(fingerprint=fingerprint) == [(START, 1), (later, 1)]
    assert await count(error_class="app.Empty", fingerprint=fingerprint) == [(START, 1), (later, 1)]
    assert await count(error_class="app.Full", fingerprint=fingerprint) == []
    assert await count(error_class="app.Unknown") == []
    assert await count(tenant="acme") == [(later, 1)]
    assert await count(tenant="acme", error_class="app.Full") == []
    assert await count(tenant="other") == []
    await build.store.compact_history()
    assert sum(deaths for _, deaths in await count(1440, error_class="app.Empty")) == 3
    await build.store.purge([theirs])
    assert await count(tenant="acme") == [], "only letters that are still there"
    assert await count(fingerprint=fingerprint) == [(START, 1), (later, 1)]


async def test_a_filter_and_a_time_choose_the_deaths(build: Build, clock: SettableClock) -> None:
    await die(build, failed(), failed(reason=Reason.QUOTA), queue="main")
    clock.advance(HOUR)
    await die(build, failed(), queue="other")

    async def count(**names: str) -> int:
        which = HistoryRange(EVER.since, EVER.until, **names)
        return sum(row.deaths for row in await build.store.count_deaths(which, step_minutes=60))

    assert (await count(queue="main"), await count(reason="quota"), await count(function="app:work")) == (
        2,
        1,
        3,
    )
    assert await count(function="app:other") == 0
    lately = await build.store.count_deaths(HistoryRange(START + 60, clock.now), step_minutes=60)
    assert lately == [], "the range ends before the minute of the last death"
    lately = await build.store.count_deaths(HistoryRange(START + 60, clock.now + 1), step_minutes=60)
    assert [row.queue for row in lately] == ["other"]


async def test_a_redrive_and_a_purge_leave_the_statistics_of_yesterday_unchanged(
    build: Build, clock: SettableClock
) -> None:
    again, gone = await die(build, failed(), failed())
    clock.advance(DAY)
    yesterday = HistoryRange(START, START + HOUR)
    before = await build.store.count_deaths(yesterday, step_minutes=60)
    groups = await build.store.list_failure_groups(yesterday)
    await build.store.redrive([again])
    await build.store.purge([gone])
    assert await build.store.count_deaths(yesterday, step_minutes=60) == before
    assert await build.store.list_failure_groups(yesterday) == groups
    assert [row.deaths for row in before] == [2]


async def test_a_redriven_task_that_dies_again_counts_again(build: Build) -> None:
    (task_id,) = await die(build, failed())
    await build.store.redrive([task_id])
    [task] = await build.claim(await build.worker())
    await build.done(dead(task.fence, failure=failed()))
    assert [row.deaths for row in await build.store.count_deaths(EVER, step_minutes=1440)] == [2]


async def test_a_resent_outcome_counts_once(build: Build) -> None:
    task = await build.run()
    outcome = dead(task.fence, failure=failed())
    await build.store.finish([outcome])
    await build.store.finish([outcome])
    assert [row.deaths for row in await build.store.count_deaths(EVER, step_minutes=60)] == [1]


async def test_failures_of_one_cause_are_one_group(build: Build, clock: SettableClock) -> None:
    await die(build, failed("page 1 is empty"), failed("page 22 is empty"), failed("quota"), queue="main")
    clock.advance(5)
    (last,) = await die(build, failed("page 333 is empty", reason=Reason.UNKNOWN), queue="other")
    first, second = await build.store.list_failure_groups(EVER)
    assert first == FailureGroupRow(
        fingerprint=first.fingerprint,
        error_class="app.Empty",
        shape="page <number> is empty",
        frame="",
        deaths=3,
        first_at=START,
        last_at=START + 5,
        functions=("app:work",),
        queues=("main", "other"),
        reasons=("rejected", "unknown"),
        example_id=last,
    )
    assert (second.shape, second.deaths) == ("quota", 1)
    assert await build.store.list_failure_groups(EVER, limit=1) == [first]


async def test_a_message_that_no_store_can_hold_is_counted_too(build: Build) -> None:
    await die(build, failed("a\x00b \ud800"))
    (group,) = await build.store.list_failure_groups(EVER)
    assert (group.deaths, group.shape) == (1, r"a\x00b \ud800")


async def everything(store: Store) -> Counter[tuple[str, str, str]]:
    """Return all deaths, which are as many by the minute, the hour and the day."""
    by_step = [summed(await store.count_deaths(EVER, step_minutes=step)) for step in (1, 60, 1440)]
    assert by_step[0] == by_step[1] == by_step[2]
    return by_step[0]


def summed(rows: list[DeathCountRow]) -> Counter[tuple[str, str, str]]:
    return Counter({(row.queue, row.function, row.reason): 0 for row in rows}) + sum(
        (Counter({(row.queue, row.function, row.reason): row.deaths}) for row in rows), Counter()
    )


async def test_old_deaths_are_kept_by_the_hour_then_by_the_day(build: Build, clock: SettableClock) -> None:
    for _ in range(3):
        await die(build, failed(), queue="main")
        clock.advance(61)

    async def periods() -> list[float]:
        return [row.at - START for row in await build.store.count_deaths(EVER, step_minutes=1)]

    await build.store.compact_history()
    assert await periods() == [0, 60, 120]
    clock.advance(2 * DAY + HOUR)
    await build.store.compact_history()
    assert await periods() == [0 - START % HOUR]
    clock.advance(36 * DAY)
    await build.store.compact_history()
    assert await periods() == [0 - START % DAY]
    (group,) = await build.store.list_failure_groups(EVER)
    assert (group.deaths, group.first_at, group.last_at) == (3, START, START + 122)


async def test_deaths_are_forgotten_after_400_days_with_their_description(
    build: Build, clock: SettableClock
) -> None:
    await die(build, failed())
    clock.advance(399 * DAY)
    await build.store.compact_history()
    await expire(build.store, finished_seconds=DAY, dead_seconds=DAY)
    assert len(await build.store.list_failure_groups(EVER)) == 1
    clock.advance(2 * DAY)
    await expire(build.store, finished_seconds=DAY, dead_seconds=DAY)
    assert await build.store.list_failure_groups(HistoryRange(0.0, clock.now)) == []


async def test_two_supervisors_may_compact_at_once(build: Build, twin: Store, clock: SettableClock) -> None:
    for _ in range(20):
        await die(build, failed(), failed("other"), queue="main")
        clock.advance(61)
    clock.advance(3 * DAY)
    before = await everything(build.store)
    await asyncio.gather(*(one.compact_history(limit=7) for one in (build.store, twin) * 5))
    assert await everything(build.store) == before == Counter({("main", "app:work", "rejected"): 40})


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("die"), st.integers(1, 3), st.sampled_from(["a", "b"])),
        st.tuples(st.just("wait"), st.floats(1, 40 * DAY), st.just("")),
        st.tuples(st.just("compact"), st.integers(1, 50), st.just("")),
    ),
    max_size=12,
)


async def test_compaction_never_changes_a_sum(back_end: BackEnd, build: Build, clock: SettableClock) -> None:
    expected: Counter[tuple[str, str, str]] = Counter()
    shapes: Counter[str] = Counter()

    async def follow(steps: list[tuple[str, float, str]]) -> None:
        for step, amount, queue in steps:
            if step == "die":
                await die(build, *[failed(f"{queue} {n}") for n in range(int(amount))], queue=queue)
                expected[queue, "app:work", "rejected"] += int(amount)
                shapes[f"{queue} <number>"] += int(amount)
            elif step == "wait":
                clock.advance(amount)
            else:
                await build.store.compact_history(limit=int(amount))
            assert await everything(build.store) == expected
        which = HistoryRange(0.0, clock.now + 60)
        assert Counter({g.shape: g.deaths for g in await build.store.list_failure_groups(which)}) == shapes

    for steps in examples_of(STEPS, back_end.examples // 5):
        await follow(steps)


def examples_of(
    strategy: st.SearchStrategy[list[tuple[str, float, str]]], number: int
) -> list[list[tuple[str, float, str]]]:
    """Return some examples, the same in each run; each is longer than the one before where possible."""
    found: list[list[tuple[str, float, str]]] = []

    @settings(max_examples=number, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(steps: list[tuple[str, float, str]]) -> None:
        found.append(steps)

    collect()
    return found
