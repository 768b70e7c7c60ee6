"""The retry budget in the store: charged at promotion, with a reserved part for urgent retries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_support import DOWN, parked, upstream
from store_build import START, Build, SettableClock, retrying, succeeded

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


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
