"""The calls of the functions under chaos that cost money: an HTTP client over the transports of upstreams.

The client is written as it would be without a queue. The providers run in the process of the run itself, and
write a ledger each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2

from harness.paid_calls import model_of
from tidegate.testing.provider import ProviderCall, ProviderSettings, SimulatedProvider

PLAIN, HONOURING = "plain", "honouring"
"""A provider that bills each call, as real ones do, and one that bills each idempotency key once."""
_PROMPT = "The tide came in at the harbour wall while the boats were still asleep and nobody was about."
_TIMEOUT_SECONDS = 60.0
"""Longer than all faults: a frozen client finds the answer when it goes on."""
_SETTINGS = {
    PLAIN: ProviderSettings(latency_seconds=0.02, tokens_per_second=20.0),
    HONOURING: ProviderSettings(latency_seconds=0.02, tokens_per_second=20.0, honour_idempotency=True),
}


class Providers:
    """The running providers of a run."""

    def __init__(self, providers: Sequence[SimulatedProvider]) -> None:
        self._providers = providers

    def calls(self) -> list[ProviderCall]:
        """Return what is in the ledgers of all providers."""
        return [call for provider in self._providers for call in provider.ledger.calls()]


@asynccontextmanager
async def providers(directory: Path) -> AsyncIterator[Providers]:
    """Run both providers; processes of the run find their addresses in the directory."""
    async with AsyncExitStack() as stack:
        running = []
        for name, settings in _SETTINGS.items():
            provider = await stack.enter_async_context(SimulatedProvider(settings))
            (directory / f"{name}.url").write_text(provider.url)
            running.append(provider)
        yield Providers(running)


def url_of(directory: Path, provider: str) -> str:
    """Return the address of a provider of the run."""
    return (directory / f"{provider}.url").read_text()


async def ask(client: httpx2.AsyncClient, url: str, task_id: str, item: int, *, is_stream: bool) -> str:
    """Make one call, read its answer to the end, and return the provider's id of it."""
    body = {
        "model": model_of(task_id, item),
        "messages": [{"role": "user", "content": _PROMPT}],
        "stream": is_stream,
    }
    async with client.stream(
        "POST", f"{url}/chat/completions", json=body, timeout=_TIMEOUT_SECONDS
    ) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_bytes():
            await asyncio.sleep(0)
        return answer.headers["x-request-id"]
