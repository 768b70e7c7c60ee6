"""The simulated provider when things break: outages, bad clients, many clients, stops; and as a process."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest

from tidegate.testing.provider import Ledger, Outage, ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "High water."}]}).encode()


@pytest.fixture
async def serve():
    """Start a provider with these settings, and stop it after the test."""
    async with AsyncExitStack() as stack:

        async def start(monotonic=None, **settings):
            clocks = {"monotonic": monotonic} if monotonic else {}
            return await stack.enter_async_context(SimulatedProvider(ProviderSettings(**settings), **clocks))

        yield start


@pytest.fixture
async def http():
    async with httpx2.AsyncClient(timeout=10, trust_env=False) as client:
        yield client


async def chat(http, provider, **options):
    return await http.post(f"{provider.url}/chat/completions", content=BODY, **options)


def raw_call(body=BODY, *headers):
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def connected(provider):
    """Open a raw connection, closed afterwards whatever became of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.transport.abort()


async def read_response(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line.split(":")[1] for line in head.split("\r\n") if line.startswith("content-length"))
    return int(head.split()[1]), await reader.readexactly(int(length))


async def until(condition, seconds=10):
    """Poll briefly until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


# Outages


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
        await chat(http, provider, timeout=httpx2.Timeout(5, read=0.05))

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


# Clients


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


# Starting and stopping


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


# A process of its own


@asynccontextmanager
async def process(*arguments):
    """Run the module, and give the process and the JSON line it printed."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidegate.testing.provider", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            yield running, json.loads(await running.stdout.readline() or b"null")
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_as_a_process_it_prints_its_url_and_stops_cleanly(http, tmp_path, number):
    path = tmp_path / "ledger.db"
    arguments = ["--rpm", "1", "--latency", "0.01", "--outage", "500:501:hang", "--ledger", str(path)]

    async with process(*arguments) as (running, ready):
        assert ready["pid"] == running.pid
        statuses = [
            (await http.post(f"{ready['url']}/chat/completions", content=BODY)).status_code for _ in range(2)
        ]
        os.kill(running.pid, number)
        _, errors = await running.communicate()

    assert (running.returncode, errors) == (0, b"")
    assert statuses == [200, 429]
    ledger = Ledger(path)
    assert ledger.summary().by_status == {"200": 1, "429": 1}
    ledger.close()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--outage", "5:1"], b"5:1"),
        (["--outage", "1:2:flood"], b"flood"),
        (["--overload", "2"], b"overload_probability"),
        (["--ledger", "/nowhere/at/all.db"], b"/nowhere/at/all.db"),
    ],
)
async def test_options_that_cannot_work_are_named_and_nothing_starts(arguments, complaint):
    async with process(*arguments) as (running, ready):
        _, errors = await running.communicate()

    assert ready is None
    assert running.returncode in (1, 2)
    assert complaint in errors
    assert b"Traceback" not in errors
