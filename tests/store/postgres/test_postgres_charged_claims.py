"""Claims that take tasks and charge their gates in one statement, and gates that finishes seldom write."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from store_build import Build, succeeded

from postgres_support import SCHEMA
from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.postgres import claim
from tidegate.store.postgres.store import PostgresStore

DAY = Window("requests_per_day", 50, 86_400.0, is_fixed=True)
LIMITED = LimitDeclaration(GateKind.UPSTREAM, "u", Limits((DAY,)))


async def refuse_to_lock(*_: Any, **__: Any) -> Any:
    raise AssertionError("the claim locked its gates first")


@pytest.fixture
def charged_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_take_within_limits", refuse_to_lock)


@pytest.mark.usefixtures("charged_only")
async def test_a_claim_of_one_channel_charges_each_task_that_it_takes(build: Build) -> None:
    await build.store.declare_limits([LIMITED])
    await build.enqueue(7, upstream="u")

    tasks = await build.claim(await build.worker(), 5)

    [row] = await build.store.list_gates()
    assert (len(tasks), row.buckets["requests_per_day"].used) == (5, 5)


@pytest.mark.usefixtures("charged_only")
async def test_a_claim_for_more_slots_than_tasks_charges_the_tasks_only(build: Build) -> None:
    await build.store.declare_limits([LIMITED])
    await build.enqueue(2, upstream="u")

    await build.claim(await build.worker(), 100)

    [row] = await build.store.list_gates()
    assert row.buckets["requests_per_day"].used == 2


@pytest.mark.usefixtures("charged_only")
async def test_tasks_of_many_channels_with_plain_upstreams_need_no_lock(build: Build) -> None:
    await build.store.declare_limits(
        [LimitDeclaration(GateKind.UPSTREAM, name, Limits()) for name in ("u", "v")]
    )
    for queue in "abc":
        await build.enqueue(2, queue=queue, upstream="u")
        await build.enqueue(2, queue=queue, upstream="v")

    assert len(await build.claim(await build.worker())) == 12


@pytest.mark.parametrize("limits", [Limits(), Limits((DAY,)), Limits(max_in_flight=5)])
async def test_a_gate_that_parks_between_the_read_and_the_statement_lets_no_task_start(
    build: Build, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    await build.enqueue(3, upstream="u")
    worker, usual = await build.worker(), claim._take_unchanged

    async def park_first(*args: Any) -> Any:
        await build.store.park_gate("u", seconds=60.0, why="test")
        return await usual(*args)

    monkeypatch.setattr(claim, "_take_unchanged", park_first)

    assert await build.claim(worker) == []


async def test_a_run_admitted_between_the_read_and_the_statement_counts_as_in_flight(
    build: Build, worker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", Limits(max_in_flight=3))])
    await build.enqueue(9, upstream="u")
    worker, another = await build.worker(), await build.worker()
    usual, firsts = claim._take_unchanged, []

    async def let_another_claim(*args: Any) -> Any:
        monkeypatch.setattr(claim, "_take_unchanged", usual)
        firsts.extend(await build.claim(another, 2))
        return await usual(*args)

    monkeypatch.setattr(claim, "_take_unchanged", let_another_claim)
    tasks = await build.claim(worker)

    assert (len(firsts), len(tasks)) == (2, 1)


@pytest.mark.parametrize("limits", [Limits((DAY,)), Limits(max_in_flight=50)])
async def test_processes_that_claim_at_once_never_exceed_a_limit_together(
    build: Build, worker_url: str, limits: Limits
) -> None:
    await build.store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", limits)])
    await build.enqueue(80, upstream="u")
    stores = [PostgresStore(worker_url) for _ in range(4)]

    async def claim_often(store: PostgresStore) -> list[str]:
        worker, mine = await build.worker(), []
        for _ in range(15):
            result = await store.claim(build.request(worker, 3))
            mine += [task.fence.task_id for task in result.tasks]
        return mine

    try:
        taken = Counter(task for mine in await asyncio.gather(*map(claim_often, stores)) for task in mine)
    finally:
        for store in stores:
            await store.close()

    assert (len(taken), set(taken.values())) == (50, {1})
    [row] = await build.store.list_gates()
    if limits.windows:
        assert row.buckets["requests_per_day"].used == 50


# --- successes that wait to be written --------------------------------------------------------------------


async def gate_version(store: PostgresStore) -> str:
    statement = f"SELECT xmin::text FROM {SCHEMA}.gate WHERE name = 'u'"
    version: str = await store._database.autocommit(lambda db: db.value(statement))
    return version


async def test_successes_of_a_flowing_gate_are_written_once_a_second_and_before_a_failure(
    build: Build, store: PostgresStore
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", Limits())])
    await build.enqueue(10, upstream="u")
    tasks = await build.claim(await build.worker())
    await build.done(succeeded(tasks[0].fence))
    first = await gate_version(store)

    for task in tasks[1:]:
        await build.done(succeeded(task.fence))

    assert await gate_version(store) == first
    await store.report_failure("u", CallFailure(Reason.RATE_LIMIT, wait_seconds=1.0))
    [row] = await store.list_gates()
    assert row.gate.learned_rate.successes_per_second == pytest.approx(10 / 30, rel=0.1)


async def test_a_success_after_a_failure_is_written_at_once(build: Build, store: PostgresStore) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "u", Limits())])
    await build.enqueue(2, upstream="u")
    tasks = await build.claim(await build.worker())
    await build.done(succeeded(tasks[0].fence))
    await store.report_failure("u", CallFailure(Reason.SERVER_ERROR, task_id="one"))

    await build.done(succeeded(tasks[1].fence))

    [row] = await store.list_gates()
    assert (row.gate.failures, row.gate.failed_task_ids) == (0, ())
