"""Counters by period: every task and run is counted once, where it belongs, through fold and compaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import astuple, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_back_ends import BackEnd
from store_build import START, Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallSummary
from tidegate.domain.durations import bucket_of
from tidegate.domain.outcome import Cancelled, Released, Succeeded
from tidegate.domain.usage import UsageTotals
from tidegate.store.common.periods import WHOLE_TIME
from tidegate.store.history_rows import Counts, HistoryRange, StatisticsRow
from tidegate.store.protocol import Store

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
EVER = HistoryRange(0.0, START + 500 * DAY)


async def one(store: Store, which: HistoryRange = EVER, step: int = 1440) -> StatisticsRow:
    (row,) = await store.get_statistics(which, step_minutes=step)
    return row


async def test_every_end_of_a_run_is_counted_with_its_times(build: Build, clock: SettableClock) -> None:
    tasks = await build.running(5, queue="main")
    clock.advance(4)
    await build.done(
        succeeded(tasks[0].fence),
        dead(tasks[1].fence),
        Cancelled(tasks[2].fence),
        retrying(tasks[3].fence),
        Released(tasks[4].fence, "shutdown"),
    )
    await build.store.cancel([await build.one(queue="main")])
    for _ in range(2):
        row = await one(build.store)
        assert row == StatisticsRow(
            START - START % DAY,
            "main",
            "app:work",
            "",
            Counts(
                enqueued=6,
                started=5,
                succeeded=1,
                dead=1,
                cancelled=2,
                retried=1,
                released=1,
                run_seconds=20.0,
            ),
            run_times={bucket_of(4.0): 5},
            wait_times={0: 5},
        )
        await build.store.compact_history()


async def test_a_run_counts_as_started_when_it_starts_and_its_end_when_it_ends(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run(queue="main")

    async def rows() -> list[tuple[float, int, int]]:
        found = await build.store.get_statistics(EVER, step_minutes=1)
        return [(row.at - START, row.counts.started, row.counts.succeeded) for row in found]

    assert await rows() == [(0, 1, 0)], "while it runs"
    clock.advance(3 * MINUTE)
    await build.done(succeeded(task.fence))
    assert await rows() == [(0, 1, 0), (180, 0, 1)], "before the fold"
    await build.store.compact_history()
    assert await rows() == [(0, 1, 0), (180, 0, 1)], "after it"


async def test_the_wait_counts_from_ready_to_started(build: Build, clock: SettableClock) -> None:
    await build.one(queue="main")
    clock.advance(30)
    (task,) = await build.claim(await build.worker())
    clock.advance(2)
    await build.done(succeeded(task.fence))
    row = await one(build.store)
    assert (row.counts.run_seconds, row.counts.wait_seconds) == (2.0, 30.0)
    assert (row.run_times, row.wait_times) == ({bucket_of(2.0): 1}, {bucket_of(30.0): 1})


async def test_both_stores_put_a_time_into_the_same_bucket(build: Build, clock: SettableClock) -> None:
    expected: Counter[int] = Counter()
    for seconds in (0.0, 0.009, 0.011, 0.03, 0.5, 1.3, 17.0, 100.0, 3_000.0, 20_000.0):
        task = await build.run(queue="main")
        clock.advance(seconds)
        ran = clock.now - task.claimed_at
        await build.done(succeeded(task.fence))
        expected[bucket_of(ran)] += 1
    rows = await build.store.get_statistics(EVER, step_minutes=1440)
    assert sum((Counter(row.run_times) for row in rows), Counter()) == expected


async def test_the_usage_of_calls_is_counted_for_every_end(build: Build) -> None:
    used = CallSummary(used=UsageTotals(calls=2, input_tokens=300, output_tokens=40))
    good, bad = await build.running(2, queue="main", upstream="model")
    await build.done(Succeeded(good.fence, b"1", CODEC, used), replace(dead(bad.fence), calls=used))
    for _ in range(2):
        row = await one(build.store)
        assert row.upstream == "model"
        assert (row.counts.calls, row.counts.input_tokens, row.counts.output_tokens) == (4, 600, 80)
        await build.store.compact_history()


async def test_counters_are_chosen_by_queue_function_upstream_and_time(
    build: Build, clock: SettableClock
) -> None:
    await build.enqueue(2, queue="main", upstream="model")
    clock.advance(HOUR)
    await build.enqueue(3, queue="other")

    async def enqueued(since: float = 0.0, until: float = EVER.until, **names: str) -> int:
        which = HistoryRange(since, until, **names)
        return sum(row.counts.enqueued for row in await build.store.get_statistics(which, step_minutes=60))

    for _ in range(2):
        assert await enqueued() == 5
        assert await enqueued(queue="main") == await enqueued(upstream="model") == 2
        assert await enqueued(upstream="") == 3
        assert await enqueued(function="app:work") == 5
        assert await enqueued(function="app:other") == 0
        assert await enqueued(since=START + MINUTE) == 3
        assert await enqueued(until=START + MINUTE) == 2
        await build.store.compact_history()


async def test_a_redrive_changes_nothing_in_the_past(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="main")
    await build.done(dead(task.fence))
    yesterday = HistoryRange(START - MINUTE, START + HOUR)
    before = await build.store.get_statistics(yesterday, step_minutes=60)
    clock.advance(DAY)
    await build.store.redrive([task.fence.task_id])
    assert await build.store.get_statistics(yesterday, step_minutes=60) == before
    assert [row.counts.dead for row in before] == [1]


async def test_old_counters_are_those_of_hours_then_of_days(build: Build, clock: SettableClock) -> None:
    for _ in range(3):
        task = await build.run(queue="main")
        await build.done(succeeded(task.fence))
        clock.advance(MINUTE)

    async def periods() -> list[tuple[float, int]]:
        rows = await build.store.get_statistics(EVER, step_minutes=1)
        return [(row.at - START, row.counts.succeeded) for row in rows]

    await build.store.compact_history()
    assert await periods() == [(0, 1), (60, 1), (120, 1)]
    clock.advance(2 * DAY + HOUR)
    await build.store.compact_history()
    assert await periods() == [(0, 3)]
    assert (await one(build.store)).run_times == {0: 3}
    late = HistoryRange(START + 10 * MINUTE, clock.now)
    assert (await one(build.store, late, step=60)).counts.succeeded == 3, "a part of the hour is asked for"
    clock.advance(36 * DAY)
    await build.store.compact_history()
    assert await periods() == [(-START % DAY - DAY, 3)]
    clock.advance(401 * DAY)
    await expire(build.store, finished_seconds=DAY, dead_seconds=DAY)
    assert await build.store.get_statistics(HistoryRange(0.0, clock.now), step_minutes=1440) == []


async def test_times_are_kept_by_the_minute_for_six_hours_and_counts_for_two_days(
    build: Build, clock: SettableClock
) -> None:
    for _ in range(3):
        task = await build.run(queue="main")
        await build.done(succeeded(task.fence))
        clock.advance(MINUTE)
    clock.advance(8 * HOUR)
    await build.store.compact_history()
    rows = await build.store.get_statistics(EVER, step_minutes=1)
    assert [(row.at - START, row.counts.succeeded, row.run_times) for row in rows] == [
        (0, 1, {0: 3}),
        (60, 1, {}),
        (120, 1, {}),
    ]
    hour = await one(build.store, HistoryRange(START + 2 * MINUTE, clock.now), step=60)
    assert (hour.counts.succeeded, hour.run_times) == (1, {0: 3})


async def test_names_that_are_not_kept_apart_are_summed(build: Build, clock: SettableClock) -> None:
    for queue, upstream in (("main", "model"), ("main", ""), ("other", "model")):
        task = await build.run(queue=queue, upstream=upstream)
        clock.advance(2)
        await build.done(succeeded(task.fence))
    for _ in range(2):
        row, other = await build.store.get_statistics(EVER, step_minutes=1440, apart=("queue",))
        assert (row.queue, row.function, row.upstream) == ("main", "", "")
        assert (row.counts.succeeded, row.run_times) == (2, {bucket_of(2.0): 2})
        assert (other.queue, other.counts.succeeded) == ("other", 1)
        (every,) = await build.store.get_statistics(EVER, step_minutes=60, apart=())
        assert (every.at, every.counts.succeeded) == (START, 3)
        await build.store.compact_history()


async def test_tenants_are_counted_by_the_hour(build: Build, clock: SettableClock) -> None:
    await build.enqueue(2, queue="main", tenant="acme")
    task = await build.run(tenant="other")
    await build.done(succeeded(task.fence))
    await build.enqueue(1, queue="main")
    for _ in range(3):
        rows = await build.store.get_tenant_statistics(EVER)
        assert [(row.tenant, row.counts.enqueued, row.counts.started) for row in rows] == [
            ("acme", 2, 0),
            ("other", 1, 1),
        ]
        assert await build.store.get_tenant_statistics(EVER, tenant="acme") == rows[:1]
        assert await build.store.get_tenant_statistics(EVER, limit=1) == rows[:1]
        await build.store.compact_history()
        clock.advance(36 * DAY)


async def total(store: Store, until: float) -> tuple[Counts, Counter[int], Counter[int]]:
    """Return the sums, which are the same by the minute, the hour and the day, and of the whole time."""
    which = HistoryRange(0.0, until)
    sums, *others = [
        summed(await store.get_statistics(which, step_minutes=step)) for step in (1, 60, 1440, WHOLE_TIME)
    ]
    by_queue = await store.get_statistics(which, step_minutes=WHOLE_TIME, apart=("queue",))
    assert {row.at for row in by_queue} == {0.0}
    assert len(by_queue) == len({row.queue for row in by_queue})
    for other in (*others, summed(by_queue)):
        assert astuple(other[0]) == pytest.approx(astuple(sums[0]), abs=0.01)
        assert other[1:] == sums[1:]
    return sums


def summed(rows: list[StatisticsRow]) -> tuple[Counts, Counter[int], Counter[int]]:
    sums = [sum(values) for values in zip(*(astuple(row.counts) for row in rows), strict=True)]
    runs = sum((Counter(row.run_times) for row in rows), Counter[int]())
    waits = sum((Counter(row.wait_times) for row in rows), Counter[int]())
    return Counts(*(round(value, 3) for value in sums)), runs, waits


async def test_two_supervisors_may_compact_at_once(build: Build, twin: Store, clock: SettableClock) -> None:
    for _ in range(10):
        tasks = await build.running(3, queue="main", tenant="acme")
        clock.advance(61)
        await build.done(*[succeeded(task.fence) for task in tasks])
    clock.advance(3 * DAY)
    before = await total(build.store, clock.now)
    tenants = await build.store.get_tenant_statistics(EVER)
    await asyncio.gather(*(each.compact_history(limit=7) for each in (build.store, twin) * 5))
    assert await total(build.store, clock.now) == before
    assert await build.store.get_tenant_statistics(EVER) == tenants
    assert before[0].succeeded == before[0].started == before[1].total() == 30


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.floats(0, 3 * HOUR)),
        st.tuples(st.just("enqueue"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.floats(1, 40 * DAY)),
        st.tuples(st.just("compact"), st.integers(1, 50)),
    ),
    max_size=14,
)


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
async def test_no_total_changes_through_compaction(
    back_end: BackEnd, build: Build, clock: SettableClock, steps: list[tuple[str, float]]
) -> None:
    for step, amount in steps:
        if step == "run":
            task = await build.run(queue="main")
            clock.advance(amount)
            await build.done(succeeded(task.fence) if amount > HOUR else dead(task.fence))
        elif step == "enqueue":
            await build.enqueue(int(amount), queue="other")
        elif step == "wait":
            clock.advance(amount)
        else:
            until = clock.now + DAY
            before = await total(build.store, until) if await any_counters(build.store, until) else None
            await build.store.compact_history(limit=int(amount))
            after = await total(build.store, until) if before is not None else None
            assert after == before


async def any_counters(store: Store, until: float) -> bool:
    return bool(await store.get_statistics(HistoryRange(0.0, until), step_minutes=1440))
