"""Recorded calls in real workers: real SDKs, a provider with a ledger, and a kill in the middle."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import all_final, load_app, until, worker_process
from tidegate import State, Tidegate
from tidegate.internals import core_of
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio

COUNT, BEFORE_THE_KILL = 6, 3
SLOW = pytest.mark.slow
IN_EVERYDAY_TIER = [("sqlite", "asked", False), ("postgres", "asked_plainly", True)]
FORMS = [
    pytest.param(
        store,
        function,
        is_stream,
        marks=() if (store, function, is_stream) in IN_EVERYDAY_TIER else SLOW,
    )
    for store in ("sqlite", "postgres")
    for function in ("asked", "asked_plainly")
    for is_stream in (False, True)
]


@pytest.fixture
def recording(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests."""
    return load_app("recording", tmp_path, monkeypatch, url=store_url)


@pytest.mark.parametrize(("store_url", "function", "is_stream"), FORMS, indirect=["store_url"])
async def test_a_kill_between_calls_repeats_only_the_call_in_flight_and_lists_it(
    function: str, is_stream: bool, recording: Any, store_url: str, tmp_path: Path
) -> None:
    async with SimulatedProvider(ProviderSettings(latency_seconds=0.25)) as provider:
        env = {"TIDEGATE_DATABASE_URL": store_url, "PROVIDER": provider.url}
        store = await core_of(recording.app).opened_store()
        with worker_process("recording:app", tmp_path, **env) as worker:
            handle = await getattr(recording, function).enqueue(COUNT, is_stream)

            async def has_recorded() -> bool:
                rows = await store.read_steps(handle.id, with_data=False)
                return len([row for row in rows if row.state == "done"]) >= BEFORE_THE_KILL

            await until(has_recorded, within=40, what="calls are recorded")
            for pid in worker.children():
                os.kill(pid, signal.SIGKILL)
            row = (await all_final(recording.app, [handle.id], within=40))[handle.id]
        paid = {call.content_hash for call in provider.ledger.calls() if call.billed}
        twice = provider.ledger.count(billed=True) - len(paid)
        doubts = await store.list_doubts(state=None)
        steps = await store.read_steps(handle.id)
    assert row.state is State.SUCCEEDED
    assert len(await handle.result(5)) == len(paid) == COUNT
    assert twice <= len(doubts) <= 1
    assert {doubt.state for doubt in doubts} <= {"repeated"}
    assert [step.name for step in steps] == [f"call {row.upstream}"] * COUNT


async def test_a_forgotten_task_leaves_no_recorded_response(app: Tidegate) -> None:
    upstream = app.upstream("openai", record=True)
    answer = httpx2.Response(200, json={"text": "canary-7421"})

    @app.task(name="t", upstream=upstream)
    async def ask() -> int:
        transport = upstream.transport(httpx2.MockTransport(lambda _: answer))
        async with httpx2.AsyncClient(transport=transport) as client:
            return (await client.post("https://api.acme.test/v1/x", json={})).status_code

    async with app.worker():
        handle = await ask.enqueue()
        assert await handle.result(10) == 200
    store = await core_of(app).opened_store()
    [step] = await store.read_steps(handle.id)
    assert b"canary-7421" in (step.data or b"")
    await app.admin.forget(task_id=handle.id)
    assert await store.read_steps(handle.id) == []
