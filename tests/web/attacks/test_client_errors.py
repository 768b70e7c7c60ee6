"""What clients do wrong is no error of the server: it is told at INFO, or only counted."""

from __future__ import annotations

import asyncio
import logging

import pytest
from web_support import served

from tidegate import Tidegate
from tidegate.web.client_errors import REPORT_SECONDS, ClientErrorFilter

pytestmark = pytest.mark.anyio


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, message, (), None)


def test_refused_sockets_are_counted_and_reported_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate.web")
    now = [0.0]
    faults = ClientErrorFilter(lambda: now[0])
    for _ in range(100):
        assert not faults.filter(record("ASGI callable returned without completing handshake."))
    now[0] += REPORT_SECONDS
    assert not faults.filter(record("Invalid HTTP request received."))
    assert [one.getMessage().split()[0] for one in caplog.records] == ["1", "100"]


def test_server_errors_stay_in_the_log() -> None:
    assert ClientErrorFilter(lambda: 0.0).filter(record("Exception in ASGI application"))


async def test_a_client_that_leaves_in_mid_body_is_no_error(
    app: Tidegate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served(app) as api:
        host, port = api.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 1000\r\n\r\n{"task":'
        )
        await writer.drain()
        await asyncio.sleep(0.1)  # the server waits for the rest
        writer.close()
        async with asyncio.timeout(10):
            while "the client disconnected" not in caplog.text:
                await asyncio.sleep(0.01)
    left = [one for one in caplog.records if "the client disconnected" in one.getMessage()]
    assert [(one.levelname, one.exc_info) for one in left] == [("INFO", None)]
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
