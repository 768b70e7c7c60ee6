"""Claims while somebody holds a snapshot open: the rows of claimed tasks cannot be cleared away meanwhile.

Run as a program, with `BENCH_URL` and the options as JSON; prints the percentiles of a claim's time before
and during. Tidegate alone: others name no call that could be timed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.limit import percentiles
from benchmarks.peers.ours import app, noop
from tidegate.internals import core_of

TICK_SECONDS = 0.02
"""Between two enqueues."""


class TimedClaims:
    """Stands before the store's claim, and keeps what each one took that found tasks."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self._claim = core_of(app).store.claim

    async def __call__(self, ask: Any) -> Any:
        began_at = time.perf_counter()
        claim = await self._claim(ask)
        if claim.tasks:
            self.milliseconds.append((time.perf_counter() - began_at) * 1000)
        return claim

    def taken(self) -> list[float]:
        """Return what was kept since the last time."""
        taken, self.milliseconds = self.milliseconds, []
        return taken


async def main(url: str, *, rate: int, before: float, during: float) -> dict[str, float]:
    """Return the claim's p50 and p99 in milliseconds, without and with a snapshot held open.

    Args:
        url: Of the database, for the one who holds the snapshot.
        rate: Tasks a second.
        before: Seconds without a snapshot.
        during: Seconds with one.
    """
    claims = TimedClaims()
    core_of(app).store.claim = claims  # type: ignore[method-assign]
    async with app.worker(core_of(app).pools[0]):
        await _load(rate, 5.0)  # plans, caches and connections are there
        claims.taken()
        await _load(rate, before)
        without = percentiles(claims.taken())
        async with _snapshot(url):
            await _load(rate, during)
        held = percentiles(claims.taken())
    await app.aclose()
    return {f"without_{name}": value for name, value in without.items()} | held


async def _load(rate: int, seconds: float) -> None:
    """Enqueue so many tasks a second by the clock."""
    began_at, stored = time.monotonic(), 0
    while (now := time.monotonic() - began_at) < seconds:
        due = int(now * rate)
        if due > stored:
            await app.enqueue_many(noop.prepare(0) for _ in range(due - stored))
            stored = due
        await asyncio.sleep(TICK_SECONDS)


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(url)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.fetchval("SELECT 1")
        yield
    await connection.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(os.environ["BENCH_URL"], **json.loads(sys.argv[1])))))
