"""Limits of upstreams and functions in the store: shared by all workers and charged at the claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_support import MINUTE, NO_LIMITS, declared, upstream
from store_build import Build, SettableClock, ids_of, succeeded, terms

from tidegate.domain.outcome import Released
from tidegate.domain.spec import Priority, Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


async def test_limits_of_upstreams_and_functions_follow_the_code(store: Store, build: Build) -> None:
    one, other = Limits((MINUTE,)), Limits((replace(MINUTE, amount=5),), max_in_flight=3)
    function = LimitDeclaration(GateKind.FUNCTION, "app:work", one)
    await store.declare_limits([upstream(limits=one), function])
    kept = await store.declare_limits([upstream(limits=other), replace(function, limits=other)])
    assert [row.limits for row in kept] == [other, other]
    assert [row.limits for row in await store.list_gates() if row.name] == [other, other]


async def test_a_limit_set_by_hand_outlasts_declarations_while_others_follow_the_code(store: Store) -> None:
    await store.declare_limits([upstream(limits=Limits((MINUTE,), max_in_flight=3))])
    set_by_person = Limits(
        (replace(MINUTE, amount=5),), max_in_flight=3, set_by_person=("requests_per_minute",)
    )
    assert await store.set_limits("u", set_by_person)
    day = Window("requests_per_day", 900, 86_400.0, is_fixed=True)
    declared = Limits((replace(MINUTE, amount=700, is_fixed=True), day), max_in_flight=9)

    (kept,) = await store.declare_limits([upstream(limits=declared)])

    assert kept.limits == replace(
        declared,
        windows=(replace(MINUTE, amount=5, is_fixed=True), day),
        set_by_person=("requests_per_minute",),
    )
    assert [row.limits for row in await store.list_gates() if row.name == "u"] == [kept.limits]


async def test_a_limit_removed_by_hand_stays_removed(store: Store) -> None:
    await store.declare_limits([upstream(limits=Limits((MINUTE,), max_in_flight=3))])
    await store.set_limits("u", Limits(set_by_person=("requests_per_minute", "max_in_flight")))

    (kept,) = await store.declare_limits([upstream(limits=Limits((MINUTE,), max_in_flight=3))])

    assert (kept.limits.windows, kept.limits.max_in_flight) == ((), None)


@pytest.mark.parametrize("kind", [GateKind.UPSTREAM, GateKind.FUNCTION])
async def test_a_limit_paces_all_workers_together(
    store: Store, build: Build, clock: SettableClock, kind: GateKind
) -> None:
    name = "u" if kind is GateKind.UPSTREAM else "app:work"
    await store.declare_limits([LimitDeclaration(kind, name, Limits((replace(MINUTE, amount=600),)))])
    await build.enqueue(40, upstream="u")
    workers = [await build.worker() for _ in range(3)]
    starts = []
    for _ in range(30):
        for worker in workers:
            claim = await store.claim(build.request(worker))
            starts += [clock.now + task.wait_seconds for task in claim.tasks]
            assert claim.next_claim_seconds is not None
        clock.advance(0.1)
    assert len(starts) == pytest.approx(36, abs=2)
    assert starts == sorted(starts)
    assert max(sum(at <= other < at + 0.999 for other in starts) for at in starts) <= 10 + 5


async def test_a_changed_limit_applies_from_the_next_claim(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declared(store, Limits((MINUTE,)))
    await build.enqueue(100, upstream="u")
    worker = await build.worker()
    assert len(await build.claim(worker)) == 1
    await store.set_limits("u", NO_LIMITS)
    assert len(await build.claim(worker)) == 99


async def test_after_raising_a_tiny_limit_tasks_do_not_wait_long(store: Store, build: Build) -> None:
    await declared(store, Limits((Window("requests_per_hour", 1, 3600.0),)))
    await build.enqueue(3, upstream="u")
    worker = await build.worker()
    assert len(await build.claim(worker)) == 1
    await store.set_limits("u", Limits((Window("requests_per_hour", 36_000, 3600.0),)))
    assert len(await build.claim(worker)) == 2


async def test_a_tighter_limit_does_not_postpone_tasks_that_have_their_slot(
    store: Store, clock: SettableClock
) -> None:
    await declared(store, Limits((MINUTE,)))
    assert (await store.acquire_slot("u", max_wait_seconds=60)).is_granted
    await store.set_limits("u", Limits((Window("requests_per_minute", 1, 60.0),)))
    clock.advance(1.0)
    assert (await store.acquire_slot("u", max_wait_seconds=0)).is_granted
    assert not (await store.acquire_slot("u", max_wait_seconds=50)).is_granted


async def test_runs_in_flight_are_limited_across_workers_and_orphans_count_until_requeued(
    store: Store, build: Build
) -> None:
    await declared(store, Limits(max_in_flight=3))
    await build.enqueue(10, upstream="u")
    worker, lost = await build.worker(), await build.worker()
    mine, theirs = await build.claim(worker, 2), await build.claim(lost)
    assert (len(mine), len(theirs)) == (2, 1)
    assert await build.claim(worker) == []
    await build.done(succeeded(mine[0].fence))
    assert len(await build.claim(worker)) == 1
    await store.retire_worker(lost, why="lease ran out", is_loss=True, only_if_expired=False)
    await build.done(Released(theirs[0].fence, "lost"))
    assert len(await build.claim(worker)) == 1


async def test_a_limit_is_shared_across_priorities_and_queues_and_delays_no_other_task(
    store: Store, build: Build
) -> None:
    await declared(store, Limits(max_in_flight=4))
    for priority in Priority:
        await build.enqueue(5, upstream="u", priority=priority, queue=f"q-{priority.word}")
        await build.enqueue(2, priority=priority)
    tasks = await build.claim(await build.worker(), 9)
    assert sum(task.upstream == "u" for task in tasks) == 4
    assert len(tasks) == 9
    assert [task.priority for task in tasks] == sorted(task.priority for task in tasks)


async def test_thousands_of_blocked_tasks_cost_a_claim_nothing_and_other_channels_run_on(
    store: Store, build: Build
) -> None:
    await declared(store)
    await store.park_gate("u", seconds=None, why="")
    for _ in range(4):
        await build.enqueue(2_500, upstream="u", priority=Priority.INTERACTIVE)
    free = await build.enqueue(5, priority=Priority.BULK)
    assert ids_of(await build.claim(await build.worker())) == free


async def test_names_with_special_characters_can_have_gates(store: Store, build: Build) -> None:
    name = "aü' \"%" * 9
    await declared(store, Limits(max_in_flight=1), name)
    await build.enqueue(2, upstream=name)
    assert len(await build.claim(await build.worker())) == 1
    await store.park_gate(name, seconds=None, why="\x00")
    (stats,) = await store.get_queue_stats()
    assert (stats.ready, stats.blocked) == (0, 1)


async def test_blocked_channels_are_skipped_among_very_many_channels(store: Store, build: Build) -> None:
    await declared(store)
    await store.park_gate("u", seconds=None, why="")
    functions = [f"f{number}" for number in range(2_100)]
    await store.enqueue([build.new(function=name, upstream="u") for name in functions])
    await store.enqueue([build.new(function=name, queue="z") for name in functions[:7]])
    tasks = await build.claim(await build.worker(), functions=terms(*functions))
    assert sorted(task.function for task in tasks) == sorted(functions[:7])
