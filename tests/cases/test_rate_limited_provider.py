"""Real HTTP calls to a provider that limits them. Waiting is not a failure, and retries do not multiply."""

from __future__ import annotations

import httpx2
import pytest

from support import all_final
from tidegate import Fixed, State, Tidegate
from tidegate.testing.provider import ProviderSettings, SimulatedProvider

pytestmark = pytest.mark.anyio


async def test_tasks_delayed_by_a_rate_limit_all_succeed_with_a_single_attempt_each(app: Tidegate) -> None:
    settings = ProviderSettings(requests_per_minute=10, requests_burst=5, window_seconds=1.0)
    async with SimulatedProvider(settings) as provider, httpx2.AsyncClient() as client:

        @app.task(name="t", max_attempts=1)
        async def ask(number: int) -> int:
            body = {"model": "m", "messages": [{"role": "user", "content": f"number {number}"}]}
            answer = await client.post(f"{provider.url}/chat/completions", json=body)
            answer.raise_for_status()
            return number

        async with app.worker():
            handles = [await ask.enqueue(number) for number in range(20)]
            rows = await all_final(app, [handle.id for handle in handles], within=50)
        summary = provider.ledger.summary()
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    assert {row.counters.attempts for row in rows.values()} == {0}
    assert sum(row.counters.parks for row in rows.values()) == summary.throttled > 0
    assert summary.billed == 20


async def test_an_outage_costs_as_many_calls_as_attempts_and_no_more(app: Tidegate) -> None:
    async with SimulatedProvider(ProviderSettings()) as provider, httpx2.AsyncClient() as client:

        @app.task(name="t", max_attempts=3, backoff=Fixed(0.02))
        async def ask() -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            (await client.post(f"{provider.url}/chat/completions", json=body)).raise_for_status()

        await provider.begin_outage("reset")
        async with app.worker():
            handle = await ask.enqueue()
            rows = await all_final(app, [handle.id])
        calls = len(provider.ledger.calls())
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "network")
    assert calls == 3
