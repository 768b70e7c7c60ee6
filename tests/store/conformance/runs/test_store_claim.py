"""Claiming: which tasks a worker gets, in what order, and no task twice."""

from __future__ import annotations

import asyncio

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, dead, ids_of, retrying, succeeded, terms

from tidegate.domain.outcome import Charge, Counters, Fence, Released
from tidegate.domain.spec import NO_LIMIT, Priority
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import CrashPolicy

INTERACTIVE, NORMAL, BULK = Priority


async def test_a_claimed_task_has_everything_it_was_enqueued_with(build: Build, clock: SettableClock) -> None:
    task_id = await build.one(
        queue="q",
        priority=BULK,
        upstream="openai",
        tenant="acme",
        args=b"payload",
        labels={"a": "b"},
        timeout_seconds=7.0,
        total_timeout_seconds=70.0,
        max_attempts=4,
        deadline_seconds=100.0,
    )
    clock.advance(2)
    worker = await build.worker()
    [task] = await build.claim(worker)
    assert task.fence == Fence(task_id, 1)
    assert (task.function, task.queue, task.priority) == ("app:work", "q", BULK)
    assert (task.upstream, task.tenant, task.args, task.codec_tag) == ("openai", "acme", b"payload", "json/1")
    assert (task.enqueued_at, task.ready_at, task.claimed_at) == (START, START, START + 2)
    assert (task.spent_seconds, task.deadline_at) == (0.0, START + 100)
    assert (task.timeout_seconds, task.total_timeout_seconds) == (7.0, 70.0)
    assert (task.max_attempts, task.labels) == (4, {"a": "b"})
    assert task.counters == Counters()
    row = await build.row(task_id)
    assert (row.state, row.run, row.worker_id, row.started_at) == (State.RUNNING, 1, worker, START + 2)


async def test_a_claim_takes_no_more_than_its_slots(build: Build) -> None:
    ids = await build.enqueue(10)
    worker = await build.worker()
    assert ids_of(await build.claim(worker, 3)) == ids[:3]
    assert ids_of(await build.claim(worker, 100)) == ids[3:]
    assert await build.claim(worker, 100) == []


async def test_a_claim_of_a_thousand_slots_works(build: Build) -> None:
    ids = await build.enqueue(1_000)
    assert ids_of(await build.claim(await build.worker(), 1_000)) == ids


async def test_a_claim_takes_only_functions_that_the_process_knows(build: Build) -> None:
    strange = await build.enqueue(3, function="other:job")
    known = await build.enqueue(2)
    worker = await build.worker()
    assert ids_of(await build.claim(worker)) == known
    assert ids_of(await build.claim(worker, functions=terms("other:job"))) == strange


async def test_a_claim_takes_only_from_served_queues(build: Build) -> None:
    for queue in ("a", "b", "c"):
        await build.one(queue=queue)
    worker = await build.worker()
    assert [task.queue for task in await build.claim(worker, queues=("b", "c", "none"))] == ["b", "c"]
    assert [task.queue for task in await build.claim(worker)] == ["a"]


async def test_a_queue_listed_twice_is_served_once(build: Build) -> None:
    ids = await build.enqueue(2, queue="a")
    assert ids_of(await build.claim(await build.worker(), queues=("a", "a"))) == ids


@pytest.mark.parametrize("queue", ["", " ", "Ünïcode ☃", 'quo"te', "x" * 300, "a\x01b", "*"])
async def test_any_queue_name_can_be_served(build: Build, queue: str) -> None:
    ids = await build.enqueue(2, queue=queue)
    await build.enqueue(1, queue=queue + "-other")
    claimed = await build.claim(await build.worker(), queues=(queue,))
    assert ids_of(claimed)[: len(ids)] == ids
    assert len(claimed) == (3 if queue == "*" else 2)


async def test_a_claim_by_an_unknown_worker_returns_no_task_and_is_not_alive(build: Build) -> None:
    await build.one()
    claim = await build.store.claim(build.request("nobody"))
    assert (claim.tasks, claim.is_alive) == ((), False)


async def test_a_claim_by_a_retired_worker_returns_no_task_and_is_not_alive(build: Build) -> None:
    worker = await build.worker()
    await build.one()
    await build.store.retire_worker(worker, why="test", is_loss=False, only_if_expired=False)
    claim = await build.store.claim(build.request(worker))
    assert (claim.tasks, claim.is_alive) == ((), False)
    missing_payload = await build.store.claim(build.request(worker, queues=("none",)))
    assert not missing_payload.is_alive


async def test_tasks_that_are_not_due_are_never_claimed(build: Build, clock: SettableClock) -> None:
    await build.in_state(State.SCHEDULED)
    await build.in_state(State.RETRYING)
    assert await build.claim(await build.worker()) == []
    clock.advance(3_600)
    assert await build.claim(await build.worker()) == []  # not before they are promoted
    assert await build.store.promote() == 2
    assert len(await build.claim(await build.worker())) == 2


async def test_two_workers_never_get_the_same_task(
    build: Build, clients: Clients, clock: SettableClock
) -> None:
    ids = await build.enqueue(600)
    async with opened(clients) as one, opened(clients) as other:
        builds = [build, Build(one, clock), Build(other, clock)]
        workers = [await build.worker() for _ in builds]
        got: list[str] = []

        async def drain(mine: Build, worker: str) -> None:
            while tasks := await mine.claim(worker, 7):
                got.extend(ids_of(tasks))

        await asyncio.gather(*map(drain, builds, workers))
    assert sorted(got) == sorted(ids)


async def test_each_claim_increments_the_run(build: Build) -> None:
    task = await build.run(queue="q")
    for run in range(1, 5):
        assert task.fence.run == run
        await build.done(Released(task.fence, "shutdown"))
        [task] = await build.claim(await build.worker(), queues=("q",))


# --- order ---


async def test_priority_comes_before_rank(build: Build, clock: SettableClock) -> None:
    bulk = await build.one(priority=BULK)
    clock.advance(1)
    normal = await build.one(priority=NORMAL)
    clock.advance(1)
    urgent = await build.one(priority=INTERACTIVE)
    assert ids_of(await build.claim(await build.worker())) == [urgent, normal, bulk]


async def test_an_urgent_task_waits_for_at_most_one_bulk_task_on_a_single_slot(build: Build) -> None:
    worker = await build.worker()
    bulk = await build.enqueue(5, priority=BULK)
    [first] = await build.claim(worker, 1)
    urgent = await build.one(priority=INTERACTIVE)
    await build.done(succeeded(first.fence))
    order = [first.fence.task_id]
    while task := await build.claim(worker, 1):
        order += ids_of(task)
    assert order == [bulk[0], urgent, *bulk[1:]]


async def test_reserved_slots_go_to_lower_priorities_first(build: Build) -> None:
    urgent = await build.enqueue(10, priority=INTERACTIVE)
    normal = await build.enqueue(10, priority=NORMAL)
    bulk = await build.enqueue(10, priority=BULK)
    got = await build.claim(await build.worker(), 8, reserved={NORMAL: 2, BULK: 1})
    assert ids_of(got) == [*normal[:2], bulk[0], *urgent[:5]]


async def test_unused_reserved_slots_go_to_other_priorities(build: Build) -> None:
    urgent = await build.enqueue(5, priority=INTERACTIVE)
    got = await build.claim(await build.worker(), 5, reserved={NORMAL: 2, BULK: 2})
    assert ids_of(got) == urgent


async def test_reserved_slots_never_raise_the_total(build: Build) -> None:
    await build.enqueue(5, priority=BULK)
    await build.enqueue(5, priority=NORMAL)
    got = await build.claim(await build.worker(), 2, reserved={NORMAL: 2, BULK: 2})
    assert [task.priority for task in got] == [NORMAL, NORMAL]


async def test_within_a_priority_tasks_are_claimed_by_rank_across_queues_upstreams_and_functions(
    build: Build, clock: SettableClock
) -> None:
    expected = []
    for n in range(24):
        expected.append(
            await build.one(queue=f"q{n % 2}", upstream=f"u{n % 3}", function=f"f{n % 4}", tenant=f"t{n % 5}")
        )
        clock.advance(1)
    worker = await build.worker()
    got = []
    while tasks := await build.claim(worker, 5, functions=terms("f0", "f1", "f2", "f3")):
        got += ids_of(tasks)
    assert got == expected


async def test_a_strict_claim_takes_queues_in_listed_order_within_a_priority(
    build: Build, clock: SettableClock
) -> None:
    first = await build.enqueue(2, queue="second")
    clock.advance(1)
    second = await build.enqueue(2, queue="first")
    urgent = await build.one(queue="second", priority=INTERACTIVE)
    worker = await build.worker()
    got = await build.claim(worker, 3, queues=("first", "second"), is_strict=True)
    assert ids_of(got) == [urgent, *second]
    assert ids_of(await build.claim(worker, 9, queues=("first", "second"), is_strict=True)) == first


async def test_equal_ranks_are_ordered_by_id(build: Build) -> None:
    new = [build.new(queue=f"q{n % 3}") for n in range(30)]
    await build.store.enqueue(new[15:])
    await build.store.enqueue(new[:15])
    assert ids_of(await build.claim(await build.worker())) == [task.id for task in new]


async def test_a_failed_task_is_claimed_after_tasks_younger_by_less_than_its_penalty(
    build: Build, clock: SettableClock
) -> None:
    failed = await build.run(queue="q")
    await build.done(retrying(failed.fence, delay=10.0, offset=60.0))
    clock.advance(69)
    younger = await build.one(queue="q")
    clock.advance(2)
    youngest = await build.one(queue="q")
    assert await build.store.promote() == 1
    got = await build.claim(await build.worker(), queues=("q",))
    assert ids_of(got) == [younger, failed.fence.task_id, youngest]


async def test_a_released_task_keeps_its_place_in_the_queue(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="q")
    clock.advance(5)
    other = await build.one(queue="q")
    clock.advance(5)
    await build.done(Released(task.fence, "shutdown"))
    got = await build.claim(await build.worker(), queues=("q",))
    assert ids_of(got) == [task.fence.task_id, other]


async def test_a_release_with_a_better_rank_is_claimed_before_older_tasks(
    build: Build, clock: SettableClock
) -> None:
    older = await build.one(queue="q")
    clock.advance(100)
    task = await build.run(queue="r")
    await build.done(Released(task.fence, "shutdown", rank_offset=-600.0))
    got = await build.claim(await build.worker(), 2, queues=("q", "r"))
    assert ids_of(got) == [task.fence.task_id, older]


# --- what a run knows of the ones before ---


async def test_counters_come_with_the_claim(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="q")
    charges = [Charge.ATTEMPT, Charge.ATTEMPT, Charge.PARK, Charge.CRASH, Charge.LOSS, Charge.NOTHING]
    worker = await build.worker()
    for charge in charges:
        await build.done(
            retrying(task.fence, delay=0.0, charge=charge, rule="r" if charge is Charge.ATTEMPT else "")
        )
        clock.advance(1)
        await build.store.promote()
        [task] = await build.claim(worker, queues=("q",))
    await build.done(Released(task.fence, "shutdown"))
    [task] = await build.claim(worker, queues=("q",))
    assert task.counters == Counters(2, 1, 1, 1, 1, (("r", 2),))
    assert task.counters.of_rule("r") == 2


async def test_spent_time_counts_from_the_first_start_without_parks(
    build: Build, clock: SettableClock
) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    clock.advance(10)  # ran 10 s
    await build.done(retrying(task.fence, delay=20.0))
    clock.advance(20)
    await build.store.promote()
    [task] = await build.claim(worker, queues=("q",))
    assert task.spent_seconds == pytest.approx(30)
    clock.advance(5)
    await build.done(retrying(task.fence, delay=100.0, charge=Charge.PARK))
    clock.advance(100)
    await build.store.promote()
    clock.advance(7)  # waiting for a slot is still part of the park
    [task] = await build.claim(worker, queues=("q",))
    assert task.spent_seconds == pytest.approx(35)
    clock.advance(1)
    await build.done(retrying(task.fence, delay=2.0))
    clock.advance(2)
    await build.store.promote()
    [task] = await build.claim(worker, queues=("q",))
    assert task.spent_seconds == pytest.approx(38)


async def test_a_deadline_of_the_caller_is_never_paused(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="q", deadline_seconds=60.0)
    await build.done(retrying(task.fence, delay=50.0, charge=Charge.PARK))
    clock.advance(50)
    await build.store.promote()
    [task] = await build.claim(await build.worker(), queues=("q",))
    assert task.deadline_at == START + 60


@pytest.mark.parametrize("number", [1, 2, 60])
@pytest.mark.parametrize("keyed", [True, False])
async def test_every_way_to_enqueue_stores_the_total_timeout_and_the_deadline(
    build: Build, number: int, keyed: bool
) -> None:
    tasks = [
        build.new(
            queue="q",
            total_timeout_seconds=NO_LIMIT if place else 70.0,
            deadline_at=START + 1_000,
            key=f"key-{place}" if keyed else None,
        )
        for place in range(number)
    ]
    await build.store.enqueue(tasks)
    claimed = await build.claim(await build.worker(), queues=("q",))
    assert sorted(task.total_timeout_seconds or 0 for task in claimed) == [70.0, *[NO_LIMIT] * (number - 1)]
    assert {task.deadline_at for task in claimed} == {START + 1_000}


# --- claims whose answer was lost ---


async def test_lost_claims_are_the_runs_that_the_worker_does_not_know(build: Build) -> None:
    worker, other = await build.worker(), await build.worker()
    known = await build.running(2, worker=worker)
    lost = await build.running(3, worker=worker)
    await build.running(1, worker=other)
    fences = [task.fence for task in known]
    assert sorted(await build.store.find_lost_claims(worker, fences)) == sorted(task.fence for task in lost)
    assert await build.store.find_lost_claims(worker, [task.fence for task in known + lost]) == []
    assert await build.store.find_lost_claims("nobody", []) == []


async def test_a_known_earlier_run_does_not_hide_a_later_lost_claim(build: Build) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    await build.done(Released(task.fence, "shutdown"))
    [again] = await build.claim(worker, queues=("q",))
    assert await build.store.find_lost_claims(worker, [task.fence]) == [again.fence]


async def test_the_crash_policy_of_a_claim_reaches_maintenance(build: Build) -> None:
    worker = await build.worker()
    await build.enqueue(1, function="a")
    await build.enqueue(1, function="b")
    functions = {"a": CrashPolicy(1, 2.0, 3.0), "b": CrashPolicy(5, 10.0, 600.0)}
    await build.claim(worker, functions=functions)
    await build.store.retire_worker(worker, why="gone", is_loss=True, only_if_expired=False)
    assert {orphan.function: orphan.crash_policy for orphan in await build.store.list_orphans()} == functions


async def test_a_dead_task_does_not_block_the_next_task(build: Build, store: Store) -> None:
    first = await build.run(queue="q")
    [second] = await build.enqueue(1, queue="q")
    await build.done(dead(first.fence))
    assert ids_of(await build.claim(await build.worker(), queues=("q",))) == [second]


@pytest.mark.parametrize("worker_id", ["a\0b", "a\ud800b"])
async def test_a_worker_id_that_cannot_be_stored_has_no_runs(build: Build, worker_id: str) -> None:
    assert await build.store.find_lost_claims(worker_id, []) == []
