"""The measured application: one call a task through the upstream's transport, all settings the usual ones."""

from __future__ import annotations

import os

import httpx2

from tidegate import CallTimes, Exponential, Fixed, Pool, Tidegate

SLOTS = os.environ["ECONOMICS_SLOTS"]
app = Tidegate(pools=[Pool(concurrency="auto" if SLOTS == "auto" else int(SLOTS))])
DECLARED = os.environ.get("ECONOMICS_DECLARED")
TOKENS = os.environ.get("ECONOMICS_TOKENS")
provider = app.upstream(
    "provider",
    requests_per_minute=int(DECLARED) if DECLARED else None,
    tokens_per_minute=int(TOKENS) if TOKENS else None,
    provider="openai" if TOKENS else None,
    slow_start=float(os.environ["ECONOMICS_SLOW_START"]),
    times=CallTimes(seconds=float(os.environ["ECONOMICS_CALL_SECONDS"])),
)
client: httpx2.AsyncClient


@app.on_start
async def open_client() -> None:
    global client
    client = httpx2.AsyncClient(transport=provider.transport())


@app.on_stop
async def close_client() -> None:
    await client.aclose()


BACKOFF = os.environ.get("ECONOMICS_BACKOFF")


@app.task(name="call", upstream=provider, backoff=Fixed(float(BACKOFF)) if BACKOFF else Exponential())
async def call(number: int) -> None:
    answer = await client.post(os.environ["ECONOMICS_URL"], json={"task": number})
    answer.raise_for_status()
