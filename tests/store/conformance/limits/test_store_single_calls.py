"""Calls that no claim has charged: they reserve a slot, or probe, by themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from gate_support import MINUTE, SLOW, declared, gate, parked
from store_build import Build, SettableClock

from tidegate.domain.failure import CallFailure, Reason
from tidegate.limits.settings import Limits
from tidegate.limits.values import GateState, ParkedBy
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


async def test_a_call_reserves_the_next_slot(store: Store, build: Build, clock: SettableClock) -> None:
    await declared(store, Limits(windows=(MINUTE,)))
    waits = [await store.acquire_slot("u", max_wait_seconds=60) for _ in range(4)]
    assert all(slot.is_granted for slot in waits)
    gaps = [after.wait_seconds - before.wait_seconds for before, after in pairwise(waits)]
    assert gaps == pytest.approx([1.0, 1.0, 1.0])
    await build.enqueue(3, upstream="u")
    worker = await build.worker()
    assert await build.claim(worker) == []
    clock.advance(waits[-1].wait_seconds + 1.0)
    assert len(await build.claim(worker)) == 1


async def test_a_slot_beyond_the_maximum_wait_is_not_charged(store: Store) -> None:
    await declared(store, Limits(windows=(MINUTE,)))
    assert (await store.acquire_slot("u", max_wait_seconds=5)).wait_seconds == 0.0
    refused = [await store.acquire_slot("u", max_wait_seconds=0.5) for _ in range(3)]
    assert {slot.is_granted for slot in refused} == {False}
    assert {slot.reason for slot in refused} == {"rate_limit"}
    assert [slot.wait_seconds for slot in refused] == pytest.approx([1.0, 1.0, 1.0])


async def test_no_slot_is_granted_while_the_gate_is_parked(store: Store) -> None:
    await declared(store, Limits(windows=(MINUTE,)))
    await store.report_failure("u", SLOW)
    slot = await store.acquire_slot("u", max_wait_seconds=60)
    assert not slot.is_granted
    assert slot.wait_seconds == pytest.approx(10.5, abs=0.6)
    assert slot.reason == "rate_limit"


async def test_an_undeclared_upstream_has_no_limits(store: Store) -> None:
    slot = await store.acquire_slot("nobody's", max_wait_seconds=0)
    assert slot.is_granted
    assert slot.wait_seconds == 0.0
    assert await store.list_upstreams() == []


async def test_one_single_call_may_probe_an_upstream(store: Store, clock: SettableClock) -> None:
    await declared(store)
    await store.report_failure("u", CallFailure(Reason.RATE_LIMIT))
    early = await store.acquire_slot("u", max_wait_seconds=0)
    assert (early.is_granted, early.opens_by_probe) == (False, True)
    assert early.wait_seconds == pytest.approx(1.0, abs=0.1)
    clock.advance(1.0)
    slots = [await store.acquire_slot("u", max_wait_seconds=0) for _ in range(3)]
    assert [(slot.is_granted, slot.is_probe) for slot in slots] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    await store.report_probe("u", is_good=False, seconds=0.0)
    assert (await gate(store)).state is GateState.PARKED
    clock.advance(1.0)
    assert (await store.acquire_slot("u", max_wait_seconds=0)).is_probe
    await store.report_probe("u", is_good=True, seconds=0.2)
    assert (await gate(store)).state is GateState.FLOWING
    slot = await store.acquire_slot("u", max_wait_seconds=1)
    assert (slot.is_granted, slot.is_probe) == (True, False)


async def test_no_single_call_probes_a_gate_that_only_time_or_a_person_opens(
    store: Store, clock: SettableClock
) -> None:
    await declared(store)
    await store.park_gate("u", seconds=None, why="")
    clock.advance(600.0)
    slot = await store.acquire_slot("u", max_wait_seconds=0)
    assert (slot.is_granted, slot.opens_by_probe, slot.wait_seconds) == (False, False, None)
    await store.report_probe("u", is_good=True, seconds=0.1)
    assert (await gate(store)).parked_by is ParkedBy.PERSON


@pytest.mark.parametrize("act", ["open", "probe"])
async def test_after_a_person_opens_or_probes_a_gate_tasks_no_longer_wait_for_the_servers_moment(
    store: Store, build: Build, clock: SettableClock, act: str
) -> None:
    await declared(store)
    tasks = [await build.run(upstream="u") for _ in range(2)]
    long = CallFailure(Reason.QUOTA, wait_seconds=3600.0)
    await build.done(*(parked(task, long, 3600.0) for task in tasks))
    await store.promote()
    assert await build.claim(await build.worker()) == []
    await (store.open_gate("u") if act == "open" else store.request_probe("u"))
    clock.advance(0.1)
    await store.promote()
    assert len(await build.claim(await build.worker())) == (2 if act == "open" else 1)
