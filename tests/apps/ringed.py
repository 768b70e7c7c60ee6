"""Task functions with an upstream of two keys, and one that returns the failure of its last run."""

from __future__ import annotations

import os

import httpx2

from tidegate import Context, Key, Pool, Tidegate, Transient

app = Tidegate(pools=[Pool(concurrency=4, poll_interval=0.05)])
proxy = app.upstream("proxy", keys=[Key("a", env="KEY_A"), Key("b", env="KEY_B")])
slow = app.upstream("slow")


@app.task(upstream=proxy, backoff="50ms")
async def through_proxy(number: int) -> int:
    async with httpx2.AsyncClient(transport=proxy.transport()) as client:
        answer = await client.post(f"{os.environ['PROVIDER_URL']}/chat/completions", json={"model": "m"})
        answer.raise_for_status()
    return number


@app.task(upstream=slow)
def calls_by_blocking() -> None:
    with httpx2.Client(transport=slow.transport(), timeout=None) as client:
        client.post(f"{os.environ['PROVIDER_URL']}/chat/completions", json={"model": "m"})


@app.task(backoff="50ms")
def reports_last_failure(ctx: Context) -> list[str | int]:
    failure = ctx.last_failure
    if failure is None:
        message = "the form was wrong"
        raise Transient(message)
    return [failure.reason.value, failure.verdict.value, failure.message, failure.run]
