"""A redrive of many dead letters with a provider that is still broken, and after it was mended."""

from __future__ import annotations

import asyncio
import base64
import time
from pathlib import Path

import httpx2
import pytest
from standardwebhooks import Webhook

from support import FAST, all_final, until
from tidegate import Fixed, Operation, OperationState, Pool, State, Tidegate
from tidegate.testing.provider import ProviderSettings, SimulatedProvider
from webhook_receiver import Receiver, receiving

pytestmark = pytest.mark.anyio

LETTERS = 60
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
SETTINGS = f"""
[alerts]
interval = "1s"
allow_hosts = ["127.0.0.1"]

[alerts.sinks.ops]
kind = "webhook"
url = "{{url}}/hook"
secret = "{SECRET}"
"""


async def ended(app: Tidegate, operation_id: str, within: float = 60.0) -> Operation:
    """Return the operation once it has ended and every letter it sent has an outcome."""
    until = time.monotonic() + within
    while True:
        found = await app.admin.operations.get(operation_id)
        if found.ended_at is not None and not found.unfinished:
            return found
        assert time.monotonic() < until, found
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
async def test_a_broken_provider_raises_an_alert_stops_a_redrive_and_lets_it_complete_once_mended(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        (tmp_path / "tidegate.toml").write_text(SETTINGS.format(url=receiver.url))
        monkeypatch.chdir(tmp_path)
        app = Tidegate(store_url, timings=FAST, pools=[Pool(concurrency=10, poll_interval=0.05)])
        await _story(app, receiver)
        await app.aclose()


async def _story(app: Tidegate, receiver: Receiver) -> None:
    async with SimulatedProvider(ProviderSettings()) as provider, httpx2.AsyncClient() as client:

        @app.task(name="t", max_attempts=1, backoff=Fixed(0.02))
        async def ask(number: int) -> int:
            body = {"model": "m", "messages": [{"role": "user", "content": f"number {number}"}]}
            (await client.post(f"{provider.url}/chat/completions", json=body)).raise_for_status()
            return number

        await provider.begin_outage("reset")
        async with app.worker():
            handles = [await ask.enqueue(number) for number in range(LETTERS)]
            ids = [handle.id for handle in handles]
            rows = await all_final(app, ids, within=50)
            assert {row.state for row in rows.values()} == {State.DEAD}
            alert = await until(lambda: receiver.opened("dead_surge"), within=50, what="the alert came")
            assert Webhook(SECRET).verify(alert.body, alert.headers)["data"]["subject"] == "default"

            calls = len(provider.ledger.calls())
            report = await app.admin.dead_letters.redrive(reason="network", by="ada")
            stopped = await ended(app, report.operation_id)
            tried = len(provider.ledger.calls()) - calls

            assert stopped.state is OperationState.STOPPED
            assert "first attempts failed, more than 20%" in stopped.note
            assert stopped.sent == stopped.died == tried <= 5
            assert await app.admin.dead_letters.count() == LETTERS

            await provider.end_outage()
            report = await app.admin.dead_letters.redrive(reason="network", by="ada")
            done = await ended(app, report.operation_id)

            assert (done.state, done.sent, done.succeeded, done.died) == (
                OperationState.DONE,
                LETTERS,
                LETTERS,
                0,
            )
            assert await app.admin.dead_letters.count() == 0
            rows = await all_final(app, ids)
            assert {row.state for row in rows.values()} == {State.SUCCEEDED}
            assert provider.ledger.summary().billed == LETTERS
        letters = await app.admin.operations.letters(report.operation_id, limit=LETTERS)
        assert {letter.first_attempt for letter in letters} == {"succeeded"}
        assert sum(letter.in_canary for letter in letters) == 5
