"""The client's loops, the same for every queue, and the way into its worker.

The harness runs this as a program, in the environment of the queue and in a process of its own:

    python -m benchmarks.peers.client benchmarks.peers.postgresql.pgqueuer WHAT '{"n": …}'

with WHAT one of create, work, fill, bulk, single, pickup. `BENCH_URL` says where the store is.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.peers import start_times
from benchmarks.peers.contract import PeerQueue

BATCH = 1_000
"""Tasks in one bulk call."""


def main(module: str, what: str, options: dict[str, Any]) -> None:
    """Do it and print its values as JSON."""
    queue: PeerQueue = importlib.import_module(module).Peer()
    if what in ("create", "work"):
        _resolve(getattr(queue, what)())
        print("{}")
    else:
        print(json.dumps(asyncio.run(_client(queue, _LOOPS[what], options))))


def _resolve(answer: Any) -> None:
    if inspect.isawaitable(answer):
        asyncio.run(_awaited(answer))


async def _awaited(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def _client(queue: PeerQueue, loop: Callable[..., Any], options: dict[str, Any]) -> Any:
    await _awaited(queue.open())
    try:
        return await loop(queue, **options)
    finally:
        await _awaited(queue.close())


async def fill(queue: PeerQueue, *, n: int) -> dict[str, float]:
    """Store `n` tasks, however fastest; nothing is measured."""
    await _many(queue.fill or queue.enqueue_many or _one_by_one(queue), n)
    return {}


async def bulk(queue: PeerQueue, *, n: int) -> dict[str, float]:
    """Store `n` tasks by the bulk call, if there is one."""
    if queue.enqueue_many is None:
        return {}
    began_at = time.perf_counter()
    await _many(queue.enqueue_many, n)
    return {"rate": n / (time.perf_counter() - began_at)}


async def single(queue: PeerQueue, *, n: int) -> dict[str, float]:
    """Store `n` tasks, each durable before the next."""
    await _awaited(queue.enqueue(n))  # the first finds cold caches
    began_at = time.perf_counter()
    for number in range(n):
        await _awaited(queue.enqueue(number))
    return {"rate": n / (time.perf_counter() - began_at)}


async def pickup(queue: PeerQueue, *, n: int, pause: float) -> dict[str, list[float]]:
    """Store one task after each pause, for a worker that is idle; return the moment before each call.

    Task 0 is a warm-up: only when it has begun are the others asked for.
    """
    await _awaited(queue.ask(0))
    await _until_begun(0)
    asked = []
    for number in range(1, n + 1):
        await asyncio.sleep(pause)
        asked.append(time.monotonic())
        await _awaited(queue.ask(number))
    return {"asked": asked}


async def _until_begun(number: int) -> None:
    async with asyncio.timeout(60):
        while not start_times.begun_at(number):
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)  # the worker is idle again


async def _many(store: Callable[[Sequence[int]], Any], n: int) -> None:
    for first in range(0, n, BATCH):
        await _awaited(store(range(first, min(first + BATCH, n))))


def _one_by_one(queue: PeerQueue) -> Callable[[Sequence[int]], Any]:
    async def store(numbers: Sequence[int]) -> None:
        for number in numbers:
            await _awaited(queue.enqueue(number))

    return store


_LOOPS: dict[str, Callable[..., Any]] = {"fill": fill, "bulk": bulk, "single": single, "pickup": pickup}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
