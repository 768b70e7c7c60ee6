"""Slow clients and many connections of one address hold nothing for long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import websockets
from web_support import serve

from tidegate import Tidegate
from tidegate.web import WebSettings, connection_limits, create_app
from tidegate.web.connection_limits import ClientLimits, limited_protocol
from tidegate.web.serve import serve as serve_alone

pytestmark = pytest.mark.anyio

HEAD = "GET /livez HTTP/1.1\r\nHost: localhost\r\n"


@contextlib.asynccontextmanager
async def limited_api(app: Tidegate, **limits: Any) -> AsyncIterator[tuple[str, int]]:
    api = create_app(app, settings=WebSettings(open_without_tokens=True))
    async with serve(api, http=limited_protocol(ClientLimits(**limits))) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Read until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while part := await reader.read(65_536):
                data += part
    return data


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ("", []),
        (HEAD, []),
        (f"{HEAD}\r\n{HEAD}", [b"200"]),
        ("POST /api/v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", [b"404"]),
        ("POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", [b"421"]),
    ],
    ids=["nothing", "half a head", "half a second head", "half a body of no route", "half a refused body"],
)
async def test_a_client_that_stops_sending_is_disconnected(
    app: Tidegate, sent: str, answers: list[bytes]
) -> None:
    async with limited_api(app, request_seconds=0.2) as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(sent.encode())
        received = await rest_of(reader)
        writer.close()
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == answers


async def test_a_client_that_sends_its_head_byte_by_byte_is_closed(app: Tidegate) -> None:
    async with limited_api(app, request_seconds=0.2) as at:
        reader, writer = await asyncio.open_connection(*at)
        shutdown = asyncio.create_task(rest_of(reader))
        with contextlib.suppress(ConnectionError):
            for byte in (HEAD + "X: " + "y" * 1_000).encode():
                if shutdown.done():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        assert await shutdown == b""
        writer.close()


async def test_a_stream_and_a_socket_outlive_the_time_for_a_request(app: Tidegate) -> None:
    task = await app.function("web:add").enqueue(1)
    async with limited_api(app, request_seconds=0.1) as at:
        path = f"/api/v1/tasks/{task.id}"
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"GET {path}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with websockets.connect(f"ws://{at[0]}:{at[1]}{path}/socket", proxy=None) as socket:
            await socket.recv()
            await asyncio.sleep(0.4)
            async with app.worker():
                printed = [str(message) async for message in socket]
                received = await rest_of(reader)
        writer.close()
    assert '"event":"end"' in printed[-1]
    assert b"event: end" in received


async def test_an_address_with_too_many_connections_gets_no_more_and_is_logged_once(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited_api(app, per_address=2) as at:

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection(*at)
            writer.write(f"{HEAD}Connection: close\r\n\r\n".encode())
            received = await rest_of(reader)
            writer.close()
            return received[9:12]

        held = [await asyncio.open_connection(*at) for _ in range(2)]
        assert await ask() == b"200"  # loopback addresses are not counted
        monkeypatch.setattr(connection_limits, "is_loopback", lambda _: False)
        with caplog.at_level(logging.WARNING, "tidegate.web"):
            assert [await ask() for _ in range(3)] == [b""] * 3
        assert [record.message.count("--connections-per-address") for record in caplog.records] == [1]
        held.pop()[1].close()
        async with asyncio.timeout(10):
            while await ask() != b"200":
                await asyncio.sleep(0.01)
        held.pop()[1].close()


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_an_ipv6_network_counts_as_one_client(one: str, other: str, is_same: bool) -> None:
    assert (connection_limits._network(one) == connection_limits._network(other)) is is_same


def test_tidegate_web_serves_with_these_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[uvicorn.Config] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: served.append(server.config))
    app = Tidegate(f"sqlite:///{tmp_path}/queue.db")
    print_line: list[str] = []
    serve_alone(app, host="127.0.0.1", port=0, settings=WebSettings(), print_line=print_line.append)
    assert served[0].http.func is connection_limits._LimitedProtocol  # type: ignore[union-attr]
    assert served[0].http.args[0] == ClientLimits()  # type: ignore[union-attr]
