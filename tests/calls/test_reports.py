"""A gate moves once for each of its own calls, and a poisoned task ends by its own attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx2
import pytest

from support import all_final, until
from tidegate import Context, Fixed, State, Tidegate
from tidegate.calls.upstream import Upstream
from tidegate.domain.outcome import Charge
from tidegate.internals import core_of
from tidegate.limits.values import Gate, GateState, ParkedBy
from tidegate.policy.charge import UNCHARGED_LIMIT

pytestmark = pytest.mark.anyio


async def gate_of(app: Tidegate, name: str) -> Gate:
    rows = await (await core_of(app).opened_store()).list_upstreams()
    return next(row.gate for row in rows if row.name == name)


def client_of(upstream: Upstream, answer: Callable[[httpx2.Request], httpx2.Response]) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=upstream.transport(httpx2.MockTransport(answer)))


async def charges_of(app: Tidegate, task_id: str) -> list[str]:
    store = await core_of(app).opened_store()
    return [
        entry.charge for entry in await store.get_history(task_id) if entry.kind == "run" and entry.charge
    ]


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("through_transport", [True, False])
async def test_one_failed_call_moves_its_gate_once(
    app: Tidegate, status: int, through_transport: bool
) -> None:
    upstream = app.upstream("u")
    plain = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(status, json={})))
    client_with_transport = client_of(upstream, lambda _: httpx2.Response(status, json={}))
    async with plain, client_with_transport:

        @app.task(name="t", upstream=upstream, max_attempts=1 if status == 500 else 3, backoff=Fixed(60))
        async def ask() -> None:
            client = client_with_transport if through_transport else plain
            (await client.post("http://p/", json={})).raise_for_status()

        async with app.worker():
            handle = await ask.enqueue()
            await until(lambda: _has_failed(app, handle.id), what="its first run has failed")
    assert (await gate_of(app, "u")).failures == 1


async def _has_failed(app: Tidegate, task_id: str) -> bool:
    return bool(await charges_of(app, task_id))


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_failed_call_of_another_upstream_moves_that_one_alone(app: Tidegate, status: int) -> None:
    outer, inner = app.upstream("outer"), app.upstream("inner")
    async with client_of(inner, lambda _: httpx2.Response(status, json={})) as client:

        @app.task(name="t", upstream=outer, max_attempts=2, backoff=Fixed(60))
        async def ask() -> None:
            (await client.post("http://p/", json={})).raise_for_status()

        async with app.worker():
            await core_of(app).store.report_probe("outer", is_good=True, seconds=0.1)
            before = await gate_of(app, "outer")
            handle = await ask.enqueue()
            await until(lambda: _has_failed(app, handle.id), what="its first run has failed")
    after = await gate_of(app, "inner")
    assert (after.state is not GateState.FLOWING) == (status != 500)
    assert after.failures == (0 if status == 429 else 1)
    assert await gate_of(app, "outer") == before
    assert await charges_of(app, handle.id) == [Charge.ATTEMPT if status == 500 else Charge.PARK]


async def test_a_run_that_fell_back_to_another_upstream_is_no_success_of_the_first(app: Tidegate) -> None:
    first, second = app.upstream("first"), app.upstream("second")
    down = client_of(first, lambda _: httpx2.Response(500, json={}))
    up = client_of(second, lambda _: httpx2.Response(200, json={}))
    async with down, up:

        @app.task(name="t", upstream=first)
        async def ask() -> None:
            if (await down.post("http://p/", json={})).status_code == 500:
                (await up.post("http://p/", json={})).raise_for_status()

        async with app.worker():
            await (await ask.enqueue()).result(10)
    gate = await gate_of(app, "first")
    assert (gate.failures, gate.last_success_at) == (1, None)


async def test_successful_calls_in_runs_of_other_upstreams_clear_failures(app: Tidegate) -> None:
    outer, inner = app.upstream("outer"), app.upstream("inner")
    statuses = iter([500, 200])
    async with client_of(inner, lambda _: httpx2.Response(next(statuses), json={})) as client:

        @app.task(name="t", upstream=outer, backoff=Fixed(0.01))
        async def ask() -> None:
            (await client.post("http://p/", json={})).raise_for_status()

        async with app.worker():
            await (await ask.enqueue()).result(10)
    gate = await gate_of(app, "inner")
    assert (gate.failures, gate.failed_task_ids) == (0, ())


async def test_a_run_stopped_by_its_time_limit_reports_the_call_it_was_in(app: Tidegate) -> None:
    outer, inner = app.upstream("outer"), app.upstream("inner")

    @app.task(name="t", upstream=outer, timeout=0.3, max_attempts=1)
    async def ask() -> None:
        async with inner.call():
            await asyncio.Event().wait()

    async with app.worker():
        handle = await ask.enqueue()
        await all_final(app, [handle.id])
    assert (await gate_of(app, "inner")).failed_task_ids == (handle.id,)
    assert "outer" not in {row.name for row in await core_of(app).store.list_upstreams() if row.gate.failures}


@pytest.mark.parametrize("fault", ["500", "slow", "unknown"])
async def test_a_poisoned_task_makes_as_many_calls_as_it_has_attempts(app: Tidegate, fault: str) -> None:
    upstream = app.upstream("u", retries_per_minute=60_000)
    calls = 0

    def answer(_: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        if fault == "slow":
            raise httpx2.ReadTimeout("too slow")
        return httpx2.Response(500 if fault == "500" else 200, json={})

    async with client_of(upstream, answer) as client:

        @app.task(name="t", upstream=upstream, max_attempts=3, backoff=Fixed(0.01))
        async def ask() -> None:
            (await client.post("http://p/", json={})).raise_for_status()
            raise KeyError("unknown")

        async with app.worker():
            handle = await ask.enqueue()
            rows = await all_final(app, [handle.id])
    assert (rows[handle.id].state, rows[handle.id].counters.attempts, calls) == (State.DEAD, 3, 3)


async def test_a_task_that_is_always_overloaded_is_charged_from_the_21st_run_on(app: Tidegate) -> None:
    upstream = app.upstream("u", retries_per_minute=60_000)
    calls = 0

    def answer(_: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        return httpx2.Response(529, json={})

    async with client_of(upstream, answer) as client:

        @app.task(name="t", upstream=upstream, max_attempts=3, backoff=Fixed(0.01))
        async def ask(ctx: Context) -> None:
            (await client.post("http://p/", json={})).raise_for_status()

        async with app.worker():
            handle = await ask.enqueue()

            async def is_over() -> bool:
                await core_of(app).store.open_gate("u")
                return (await core_of(app).store.read_tasks([handle.id]))[handle.id].state is State.DEAD

            await until(is_over, what="its attempts are spent", within=20)
    assert calls == UNCHARGED_LIMIT + 3
    assert await charges_of(app, handle.id) == [Charge.PARK] * UNCHARGED_LIMIT + [Charge.ATTEMPT] * 3


async def test_a_run_with_a_paid_call_is_charged_when_its_next_call_is_refused(app: Tidegate) -> None:
    upstream = app.upstream("u", retries_per_minute=60_000)
    statuses = iter([200, 429, 200, 200])
    async with client_of(upstream, lambda _: httpx2.Response(next(statuses), json={})) as client:

        @app.task(name="t", upstream=upstream, backoff=Fixed(0.01))
        async def ask() -> None:
            for step in range(2):
                (await client.post("http://p/", json={"step": step})).raise_for_status()

        async with app.worker():
            handle = await ask.enqueue()
            await handle.result(15)
    assert await charges_of(app, handle.id) == [Charge.ATTEMPT]
    assert (await gate_of(app, "u")).parked_by is not ParkedBy.FAILURES
