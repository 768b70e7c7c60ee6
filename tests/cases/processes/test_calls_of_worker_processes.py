"""Calls of a real worker's processes: a cancel cuts them, and a key that expired holds up no task."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Self

import pytest

from counting_provider import CountingProvider
from support import all_final, load_app, worker_process
from tidegate import CancelStatus, State
from tidegate.internals import core_of
from tidegate.limits.values import GateState

pytestmark = pytest.mark.anyio

EXPIRED = {
    "error": {"message": "Authentication Error - no longer good.", "type": "expired_key", "code": "400"}
}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KEY_A", "secret-a")
    monkeypatch.setenv("KEY_B", "secret-b")
    return load_app("ringed", tmp_path, monkeypatch)


class KeyProxy:
    """A proxy as LiteLLM answers: 400 `expired_key` for one key, an answer for every other."""

    def __init__(self, expired: str) -> None:
        self._expired = expired
        self.calls = {"expired": 0, "good": 0}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1")
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        is_expired = self._expired.encode() in head
        self.calls["expired" if is_expired else "good"] += 1
        status, printed = ("400 Bad Request", EXPIRED) if is_expired else ("200 OK", {"choices": []})
        body = json.dumps(printed).encode()
        reported = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        writer.write(reported.encode() + b"\r\nconnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()


async def test_a_cancel_cuts_the_call_of_a_plain_function_in_a_child_process(
    client: Any, tmp_path: Path
) -> None:
    async with CountingProvider(seconds=60) as provider:
        with worker_process("ringed:app", tmp_path, PROVIDER_URL=provider.url):
            handle = await client.calls_by_blocking.enqueue()
            await provider.has_begun(1, within=30)
            asked_at = time.monotonic()
            assert await handle.cancel() is CancelStatus.REQUESTED
            rows = await all_final(client.app, [handle.id], within=20)
            assert time.monotonic() - asked_at < 10
    assert rows[handle.id].state is State.CANCELLED
    (run,) = [entry for entry in await handle.history() if entry.kind == "run"]
    assert run.outcome == "cancelled"
    await client.app.aclose()


async def test_a_key_that_a_proxy_calls_expired_parks_and_every_task_goes_on_with_the_other(
    client: Any, tmp_path: Path
) -> None:
    async with KeyProxy("secret-a") as proxy:
        with worker_process("ringed:app", tmp_path, PROVIDER_URL=proxy.url):
            handles = [await client.through_proxy.enqueue(number) for number in range(12)]
            rows = await all_final(client.app, [handle.id for handle in handles])
        gates = {row.name: row.gate.state for row in await core_of(client.app).store.list_upstreams()}
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.attempts for row in rows.values()} == {0}
    assert proxy.calls["good"] == 12
    assert 1 <= proxy.calls["expired"] <= 4, "only what ran at once met the expired key"
    assert gates == {
        "proxy": GateState.FLOWING, "proxy#a": GateState.PARKED, "proxy#b": GateState.FLOWING,
        "slow": GateState.FLOWING,
    }  # fmt: skip
    await client.app.aclose()


async def test_a_plain_function_in_a_child_process_sees_why_its_run_before_failed(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("ringed:app", tmp_path, PROVIDER_URL=""):
        handle = await client.reports_last_failure.enqueue()
        assert await handle.result(30) == ["unknown", "transient", "the form was wrong", 1]
    await client.app.aclose()
