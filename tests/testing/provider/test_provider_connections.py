"""Connections of the simulated provider: bad clients, many clients, starts and stops."""

import asyncio
import json
import socket
import time
from contextlib import AsyncExitStack

import pytest
from provider_support import BODY, chat, connected, raw_call, read_response, until

from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio


async def test_a_client_that_disconnects_before_the_response_is_billed(serve):
    provider = await serve(latency_seconds=0.05)

    async with connected(provider) as (_, writer):
        writer.write(raw_call())
        await until(lambda: provider.in_flight == 1)

    await until(lambda: provider.ledger.count() == 1)
    (call,) = provider.ledger.calls()
    assert (call.status, call.billed, call.outcome) == (200, True, "answered")


async def test_a_connection_carries_calls_one_after_the_other_even_sent_ahead(serve):
    provider = await serve()

    async with connected(provider) as (reader, writer):
        writer.write(raw_call() * 3)
        statuses = [(await read_response(reader))[0] for _ in range(3)]

    assert statuses == [200] * 3


async def test_a_response_is_not_delayed_by_the_system_until_its_head_is_acknowledged(serve):
    provider = await serve()

    async with connected(provider) as (reader, writer):
        seconds = []
        for _ in range(20):
            began_at = time.monotonic()
            writer.write(raw_call())
            assert (await read_response(reader))[0] == 200
            seconds.append(time.monotonic() - began_at)

    # An acknowledgement that is delayed takes 40 ms.
    assert min(seconds[5:]) < 0.03


async def test_connection_close_ends_the_connection(serve):
    provider = await serve()

    async with connected(provider) as (reader, writer):
        writer.write(raw_call(BODY, "Connection: close"))
        assert (await read_response(reader))[0] == 200
        assert await reader.read() == b""


async def test_a_client_that_expects_100_continue_gets_it(serve):
    provider = await serve()
    head, _, body = raw_call(BODY, "Expect: 100-continue").partition(b"\r\n\r\n")

    async with connected(provider) as (reader, writer):
        writer.write(head + b"\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(body)
        assert (await read_response(reader))[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n", 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000, 431),
        (b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
async def test_broken_http_gets_a_json_error_and_harms_nobody_else(serve, http, sent, status):
    provider = await serve()

    async with connected(provider) as (reader, writer):
        writer.write(sent)
        answered, body = await read_response(reader)
        assert answered == status
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
        assert await reader.read() == b""

    assert (await chat(http, provider)).status_code == 200


async def test_a_client_that_leaves_in_mid_request_harms_nobody_else(serve, http):
    provider = await serve()

    for part in (b"", b"POST /v1/chat", raw_call()[:-5]):
        async with connected(provider) as (_, writer):
            writer.write(part)
            await writer.drain()

    assert (await chat(http, provider)).status_code == 200
    assert provider.ledger.count() == 1


async def test_a_body_beyond_the_limit_is_refused_and_the_client_can_read_so(serve, http):
    provider = await serve(max_body_bytes=10_000)

    async with connected(provider) as (reader, writer):
        writer.write(raw_call(b"x" * 1_000_000))
        status, body = await read_response(reader)

    assert status == 413
    assert b"larger than 10000 bytes" in body
    assert (await chat(http, provider)).status_code == 200


async def test_five_hundred_clients_are_served_at_once(serve):
    provider = await serve(latency_seconds=0.1)
    all_connected = asyncio.Barrier(500)

    async def client():
        async with connected(provider) as (reader, writer):
            await all_connected.wait()
            # One after the other they would need 50 s; `connected` allows 10.
            writer.write(raw_call())
            return (await read_response(reader))[0]

    statuses = await asyncio.gather(*(client() for _ in range(500)))

    assert statuses == [200] * 500
    assert provider.ledger.summary().billed == 500


async def test_stopping_ends_calls_in_flight_and_notes_them_unbilled(serve, http):
    provider = await serve(latency_seconds=3_600, budget_calls=1)

    async with connected(provider) as (reader, writer):
        writer.write(raw_call())
        await until(lambda: provider.in_flight == 1)
        await provider.stop()
        await until(lambda: provider.in_flight == 0)
        assert await reader.read() == b""

    (call,) = provider.ledger.calls()
    assert (call.status, call.billed, call.outcome) == (0, False, "stopped")
    await provider.start()
    await provider.change(latency_seconds=0.0)
    assert (await chat(http, provider)).status_code == 200, "the budget was not touched"


async def test_stopping_closes_connections_in_every_state_at_once_and_logs_nothing(serve, caplog):
    provider = await serve(latency_seconds=3_600, tokens_per_second=0.01)
    stream = json.dumps({**json.loads(BODY), "stream": True}).encode()

    async with AsyncExitStack() as stack:

        async def client(sent):
            reader, writer = await stack.enter_async_context(connected(provider))
            writer.write(sent)
            return reader

        idle = await client(b"")
        half = await client(raw_call()[:-5])
        waiting = await client(raw_call())
        await until(lambda: provider.in_flight == 1)
        await provider.change(latency_seconds=0.0)
        streaming = await client(raw_call(stream))
        assert await streaming.readuntil(b"\n\n")
        await provider.begin_outage("hang")
        hanging = await client(raw_call())
        await until(lambda: provider.ledger.count(outcome="outage hang") == 1)
        malformed = await client(b"hello\r\n\r\n")
        assert (await read_response(malformed))[0] == 400

        async with asyncio.timeout(1):
            await provider.stop()

        for reader in (idle, half, waiting, hanging, malformed):
            assert await reader.read() == b""
        assert b"[DONE]" not in await streaming.read()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    outcomes = sorted(call.outcome for call in provider.ledger.calls())
    assert outcomes == ["answered", "outage hang", "stopped"]


async def test_a_provider_can_be_stopped_twice_unstarted_and_started_again(http):
    provider = SimulatedProvider()
    await provider.stop()
    await provider.start()
    await provider.start()
    assert (await chat(http, provider)).status_code == 200
    await provider.stop()
    await provider.stop()
    await provider.start()

    assert (await chat(http, provider)).status_code == 200
    assert provider.ledger.count() == 2

    await provider.stop()


async def test_a_taken_port_is_an_error_after_which_starting_can_be_tried_again(serve, http):
    first = await serve()
    second = SimulatedProvider(ProviderSettings(port=first.port))

    with pytest.raises(OSError, match="in use"):
        await second.start()
    await first.stop()
    await second.start()

    assert (await chat(http, second)).status_code == 200
    await second.stop()


async def test_a_port_stays_taken_while_it_refuses(serve):
    provider = await serve()
    await provider.begin_outage("refuse")

    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", provider.port))

    await provider.end_outage()
    async with connected(provider) as (reader, writer):
        writer.write(raw_call())
        assert (await read_response(reader))[0] == 200
