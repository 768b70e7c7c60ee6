"""Gates, limits and retry budgets in the store: shared, charged at the claim and at promotion."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, dead, ids_of, retrying, succeeded, terms

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Released, Retrying
from tidegate.domain.spec import Priority, Window
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import GateState, ParkedBy
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask

pytestmark = pytest.mark.anyio

MINUTE = Window("requests_per_minute", 60, 60.0)
SLOW = CallFailure(Reason.RATE_LIMIT, wait_seconds=10.0)
DOWN = CallFailure(Reason.SERVER_ERROR)
NO_LIMITS = Limits()


def upstream(name: str = "u", limits: Limits = NO_LIMITS) -> LimitDeclaration:
    return LimitDeclaration(GateKind.UPSTREAM, name, limits)


async def declared(store: Store, limits: Limits = NO_LIMITS, name: str = "u") -> None:
    await store.declare_limits([upstream(name, limits)])


async def gate(store: Store, name: str = "u"):
    return next(row.gate for row in await store.list_upstreams() if row.name == name)


def parked(task: ClaimedTask, call_failure: CallFailure = SLOW, delay: float = 10.0) -> Retrying:
    failure = Failure(Verdict.TRANSIENT, call_failure.reason, wait_seconds=call_failure.wait_seconds)
    return replace(
        retrying(task.fence, delay=delay, failure=failure, charge=Charge.PARK), call_failure=call_failure
    )


# --- gates -----------------------------------------------------------------------------------------------


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
    clock.advance(1.2)
    assert ids_of(await build.claim(worker)) == waiting


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


# --- limits ----------------------------------------------------------------------------------------------


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


# --- the retry budget ------------------------------------------------------------------------------------


async def failed(build: Build, count: int, **changes: object) -> list[str]:
    tasks = await build.running(count, **changes)  # type: ignore[arg-type]
    await build.done(*(retrying(task.fence, delay=1.0) for task in tasks))
    return [task.fence.task_id for task in tasks]


async def budget(store: Store, name: str = ""):
    return next(row for row in await store.list_retry_budgets() if row.name == name)


async def drained(store: Store, clock: SettableClock, ids: list[str], build: Build) -> list[float]:
    """Promote every quarter of a second; return when each became ready."""
    left, moments = set(ids), []
    for _ in range(4_000):
        clock.advance(0.25)
        await store.promote()
        ready = [
            task_id for task_id, state in (await build.states(list(left))).items() if state is State.READY
        ]
        moments += [clock.now] * len(ready)
        left -= set(ready)
        if not left:
            return moments
    raise AssertionError(f"{len(left)} never left the retry queue")


async def test_a_storm_of_retries_leaves_at_the_rate_of_the_budget_and_none_is_lost(
    store: Store, build: Build, clock: SettableClock
) -> None:
    system = LimitDeclaration(
        GateKind.SYSTEM, "", Limits(retries_per_minute=1_200.0, retry_window_seconds=1.0)
    )
    await store.declare_limits([system])
    moments = await drained(store, clock, await failed(build, 100), build)
    assert max(sum(at <= other < at + 1.0 for other in moments) for at in moments) <= 20
    assert moments[-1] - moments[0] > 5


async def test_a_task_held_by_the_budget_keeps_its_place_and_shows_when_it_leaves(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([upstream(limits=Limits(retries_per_minute=12.0))])
    ids = await failed(build, 6, upstream="u")
    planned = {row.due_at for row in (await store.read_tasks(ids)).values()}
    clock.advance(1.0)
    await store.promote()
    rows = await store.read_tasks(ids)
    held = [row for row in rows.values() if row.state is State.RETRYING]
    assert len(held) == 5
    assert {row.due_at for row in held} <= planned
    assert {row.held_by for row in held} == {"upstream"}
    assert all(row.held_until_at is not None and row.held_until_at > clock.now for row in held)
    assert len({row.held_until_at for row in held}) == 5
    row = await budget(store, "u")
    assert (row.amount, row.used, row.held) == (12.0, 1, 5)
    assert row.next_at > clock.now
    assert (await budget(store)).used == 1


async def test_scheduled_and_released_tasks_need_no_retry_budget(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=1.0))])
    scheduled = await build.enqueue(5, delay_seconds=1.0)
    yielding = await build.running(5)
    await build.done(
        *(replace(retrying(task.fence, delay=1.0, charge=Charge.NOTHING), is_free=True) for task in yielding)
    )
    clock.advance(1.0)
    await store.promote()
    states = await build.states([*scheduled, *(task.fence.task_id for task in yielding)])
    assert set(states.values()) == {State.READY}
    assert (await budget(store)).used == 0


async def test_interactive_tasks_and_last_attempts_have_a_reserved_part_of_the_budget(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.SYSTEM, "", Limits(retries_per_minute=10.0))])
    plain = await failed(build, 10)
    last = await build.run()
    await build.done(replace(retrying(last.fence, delay=70.0), is_last=True))
    (someone_waits,) = await failed(build, 1, priority=Priority.INTERACTIVE)
    clock.advance(1.0)
    await store.promote()
    assert await build.state(someone_waits) is State.READY
    moments = await drained(store, clock, [last.fence.task_id], build)
    assert moments[0] <= START + 80
    assert State.RETRYING in (await build.states(plain)).values()


@pytest.mark.parametrize("by", ["upstream", "system"])
async def test_after_raising_a_tiny_budget_held_tasks_leave_soon(
    store: Store, build: Build, clock: SettableClock, by: str
) -> None:
    tiny, mended = Limits(retries_per_minute=0.01), Limits(retries_per_minute=600.0)
    name, kind = ("u", GateKind.UPSTREAM) if by == "upstream" else ("", GateKind.SYSTEM)
    await store.declare_limits(
        [upstream(limits=tiny if by == "upstream" else mended), LimitDeclaration(kind, name, tiny)]
    )
    await failed(build, 20, upstream="u")
    clock.advance(2.0)
    await store.promote(limit=100)
    assert (await budget(store, name)).held >= 18
    if by == "upstream":
        assert await store.set_limits("u", mended)
    else:
        await store.declare_limits([LimitDeclaration(kind, name, mended)])
    for _ in range(40):
        clock.advance(0.1)
        await store.promote(limit=100)
    assert (await budget(store, name)).held == 0


async def test_tasks_that_waited_for_a_parked_gate_leave_by_the_budget(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([upstream(limits=Limits(retries_per_minute=60.0))])
    tasks = await build.running(20, upstream="u")
    await build.done(*(parked(task, delay=1.0) for task in tasks))
    ids = [task.fence.task_id for task in tasks]
    clock.advance(5.0)
    await store.promote()
    assert set((await build.states(ids)).values()) == {State.RETRYING}, "its gate does not flow"
    moments = await drained(store, clock, ids, build)
    assert max(sum(at <= other < at + 10.0 for other in moments) for at in moments) <= 15


async def test_the_planned_moment_does_not_change_while_a_task_is_held_back(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await store.declare_limits([upstream(limits=Limits(retries_per_minute=60.0))])
    (task,) = await build.running(1, upstream="u")
    await build.done(parked(task, delay=1.0))
    planned = (await build.row(task.fence.task_id)).due_at
    assert planned == pytest.approx(START + 1.0, abs=0.5)
    clock.advance(2.0)
    await store.promote()
    row = await build.row(task.fence.task_id)
    assert (row.state, row.due_at, row.held_by) == (State.RETRYING, planned, "gate")
    assert row.held_until_at is not None
    assert row.held_until_at > clock.now
    assert await store.promote() == 0, "a held task is not due again before its moment"
    await store.park_gate("u", seconds=600.0, why="")
    clock.advance(row.held_until_at - clock.now + 0.1)
    assert await store.promote() == 1
    again = await build.row(task.fence.task_id)
    assert (again.state, again.due_at, again.held_by) == (State.RETRYING, planned, "gate")
    assert again.held_until_at is not None
    assert again.held_until_at > row.held_until_at
    [run] = [entry for entry in await store.get_history(task.fence.task_id) if entry.run == 1]
    assert run.next_run_at == planned
    await store.open_gate("u")
    await store.promote()
    ready = await build.row(task.fence.task_id)
    assert (ready.state, ready.due_at) == (State.READY, clock.now), "its age counts from when it could go"
    assert (ready.held_by, ready.held_until_at) == ("", None)


async def test_after_a_successful_probe_backoffs_end_early_but_not_before_the_servers_wait(
    store: Store, build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(7, upstream="u")
    down = [replace(retrying(task.fence, delay=600.0), call_failure=DOWN) for task in tasks[:6]]
    asked = Failure(Verdict.TRANSIENT, Reason.SERVER_ERROR, wait_seconds=300.0)
    floored = replace(retrying(tasks[6].fence, delay=600.0, failure=asked), call_failure=DOWN)
    await build.done(*down, floored)
    await build.one(upstream="u")
    clock.advance(1.0)
    (probe,) = await build.claim(await build.worker())
    await build.done(succeeded(probe.fence))
    await store.promote()
    assert set((await build.states([o.fence.task_id for o in down])).values()) == {State.READY}
    assert await build.state(floored.fence.task_id) is State.RETRYING


async def test_if_only_retries_are_left_one_of_them_is_the_probe(
    store: Store, build: Build, clock: SettableClock
) -> None:
    tasks = await build.running(6, upstream="u")
    await build.done(*(replace(retrying(task.fence, delay=1.0), call_failure=DOWN) for task in tasks))
    clock.advance(1.5)
    await store.promote()
    states = await build.states([task.fence.task_id for task in tasks])
    assert list(states.values()).count(State.READY) == 1
    (probe,) = await build.claim(await build.worker())
    assert probe.is_probe


# --- calls that no claim charged -------------------------------------------------------------------------


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
    slot = await store.acquire_slot("u", max_wait_seconds=0)
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
