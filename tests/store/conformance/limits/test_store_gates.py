"""Gates of upstreams in the store: parked for every worker, probed, and opened."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_support import DOWN, NO_LIMITS, SLOW, declared, gate, parked
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, dead, ids_of, retrying, succeeded

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Released
from tidegate.domain.states import State
from tidegate.limits.values import GateState, ParkedBy
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


async def test_a_failure_parks_the_upstream_for_every_worker_and_no_other_upstream(
    store: Store, build: Build, clients: Clients
) -> None:
    await declared(store)
    first = await build.run(upstream="u")
    await build.enqueue(3, upstream="u")
    other = await build.one(upstream="v")
    plain = await build.one()
    await build.done(parked(first))
    async with opened(clients) as elsewhere:
        claim = await elsewhere.claim(build.request(await build.worker()))
    assert set(ids_of(claim.tasks)) == {other, plain}
    assert claim.next_claim_seconds == pytest.approx(10.0, abs=1.1)


async def test_after_the_servers_wait_tasks_are_claimed_in_order(
    store: Store, build: Build, clock: SettableClock
) -> None:
    first = await build.run(upstream="u")
    waiting = await build.enqueue(3, upstream="u")
    await build.done(parked(first))
    worker = await build.worker()
    clock.advance(9.9)
    assert await build.claim(worker) == []
    claimed = []
    for _ in range(4):
        clock.advance(1.2)
        claimed += ids_of(await build.claim(worker))
    assert claimed == waiting


async def test_ready_tasks_of_a_parked_upstream_are_blocked_and_neither_ready_nor_waiting_longest(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declared(store)
    await build.enqueue(3, upstream="u")
    clock.advance(5.0)
    await build.one()
    await store.park_gate("u", seconds=60.0, why="deploy")
    (stats,) = await store.get_queue_stats()
    assert (stats.ready, stats.blocked, stats.oldest_ready_at) == (1, 3, START + 5.0)
    (row,) = await store.list_upstreams()
    assert (row.ready, row.in_flight, row.gate.parked_by, row.gate.message) == (
        3,
        0,
        ParkedBy.PERSON,
        "deploy",
    )
    assert row.block is not None
    assert row.block.until_at == START + 65.0
    clock.advance(60.0)
    (stats,) = await store.get_queue_stats()
    assert (stats.ready, stats.blocked) == (4, 0)


async def test_a_late_failure_of_a_call_from_before_the_gate_opened_changes_nothing(
    store: Store, build: Build, clock: SettableClock
) -> None:
    hung, *tasks = await build.running(6, upstream="u")
    await build.enqueue(2, upstream="u")
    await build.done(*(replace(retrying(task.fence), call_failure=DOWN) for task in tasks))
    clock.advance(1.0)
    (probe,) = await build.claim(await build.worker())
    clock.advance(0.5)
    await build.done(succeeded(probe.fence))
    opened_gate = await gate(store)
    clock.advance(0.5)
    await build.done(replace(retrying(hung.fence), call_failure=CallFailure(Reason.TIMEOUT)))
    assert await gate(store) == opened_gate
    assert opened_gate.state is GateState.FLOWING


async def test_after_many_failures_only_probes_run_and_a_successful_one_opens_the_gate(
    store: Store, build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(5, upstream="u")
    await build.enqueue(5, upstream="u")
    await build.done(*(replace(retrying(task.fence), call_failure=DOWN) for task in tasks))
    worker = await build.worker()
    assert await build.claim(worker) == []
    clock.advance(1.0)
    (probe,) = await build.claim(worker)
    assert probe.is_probe
    assert (await gate(store)).state is GateState.PROBING
    assert await build.claim(worker) == []
    await build.done(succeeded(probe.fence))
    assert (await gate(store)).state is GateState.FLOWING
    assert len(await build.claim(worker)) == 1, "a slow start without a pace begins with one at a time"


async def test_a_failure_of_the_task_itself_shows_that_its_upstream_answers(
    store: Store, build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(5, upstream="u")
    await build.one(upstream="u")
    await build.done(*(replace(retrying(task.fence), call_failure=DOWN) for task in tasks))
    clock.advance(1.0)
    (probe,) = await build.claim(await build.worker())
    refused = Failure(Verdict.PERMANENT, Reason.INVALID_REQUEST, status=400)
    await build.done(dead(probe.fence, failure=refused))
    assert (await gate(store)).state is GateState.FLOWING


async def test_a_probe_whose_worker_died_allows_the_next_probe_once_its_run_is_requeued(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declared(store)
    slow, *tasks = await build.running(6, upstream="u")
    await build.enqueue(2, upstream="u")
    clock.advance(100.0)
    await build.done(succeeded(slow.fence))
    await build.done(*(replace(retrying(task.fence), call_failure=DOWN) for task in tasks))
    clock.advance(1.0)
    lost = await build.worker()
    (probe,) = await build.claim(lost)
    clock.advance(5.0)
    worker = await build.worker()
    assert await build.claim(worker) == [], "it may still answer: good runs take twenty seconds"
    await store.retire_worker(lost, why="lease ran out", is_loss=True, only_if_expired=False)
    await build.done(Released(probe.fence, "lost"))
    assert (await gate(store)).state is GateState.PARKED
    assert [task.is_probe for task in await build.claim(worker)] == [True]


async def test_a_probe_that_is_released_at_once_does_not_make_probes_more_frequent(
    store: Store, build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(5, upstream="u")
    await build.enqueue(2, upstream="u")
    await build.done(*(replace(retrying(task.fence), call_failure=DOWN) for task in tasks))
    clock.advance(1.0)
    worker = await build.worker()
    (probe,) = await build.claim(worker)
    await build.done(Released(probe.fence, "drained"))
    assert await build.claim(worker) == []
    clock.advance(1.0)
    assert [task.is_probe for task in await build.claim(worker)] == [True]


async def test_an_account_failure_parks_the_gate_until_a_person_opens_it(
    store: Store, build: Build, clock: SettableClock
) -> None:
    task = await build.run(upstream="u")
    await build.done(parked(task, CallFailure(Reason.AUTH, needs_person=True, message="key \udc00 revoked")))
    waiting = await build.one(upstream="u")
    worker = await build.worker()
    clock.advance(10**6)
    await store.promote()
    claim = await store.claim(build.request(worker))
    assert (claim.tasks, claim.next_claim_seconds) == ((), None)
    assert await store.open_gate("u")
    await store.promote()
    assert set(ids_of(await build.claim(worker))) == {waiting, task.fence.task_id}


async def test_actions_on_an_unknown_upstream_return_false(store: Store) -> None:
    assert not await store.park_gate("x", seconds=None, why="")
    assert not await store.open_gate("x")
    assert not await store.request_probe("x")
    assert not await store.set_limits("x", NO_LIMITS)
    assert await store.list_upstreams() == []


async def test_opening_an_undeclared_key_opens_no_other_gate(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await declared(store)
    task = await build.run(upstream="u")
    await build.done(parked(task, CallFailure(Reason.QUOTA, wait_seconds=3600.0), 3600.0))
    assert not await store.open_gate("u#nobodys")
    assert (await gate(store)).state is GateState.PARKED
    clock.advance(1800.0)
    await store.promote()
    assert await build.state(task.fence.task_id) is State.RETRYING
    row = (await store.read_tasks([task.fence.task_id]))[task.fence.task_id]
    assert row.due_at == pytest.approx(START + 3600.0, abs=1.0)
    assert (row.held_until_at, row.held_by) == (None, "")
    assert [row.name for row in await store.list_upstreams()] == ["u"]


async def test_a_probe_requested_by_a_person_is_one_task(store: Store, build: Build) -> None:
    await declared(store)
    await build.enqueue(3, upstream="u")
    await store.park_gate("u", seconds=None, why="")
    assert await store.request_probe("u")
    worker = await build.worker()
    assert [task.is_probe for task in await build.claim(worker)] == [True]
    assert await build.claim(worker) == []


async def test_a_call_can_report_on_its_upstream_without_a_run(store: Store, build: Build) -> None:
    reported = await store.report_failure("u", SLOW)
    assert reported == await gate(store)
    assert reported.state is GateState.PARKED
