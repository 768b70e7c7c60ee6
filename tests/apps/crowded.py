"""Tasks that make several calls at once to an upstream that allows three in flight."""

from __future__ import annotations

import asyncio
import os

import httpx2

from tidegate import Pool, Tidegate, Timings
from tidegate.calls import gate_permit
from tidegate.calls.settings import CallTimes

gate_permit.PERMIT_MARGIN_SECONDS = float(os.environ.get("PERMIT_MARGIN_SECONDS", "10"))
app = Tidegate(
    pools=[Pool(concurrency=8, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05, drain_grace=5.0),
)
upstream = app.upstream(
    "crowded", max_in_flight=3, times=CallTimes(seconds=float(os.environ.get("CALL_SECONDS", "60")))
)
URL = os.environ.get("PROVIDER_URL", "")


@app.task(upstream=upstream)
async def gathers(number: int) -> int:
    """Make three calls at once, one of them streamed, then one more."""
    async with httpx2.AsyncClient(transport=upstream.transport()) as http:

        async def streams() -> None:
            async with http.stream("POST", f"{URL}/stream", json={}) as answer:
                async for _ in answer.aiter_bytes():
                    pass

        await asyncio.gather(*(http.post(URL, json={}) for _ in range(2)), streams())
        await http.post(URL, json={})
    return number


@app.task(upstream=upstream)
def calls_twice(number: int) -> int:
    """Make two calls one after the other, from a child process."""
    with httpx2.Client(transport=upstream.transport()) as http:
        for _ in range(2):
            http.post(URL, json={})
    return number


@app.task(upstream=upstream)
async def holds(number: int) -> None:
    """Keep two calls in flight until the provider answers."""
    async with httpx2.AsyncClient(transport=upstream.transport()) as http:
        await asyncio.gather(*(http.post(URL, json={}) for _ in range(2)))
