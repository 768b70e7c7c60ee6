"""Permits of calls in flight that are not counted as a run: counted with the runs, released, expired."""

from __future__ import annotations

import itertools

import pytest
from store_build import Build, SettableClock, expire, ids_of, retrying, succeeded

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import CallSlot, PermitRecord, key_gate_name
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

_numbers = itertools.count()


async def declared(store: Store, limits: Limits, name: str = "u") -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, name, limits)])


async def call(store: Store, permit_id: str = "", *, upstream: str = "u", seconds: float = 60.0) -> CallSlot:
    permit_record = PermitRecord(permit_id or f"call-{next(_numbers)}", seconds)
    return await store.acquire_slot(upstream, max_wait_seconds=0.0, permit_record=permit_record)


async def in_flight(store: Store, name: str = "u") -> int:
    return next(row.in_flight for row in await store.list_upstreams() if row.name == name)


async def test_calls_in_flight_are_limited_and_each_end_makes_room(store: Store) -> None:
    await declared(store, Limits(max_in_flight=2))
    first, second, third = await call(store, "a"), await call(store, "b"), await call(store, "c")
    assert (first.has_permit, second.has_permit, third.is_granted) == (True, True, False)
    assert (third.is_at_capacity, third.has_permit, third.reason) == (True, False, "rate_limit")
    assert await in_flight(store) == 2
    await store.release_permits(["a"])
    await store.release_permits(["a", "nobody's"])
    assert (await call(store)).is_granted
    assert (await call(store)).is_at_capacity


async def test_runs_and_calls_count_together_in_either_order(store: Store, build: Build) -> None:
    await declared(store, Limits(max_in_flight=3))
    worker = await build.worker()
    await build.enqueue(9, upstream="u")
    assert (await call(store, "a")).is_granted
    tasks = await build.claim(worker)
    assert len(tasks) == 2
    assert (await call(store)).is_at_capacity
    assert await in_flight(store) == 3
    await store.release_permits(["a"])
    assert len(await build.claim(worker)) == 1
    await build.done(succeeded(tasks[0].fence))
    assert (await call(store)).is_granted
    assert await build.claim(worker) == []


async def test_a_call_counted_as_its_run_needs_no_permit(store: Store, build: Build) -> None:
    await declared(store, Limits(max_in_flight=1))
    await build.run(upstream="u")
    slot = await store.acquire_slot("u", max_wait_seconds=0.0)
    assert (slot.is_granted, slot.has_permit) == (True, False)
    assert await in_flight(store) == 1


async def test_a_permit_that_is_not_released_counts_until_it_expires(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declared(store, Limits(max_in_flight=1))
    await build.one(upstream="u")
    worker = await build.worker()
    await call(store, seconds=60.0)
    clock.advance(59.9)
    assert await build.claim(worker) == []
    clock.advance(0.2)
    assert await in_flight(store) == 0
    assert len(await build.claim(worker)) == 1


async def test_the_calls_of_a_run_count_until_that_run_is_over(store: Store, build: Build) -> None:
    await declared(store, Limits(max_in_flight=2))
    fence = (await build.run(queue="main")).fence
    for number in range(2):
        record = PermitRecord(f"of the run {number}", 3600.0, fence)
        assert (await store.acquire_slot("u", max_wait_seconds=0.0, permit_record=record)).has_permit
    assert (await call(store)).is_at_capacity
    await build.done(retrying(fence, delay=0.0))  # as the reaper ends the run of a lost worker
    assert await in_flight(store) == 0
    assert (await call(store)).has_permit


async def test_the_lease_of_a_permit_begins_when_the_call_may_start(
    store: Store, clock: SettableClock
) -> None:
    await declared(store, Limits((Window("requests_per_minute", 6, 60.0),), max_in_flight=2))
    await call(store)
    later = await store.acquire_slot("u", max_wait_seconds=60.0, permit_record=PermitRecord("late", 5.0))
    assert later.wait_seconds == pytest.approx(10.0)
    clock.advance(14.9)
    assert await in_flight(store) == 2
    clock.advance(0.2)
    assert await in_flight(store) == 1


async def test_a_permit_can_be_extended_but_not_shortened_or_restored(
    store: Store, clock: SettableClock
) -> None:
    await declared(store, Limits(max_in_flight=9))
    await call(store, "long", seconds=60.0)
    await call(store, "gone", seconds=60.0)
    await store.extend_permits(["long", "gone"], seconds=5.0)
    clock.advance(50.0)
    assert await in_flight(store) == 2
    await store.release_permits(["gone"])
    await store.extend_permits(["long", "gone"], seconds=60.0)
    clock.advance(59.0)
    assert await in_flight(store) == 1


async def test_no_permit_is_stored_without_an_in_flight_limit(store: Store) -> None:
    await declared(store, Limits((Window("requests_per_minute", 60, 60.0),)))
    slot = await call(store)
    assert (slot.is_granted, slot.has_permit) == (True, False)
    unknown = await call(store, upstream="nobody's")
    assert (unknown.is_granted, unknown.has_permit) == (True, False)
    assert await in_flight(store) == 0


async def test_a_refused_call_charges_no_limit(store: Store) -> None:
    await declared(store, Limits((Window("requests_per_minute", 60, 60.0),), max_in_flight=1))
    await call(store, "a")
    for _ in range(5):
        assert (await call(store)).is_at_capacity
    await store.release_permits(["a"])
    slot = await store.acquire_slot("u", max_wait_seconds=60.0, permit_record=PermitRecord("b", 60.0))
    assert slot.wait_seconds == pytest.approx(1.0)


async def test_a_parked_gate_is_reported_as_parked_even_at_capacity(store: Store) -> None:
    await declared(store, Limits(max_in_flight=1))
    await call(store)
    await store.report_failure("u", CallFailure(Reason.RATE_LIMIT, wait_seconds=10.0))
    slot = await call(store)
    assert (slot.is_granted, slot.is_at_capacity) == (False, False)
    assert slot.wait_seconds == pytest.approx(10.5, abs=0.6)


async def test_the_gate_of_a_key_counts_its_own_calls(store: Store, build: Build) -> None:
    key = key_gate_name("u", "a")
    await declared(store, Limits(max_in_flight=5))
    await declared(store, Limits(max_in_flight=1), key)
    await build.running(2, upstream="u")
    assert (await call(store, upstream=key)).is_granted
    assert (await call(store, upstream=key)).is_at_capacity
    assert (await in_flight(store), await in_flight(store, key)) == (2, 1)


async def test_names_with_special_characters_can_have_permits(store: Store) -> None:
    name = "aü' \"%\udc00"
    await declared(store, Limits(max_in_flight=1), name)
    assert (await call(store, upstream=name)).is_granted
    assert (await call(store, upstream=name)).is_at_capacity


async def test_expired_permits_are_deleted(store: Store, clock: SettableClock) -> None:
    await declared(store, Limits(max_in_flight=9))
    await call(store, seconds=10.0)
    await call(store, seconds=100.0)
    clock.advance(50.0)
    sweep = {"finished_seconds": 1e9, "dead_seconds": 1e9}
    assert await expire(store, **sweep) == 1
    assert await expire(store, **sweep) == 0
    assert await in_flight(store) == 1


async def test_a_lowered_limit_admits_no_call_until_enough_have_ended(store: Store, build: Build) -> None:
    await declared(store, Limits(max_in_flight=5))
    waiting = await build.enqueue(1, upstream="u")
    for permit_id in "abcd":
        await call(store, permit_id)
    await store.set_limits("u", Limits(max_in_flight=2))
    worker = await build.worker()
    await store.release_permits(["a", "b"])
    assert await build.claim(worker) == []
    await store.release_permits(["c"])
    assert ids_of(await build.claim(worker)) == waiting
