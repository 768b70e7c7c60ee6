"""Which task probes an upstream: tasks take turns, never on their last attempt, and never an unserved one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_build import Build, SettableClock, retrying, succeeded

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Released, Retrying
from tidegate.domain.states import State
from tidegate.limits.probes import LAST_ATTEMPT_SECONDS
from tidegate.limits.promotion import UNCLAIMED_SECONDS
from tidegate.limits.settings import GateKind, LimitDeclaration
from tidegate.limits.values import GateState
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask

pytestmark = pytest.mark.anyio

FULL = Failure(Verdict.TRANSIENT, Reason.OVERLOADED)


async def held(store: Store) -> None:
    """Park the upstream by failures."""
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u")])
    await store.report_failure("u", CallFailure(Reason.OVERLOADED))


def refused(task: ClaimedTask, delay: float, *, is_last: bool = False) -> Retrying:
    """Return the outcome of a run that the upstream refused."""
    call_failure = CallFailure(Reason.OVERLOADED, task_id=task.fence.task_id)
    outcome = retrying(task.fence, delay=delay, failure=FULL, charge=Charge.PARK, offset=-3600.0)
    return replace(outcome, call_failure=call_failure, is_last=is_last)


async def test_a_task_on_its_last_attempt_leaves_the_probe_to_another(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await held(store)
    await build.enqueue(3, upstream="u", max_attempts=1)
    clock.advance(0.5)
    other = await build.one(upstream="u")
    clock.advance(1.0)
    (probe,) = await build.claim(await build.worker())
    assert (probe.fence.task_id, probe.is_probe) == (other, True)


async def test_if_only_last_attempts_wait_one_probes_once_the_probe_is_long_due(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await held(store)
    await build.enqueue(3, upstream="u", max_attempts=1)
    worker = await build.worker()
    clock.advance(LAST_ATTEMPT_SECONDS)
    assert await build.claim(worker) == []
    clock.advance(1.0)
    assert [task.is_probe for task in await build.claim(worker)] == [True]
    assert await build.claim(worker) == []


async def test_a_call_on_a_last_attempt_probes_once_the_probe_is_long_due(
    store: Store, clock: SettableClock
) -> None:
    await held(store)
    clock.advance(1.5)
    early = await store.acquire_slot("u", max_wait_seconds=5.0, on_last_attempt=True)
    assert (early.is_granted, early.opens_by_probe) == (False, True)
    assert early.wait_seconds == pytest.approx(LAST_ATTEMPT_SECONDS - 0.5, abs=0.2)
    clock.advance(LAST_ATTEMPT_SECONDS)
    assert (await store.acquire_slot("u", max_wait_seconds=0.0, on_last_attempt=True)).is_probe
    clock.advance(2.5)
    assert (await store.acquire_slot("u", max_wait_seconds=0.0)).is_probe, "any other tries at once"


async def test_a_probe_requested_by_a_person_may_be_any_task(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await held(store)
    await build.enqueue(2, upstream="u", max_attempts=1)
    clock.advance(0.1)
    assert await store.request_probe("u")
    assert [task.is_probe for task in await build.claim(await build.worker())] == [True]


async def test_many_last_attempts_do_not_hide_the_task_that_may_probe(
    store: Store, build: Build, clock: SettableClock
) -> None:
    await held(store)
    worker = await build.worker()
    await build.enqueue(120, upstream="u", max_attempts=1)
    clock.advance(0.5)
    other = await build.one(upstream="u")
    clock.advance(1.0)
    (probe,) = await build.claim(worker, slots=2)
    assert probe.fence.task_id == other


async def test_retrying_tasks_take_turns_to_probe(store: Store, build: Build, clock: SettableClock) -> None:
    tasks = await build.running(3, upstream="u")
    await build.done(*(refused(task, 1.0) for task in tasks))
    worker, tried = await build.worker(), []
    for _ in range(40):
        clock.advance(1.0)
        await store.promote()
        for probe in await build.claim(worker):
            assert probe.is_probe
            tried.append(probe.fence.task_id)
            await build.done(refused(probe, 5.0))
    assert len(tried) >= 12
    for turn in range(0, 9, 3):
        assert len(set(tried[turn : turn + 3])) == 3


async def test_an_unserved_ready_task_does_not_keep_others_from_probing(
    store: Store, build: Build, clock: SettableClock
) -> None:
    task = await build.run(upstream="u")
    await build.one(upstream="u", queue="unserved", function="app:renamed")
    await build.done(refused(task, 1.0))
    worker = await build.worker()
    clock.advance(1.1)
    await store.promote()
    assert await build.claim(worker) == []
    clock.advance(UNCLAIMED_SECONDS)
    await store.promote()
    assert [probe.fence.task_id for probe in await build.claim(worker)] == [task.fence.task_id]


async def test_the_total_timeout_of_a_retrying_last_attempt_is_paused_while_its_gate_is_parked(
    store: Store, build: Build, clock: SettableClock
) -> None:
    task = await build.run(upstream="u")
    await build.done(
        replace(retrying(task.fence, delay=1.0), call_failure=CallFailure(Reason.OVERLOADED), is_last=True)
    )
    clock.advance(1.5)
    await store.promote()
    assert await build.state(task.fence.task_id) is State.RETRYING
    clock.advance(5.0)
    await store.promote()
    assert await build.state(task.fence.task_id) is State.RETRYING
    clock.advance(600.0)
    await store.promote()
    (again,) = await build.claim(await build.worker())
    assert again.is_probe
    assert again.spent_seconds == pytest.approx(1.5, abs=0.1)
    await build.done(succeeded(again.fence))
    (row,) = await store.list_upstreams()
    assert row.gate.state is GateState.FLOWING


async def test_interrupted_runs_are_counted_until_a_redrive(store: Store, build: Build) -> None:
    task = await build.run()
    for run in range(3):
        assert task.counters.interruptions == run
        await build.done(Released(task.fence, "drain", charge=Charge.INTERRUPTED))
        (task,) = await build.claim(await build.worker())
    assert (task.counters.interruptions, task.counters.releases, task.counters.attempts) == (3, 3, 0)
    await build.done(Released(task.fence, "drain", charge=Charge.ATTEMPT))
    (task,) = await build.claim(await build.worker())
    assert (task.counters.interruptions, task.counters.releases, task.counters.attempts) == (4, 3, 1)
    assert task.counters.by_rule == ()
