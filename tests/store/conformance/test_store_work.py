"""The work that autoscaling counts, and what follows from it for a pool."""

from __future__ import annotations

import pytest
from store_build import Build, SettableClock, succeeded

from tidegate.domain.spec import Window
from tidegate.limits.pauses import PauseKind
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.monitor.scaling import decide_scaling
from tidegate.policy.autoscale import PoolScaling, ScalingDecision
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio


async def decide(store: Store, *queues: str, slots: int = 10) -> ScalingDecision:
    return await decide_scaling(store, queues, PoolScaling(slots_per_worker=slots))


async def ran(build: Build, clock: SettableClock, seconds: float, **task: str) -> None:
    """Let a task have run for so long."""
    run = await build.run(queue="calls", **task)
    clock.advance(seconds)
    await build.done(succeeded(run.fence))


async def test_tasks_that_no_worker_serves_ask_for_a_worker(build: Build, store: Store) -> None:
    assert (await decide(store, "calls")).workers == 0
    await build.enqueue(150, queue="calls")
    await build.enqueue(500, queue="other")
    found = await decide(store, "calls")
    assert (found.workers, found.runnable) == (2, 150), "one for a hundred while no run time is known"
    assert (await decide(store, "*")).runnable == 650


async def test_the_run_times_of_the_last_hour_decide_how_many_slots_a_backlog_needs(
    build: Build, store: Store, clock: SettableClock
) -> None:
    await ran(build, clock, 6.0)
    await build.enqueue(300, queue="calls")
    assert (await decide(store, "calls")).slots == 30
    await store.compact_history()
    assert (await decide(store, "calls")).slots == 30


async def test_a_quota_holds_the_number_down_and_is_named(
    build: Build, store: Store, clock: SettableClock
) -> None:
    limits = Limits(windows=(Window("requests_per_minute", 600, 60.0),))
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", limits)])
    await ran(build, clock, 2.0, upstream="openai")
    await build.enqueue(5_000, queue="calls", upstream="openai")
    found = await decide(store, "calls")
    assert (found.slots, found.workers, found.bound) == (20, 2, "upstream openai")


async def test_work_that_cannot_run_asks_for_no_worker(build: Build, store: Store) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai")])
    await store.park_gate("openai", seconds=None, why="no money")
    await build.enqueue(10, queue="calls", upstream="openai")
    await build.enqueue(10, queue="off")
    await store.pause(PauseKind.QUEUE, "off", by="ada", why="")
    assert (await decide(store, "*")).workers == 0
    await store.resume(PauseKind.QUEUE, "off")
    assert (await decide(store, "*")).runnable == 10


async def test_tasks_that_are_due_count_although_nobody_made_them_ready(
    build: Build, store: Store, clock: SettableClock
) -> None:
    await build.enqueue(3, queue="calls", delay_seconds=60.0)
    assert (await decide(store, "calls")).workers == 0
    clock.advance(61)
    assert (await decide(store, "calls")).runnable == 3


async def test_running_tasks_keep_their_slots(build: Build, store: Store) -> None:
    await build.running(25, queue="calls")
    found = await decide(store, "calls")
    assert (found.running, found.slots, found.workers) == (25, 25, 3)
