"""Limits learned from headers: shared by all clients, applied to claims and single calls; the latest call
counts."""

from __future__ import annotations

import pytest
from store_back_ends import Clients, opened
from store_build import Build, SettableClock, ids_of, succeeded

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import GateState, ObservedLimit
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


def observed(remaining: float, reset: float, *, sent_seconds_ago: float = 0.0) -> ObservedLimit:
    return ObservedLimit(HeaderLimit(Dimension.REQUESTS, 100.0, remaining, reset), sent_seconds_ago)


async def test_an_exhausted_window_holds_tasks_of_all_workers_without_charging_them(
    store: Store, build: Build, clients: Clients, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    tasks = await build.enqueue(3, upstream="u")
    other = await build.one(upstream="v")
    await store.report_limits("u", [observed(60, 40.0), observed(0, 12.0)])
    async with opened(clients) as elsewhere:
        claim = await elsewhere.claim(build.request(await build.worker()))
        (row,) = await elsewhere.list_upstreams()
    assert ids_of(claim.tasks) == [other]
    assert claim.next_claim_seconds == pytest.approx(12.0, abs=0.5)
    assert (row.block, row.paced) == (None, 3)
    assert "its limit of requests is used up; opens in 12 s" in row.waits_for
    assert (row.gate.state, row.gate.failures, row.ready) == (GateState.FLOWING, 0, 3)
    clock.advance(12.1)
    claimed = await build.claim(await build.worker())
    assert ids_of(claimed) == tasks
    assert {task.counters.parks for task in claimed} == {0}


async def test_tasks_behind_an_exhausted_window_are_blocked_if_it_is_long_and_otherwise_paced(
    store: Store, build: Build
) -> None:
    await store.declare_limits(
        [LimitDeclaration(GateKind.UPSTREAM, "u"), LimitDeclaration(GateKind.UPSTREAM, "v")]
    )
    await build.enqueue(3, upstream="u")
    await build.enqueue(4, upstream="v")
    await store.report_limits("u", [observed(60, 3600.0), observed(0, 3600.0)])
    await store.report_limits("v", [observed(60, 12.0), observed(0, 12.0)])
    (queue,) = await store.get_queue_stats()
    assert (queue.ready, queue.paced, queue.blocked) == (0, 4, 3)


async def test_of_responses_in_any_order_the_one_to_the_latest_call_counts(store: Store) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    await store.report_limits("u", [observed(0, 50.0, sent_seconds_ago=1.0)])
    row = await store.report_limits("u", [observed(9, 55.0, sent_seconds_ago=2.0)])
    assert row is not None
    assert row.gate.learned_limits[0].remaining == 0
    again = await store.report_limits("u", [observed(7, 55.0)])
    assert again is not None
    assert (again.gate.learned_limits[0].remaining, again.gate.learned_limits[0].opens_at) == (7, None)
    assert next(gate for gate in await store.list_gates() if gate.name == "u") == again


async def test_a_learned_limit_paces_claims_and_single_calls(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    await store.report_limits("u", [ObservedLimit(HeaderLimit(Dimension.REQUESTS, 60.0, 20.0, 40.0))])
    await build.enqueue(5, upstream="u")
    worker = await build.worker()
    assert len(await build.claim(worker)) == 1
    assert (await store.acquire_slot("u", max_wait_seconds=60)).wait_seconds == pytest.approx(60 / 79)
    assert await build.claim(worker) == []
    clock.advance(2.0)
    assert len(await build.claim(worker)) == 1
    assert (await store.list_gates())[0].limits == Limits()


async def test_a_person_can_open_a_gate_that_headers_parked(store: Store, build: Build) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    (task,) = await build.enqueue(1, upstream="u")
    await store.report_limits("u", [observed(60, 3000.0), observed(0, 3000.0)])
    await store.open_gate("u")
    assert ids_of(await build.claim(await build.worker())) == [task]


async def test_limits_of_an_undeclared_upstream_are_not_stored(store: Store) -> None:
    assert await store.report_limits("nobody's", [observed(0, 50.0)]) is None
    assert await store.list_upstreams() == []


async def test_after_a_429_claims_go_on_at_a_rate_learned_from_what_succeeded(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    worker = await build.worker()
    await build.enqueue(10, upstream="u")
    clock.advance(1.0)
    await build.done(*[succeeded(task.fence) for task in await build.claim(worker, 2)])
    await store.report_failure("u", CallFailure(Reason.RATE_LIMIT, wait_seconds=2.0))
    clock.advance(3.0)
    assert len(await build.claim(worker)) == 1
    assert await build.claim(worker) == []
    (row,) = await store.list_upstreams()
    assert row.gate.learned_rate.per_second == pytest.approx(1.0, rel=0.1)
    clock.advance(1.1)
    assert len(await build.claim(worker)) == 2, "the rate doubles in two seconds"


async def test_a_429_without_a_wait_leaves_a_gate_open_whose_declared_rate_was_used_up(
    store: Store, build: Build, clock: SettableClock
) -> None:
    limits = Limits((Window("requests_per_minute", 120, 60.0),))
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    worker = await build.worker()
    await build.enqueue(30, upstream="u")
    for _ in range(4):
        clock.advance(0.5)
        await build.claim(worker)
    gate = await store.report_failure("u", CallFailure(Reason.RATE_LIMIT, began_seconds_ago=0.1))
    assert (gate.state, gate.learned_rate.per_second) == (GateState.FLOWING, 1.0)
    clock.advance(0.5)
    claimed = [await build.claim(worker)]
    for _ in range(8):
        clock.advance(0.25)
        claimed.append(await build.claim(worker))
    assert sum(map(len, claimed)) == 3
    (row,) = [each for each in await store.list_gates() if each.name == "u"]
    assert row.buckets["learned_rate"].used == 3
