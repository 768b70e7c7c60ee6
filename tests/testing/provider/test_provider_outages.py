"""Outages of the simulated provider: planned, by hand and over HTTP."""

import asyncio

import httpx2
import pytest
from provider_support import BODY, chat, connected, raw_call, read_response, until

from tidegate.testing.provider import Outage

pytestmark = pytest.mark.anyio


async def test_a_planned_outage_begins_and_ends_by_the_clock(serve, http):
    clock = [100.0]
    provider = await serve(monotonic=lambda: clock[0], outages=(Outage(5, 10, "503"),))
    seen = []

    for moment in (104.9, 105.0, 109.9, 110.0):
        clock[0] = moment
        seen.append((await chat(http, provider)).status_code)

    assert seen == [200, 503, 503, 200]
    assert provider.ledger.count(outcome="outage 503") == 2


async def test_in_a_hanging_outage_calls_get_no_answer_but_are_noted(serve, http):
    provider = await serve()
    await provider.begin_outage("hang")

    with pytest.raises(httpx2.ReadTimeout):
        await http.post(
            f"{provider.url}/chat/completions", content=BODY, timeout=httpx2.Timeout(5, read=0.05)
        )

    (call,) = provider.ledger.calls()
    assert (call.status, call.billed, call.outcome) == (0, False, "outage hang")
    await provider.end_outage()
    assert (await chat(http, provider)).status_code == 200


async def test_in_a_resetting_outage_the_connection_is_reset(serve):
    provider = await serve()
    await provider.begin_outage("reset")

    async with connected(provider) as (reader, writer):
        writer.write(raw_call())
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert provider.ledger.count(status=0, outcome="outage reset") == 1


async def test_in_a_refusing_outage_nobody_listens_and_the_port_comes_back(serve, http):
    provider = await serve(latency_seconds=0.05)
    async with connected(provider) as (idle_reader, _), connected(provider) as (busy_reader, busy_writer):
        busy_writer.write(raw_call())
        await until(lambda: provider.in_flight == 1)

        await provider.begin_outage("refuse")

        assert await idle_reader.read() == b"", "a connection at rest is closed"
        assert (await read_response(busy_reader))[0] == 200, "a call in flight is still answered"
        assert await busy_reader.read() == b"", "and then its connection is closed"
        with pytest.raises(httpx2.ConnectError):
            await chat(http, provider)
    await provider.end_outage()
    assert (await chat(http, provider)).status_code == 200
    assert provider.ledger.count() == 2


async def test_a_planned_refusing_outage_closes_and_reopens_the_port(serve, http):
    provider = await serve(outages=(Outage(0, 0.2, "refuse"),))
    statuses = []

    async with asyncio.timeout(10):
        while 200 not in statuses:
            try:
                statuses.append((await chat(http, provider)).status_code)
            except httpx2.ConnectError:
                statuses.append("refused")
                await asyncio.sleep(0.01)

    assert statuses[0] == "refused"
    assert provider.ledger.count() == 1


async def test_an_outage_can_be_begun_and_ended_over_http(serve, http):
    provider = await serve()
    url = provider.url.replace("/v1", "/_sim/outage")

    assert (await http.post(url, json={"kind": "503"})).json() == {"outage": "503", "seconds": None}
    assert (await chat(http, provider)).status_code == 503
    assert (await http.get(f"{provider.url}/models")).status_code == 503
    assert (await http.get(provider.url.replace("/v1", "/healthz"))).status_code == 200
    await http.post(url, json={"kind": None})
    assert (await chat(http, provider)).status_code == 200


async def test_a_refusing_outage_begun_over_http_ends_by_itself(serve, http):
    provider = await serve()

    begun = await http.post(
        provider.url.replace("/v1", "/_sim/outage"), json={"kind": "refuse", "seconds": 0.1}
    )

    assert begun.status_code == 200
    assert begun.headers["connection"] == "close"
    with pytest.raises(httpx2.ConnectError):
        await chat(http, provider)
    async with asyncio.timeout(10):
        while True:
            try:
                assert (await chat(http, provider)).status_code == 200
                break
            except httpx2.ConnectError:
                await asyncio.sleep(0.01)
