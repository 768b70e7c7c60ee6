"""What recording costs a call: CPU and time of a call that is recorded, not recorded, or replayed, on SQLite.

    .venv/bin/python -m benchmarks.recorded_calls

The provider answers at once and in the same process, so only the work of this process is measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time

import httpx2

from tidegate import Context, Fixed, Pool, Tidegate, Transient

CALLS = 300
ROUNDS = 5
URL = "https://api.bench.test/v1/chat/completions"


def _answer(_: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(
        200, json={"usage": {"prompt_tokens": 7, "completion_tokens": 3}, "text": "x" * 2_000}
    )


def _application(url: str) -> Tidegate:
    app = Tidegate(url, pools=[Pool(concurrency=2, poll_interval=0.02)])
    upstreams = {"recorded": app.upstream("recorded", record=True), "plain": app.upstream("plain")}

    @app.task(name="bench:calls", backoff=Fixed(0.01))
    async def calls(ctx: Context, kind: str, is_repeated: bool) -> list[float]:
        """Make calls; return the CPU and the time of one call, in microseconds."""
        transport = upstreams[kind].transport(httpx2.MockTransport(_answer))
        async with httpx2.AsyncClient(transport=transport) as client:
            cpu, started_at = time.process_time(), time.perf_counter()
            for number in range(CALLS):
                await client.post(URL, json={"model": "m", "number": number})
            cpu, seconds = time.process_time() - cpu, time.perf_counter() - started_at
        if is_repeated and ctx.run == 1:
            raise Transient("once")
        return [cpu / CALLS * 1e6, seconds / CALLS * 1e6]

    return app


async def _measure() -> dict[str, tuple[float, float]]:
    found: dict[str, list[list[float]]] = {"not recorded": [], "recorded": [], "replayed": []}
    with tempfile.TemporaryDirectory() as directory:
        app = _application(f"sqlite:///{directory}/queue.db")
        calls = app.function("bench:calls")
        async with app.worker():
            for _ in range(ROUNDS):
                for what, (kind, is_repeated) in {
                    "not recorded": ("plain", False),
                    "recorded": ("recorded", False),
                    "replayed": ("recorded", True),
                }.items():
                    found[what].append(await (await calls.enqueue(kind, is_repeated)).result(60))
        await app.aclose()
    return {
        what: (statistics.median(cpu for cpu, _ in each), statistics.median(took for _, took in each))
        for what, each in found.items()
    }


if __name__ == "__main__":
    figures = asyncio.run(_measure())
    print(
        json.dumps({what: {"cpu_us": round(cpu), "us": round(took)} for what, (cpu, took) in figures.items()})
    )
