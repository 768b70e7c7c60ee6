"""Stores the tasks of the figure `limited`.

python -m benchmarks.limited_client '{"n": …}'       in the queue of TIDEGATE_DATABASE_URL
"""

from __future__ import annotations

import asyncio
import json
import sys

from benchmarks.limited_app import app, call_many, noop
from tidegate.internals import core_of
from tidegate.limits.pauses import PauseKind

BATCH = 5_000


async def fill(*, n: int, queues: int = 1, calls: int = 0, pause: float = 0.0, wait: float = 0.0) -> None:
    """Store `n` tasks: no-ops, or such that make calls. Unless there is a wait, their function is paused.

    Args:
        n: How many.
        queues: Over how many queues the no-ops are spread.
        calls: How many calls each task makes; 0 for a no-op.
        pause: Seconds that a call takes.
        wait: Seconds between two tasks; 0 to store them in large transactions.
    """
    store = await core_of(app).opened_store()
    if not wait:
        function = f"benchmarks.limited_app:{'call_many' if calls else 'noop'}"
        await store.pause(PauseKind.FUNCTION, function, by="benchmark", why="the workers start first")
    if calls:
        await app.enqueue_many(call_many.prepare(calls, pause) for _ in range(n))
    elif wait:
        for number in range(n):
            await noop.enqueue(number)
            await asyncio.sleep(wait)
    elif queues == 1:
        for first in range(0, n, BATCH):
            numbers = range(first, min(first + BATCH, n))
            await app.enqueue_many(noop.prepare(number) for number in numbers)
    else:
        await app.enqueue_many(
            noop.options(queue=f"q{number % queues}").prepare(number) for number in range(n)
        )
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(fill(**json.loads(sys.argv[1])))
    print("{}")
