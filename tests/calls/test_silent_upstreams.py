"""An upstream that stops answering parks before its calls reach their time limits."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from support import until
from tidegate import Tidegate
from tidegate.calls.permit_source import GatePermitSource
from tidegate.internals import core_of
from tidegate.limits.silence import NOT_ANSWERING
from tidegate.limits.values import Gate, GateState

pytestmark = pytest.mark.anyio


async def gate_of(app: Tidegate) -> Gate:
    (row,) = await (await core_of(app).opened_store()).list_upstreams()
    return row.gate


async def test_an_upstream_that_answers_nobody_parks_and_the_first_answer_opens_it(app: Tidegate) -> None:
    upstream, answers = app.upstream("u"), asyncio.Event()
    permits = upstream.permits
    assert isinstance(permits, GatePermitSource)
    permits.silence.least_seconds = 0.3
    hanging = 0

    async def respond(request: httpx2.Request) -> httpx2.Response:
        nonlocal hanging
        if request.url.path == "/slow":
            hanging += 1
            await answers.wait()
        return httpx2.Response(200, json={})

    inner = httpx2.MockTransport(respond)
    async with httpx2.AsyncClient(transport=upstream.transport(inner=inner), timeout=None) as client:

        @app.task(name="ask", upstream=upstream)
        async def ask(path: str) -> None:
            (await client.get(f"http://p/{path}")).raise_for_status()

        async with app.worker():
            for handle in [await ask.enqueue("quick") for _ in range(20)]:
                await handle.result(20)
            await core_of(app).store.report_probe("u", is_good=True, seconds=0.1)
            slow = [await ask.enqueue("slow") for _ in range(3)]
            await until(lambda: _is_silent(app), what="the gate is parked")
            answers.set()
            for handle in slow:
                await handle.result(20)
            await (await ask.enqueue("quick")).result(20)
    assert hanging == 3, "no call was cut and repeated"
    assert (await gate_of(app)).state is GateState.FLOWING


async def _is_silent(app: Tidegate) -> bool:
    gate = await gate_of(app)
    return gate.state is not GateState.FLOWING and gate.reason == NOT_ANSWERING
