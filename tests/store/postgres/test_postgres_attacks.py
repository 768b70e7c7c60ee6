"""What callers' own transactions must not be able to do to the worker."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from support import FAST
from tidegate import Pool, Tidegate

pytestmark = pytest.mark.anyio


async def test_a_caller_that_stays_in_its_transaction_keeps_no_run_from_ending(worker_url: str) -> None:
    app = Tidegate(worker_url, timings=FAST, pools=[Pool(concurrency=4, poll_interval=0.05)])
    told = asyncio.Event()

    @app.task(name="unique")
    async def unique() -> str:
        await told.wait()
        return "unique"

    @app.task(name="other")
    async def other() -> str:
        return "other"

    connection: Any = await asyncpg.connect(worker_url)
    try:
        async with app.worker():
            first = await unique.using(unique="until_final").enqueue()
            async with connection.transaction():  # idle in it, as behind a slow call to somebody else
                again = await unique.using(conn=connection, unique="until_final").enqueue()
                assert again.id == first.id
                told.set()
                assert await first.result(timeout=10) == "unique"
                assert await (await other.enqueue()).result(timeout=10) == "other"
    finally:
        await connection.close()
        await app.aclose()
