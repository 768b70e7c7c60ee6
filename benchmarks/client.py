"""Tidegate's client side, measured in a process of its own.

python -m benchmarks.client WHAT '{"n": …}'       on the queue of TIDEGATE_DATABASE_URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks import noop_app
from benchmarks.limit import percentiles
from tidegate import Pool
from tidegate.internals import core_of

BATCH = 5_000


async def bulk(*, n: int) -> dict[str, float]:
    """Store `n` tasks, 5,000 a transaction."""
    await core_of(noop_app.app).opened_store()
    began_at = time.perf_counter()
    for first in range(0, n, BATCH):
        numbers = range(first, min(first + BATCH, n))
        await noop_app.app.enqueue_many(noop_app.noop.prepare(number) for number in numbers)
    rate = n / (time.perf_counter() - began_at)
    await noop_app.app.aclose()
    return {"rate": rate}


async def single_async(*, n: int) -> dict[str, float]:
    """Store `n` tasks, each awaited before the next."""
    await core_of(noop_app.app).opened_store()
    began_at = time.perf_counter()
    for number in range(n):
        await noop_app.noop.enqueue(number)
    return {"rate": n / (time.perf_counter() - began_at)}


def single_sync(*, n: int) -> dict[str, float]:
    """Store `n` tasks from sync code, one after the other."""
    noop_app.noop.enqueue_sync(0)
    began_at = time.perf_counter()
    for number in range(n):
        noop_app.noop.enqueue_sync(number)
    return {"rate": n / (time.perf_counter() - began_at)}


async def pickup_alone(*, n: int, pause: float) -> dict[str, float]:
    """Enqueue to a worker in this very process."""
    async with noop_app.app.worker(Pool(concurrency=10)):
        asked = await _ask(n, pause)
        await _wait_until(lambda: len(noop_app.moments) == n)
    await noop_app.app.aclose()
    return _taken(asked, noop_app.moments)


async def pickup_across(*, n: int, pause: float, report: str) -> dict[str, float]:
    """Enqueue to a worker in another process, which writes its start times to `report`."""
    first = await noop_app.noop.enqueue(0)
    await first.result(timeout=60)  # it has started
    asked = await _ask(n, pause)
    await _wait_until(lambda: bool(_read(report)))
    return _taken(asked, _read(report))


async def _ask(n: int, pause: float) -> dict[int, float]:
    """Enqueue one task after each pause; return when each call was made."""
    asked: dict[int, float] = {}
    for number in range(n):
        await asyncio.sleep(pause)
        asked[number] = time.monotonic()
        await noop_app.mark.enqueue(number)
    return asked


async def _wait_until(condition: Callable[[], bool]) -> None:
    """Ask now and then: what is waited for happens in another process, or must not be told by the body."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


def _read(report: str) -> dict[int, float]:
    try:
        with open(report) as file:
            return {int(number): moment for number, moment in json.load(file).items()}
    except FileNotFoundError:
        return {}


def _taken(asked: dict[int, float], moments: dict[int, float]) -> dict[str, float]:
    warm = len(asked) // 20  # the first ones find cold caches
    return percentiles([(moments[number] - asked[number]) * 1000 for number in sorted(asked)[warm:]])


_WORK: dict[str, Callable[..., Coroutine[Any, Any, dict[str, float]]]] = {
    "bulk": bulk,
    "single_async": single_async,
    "pickup_alone": pickup_alone,
    "pickup_across": pickup_across,
}


def main(what: str, options: dict[str, Any]) -> None:
    """Do one and print its values as JSON."""
    values = single_sync(**options) if what == "single_sync" else asyncio.run(_WORK[what](**options))
    print(json.dumps(values))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
