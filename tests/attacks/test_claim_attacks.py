"""Claims whose answer is lost or late: their tasks are released at once, uncharged."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from support import until
from tidegate import State, Tidegate
from tidegate.codec import CODEC
from tidegate.domain.spec import Priority
from tidegate.store.rows import ClaimRequest, CrashPolicy, NewTask
from tidegate.store.sqlite import claim as claiming
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.worker_rows import NewWorker

pytestmark = pytest.mark.anyio


async def test_a_claim_committed_while_the_worker_stops_is_released_uncharged(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    real = claiming.claim

    def slow(*args: Any) -> Any:
        entered.set()
        go_on.wait(10)
        return real(*args)

    @app.task(name="t", on_crash="fail")
    async def body() -> None: ...

    handle = await body.enqueue()
    monkeypatch.setattr(claiming, "claim", slow)
    worker = app.worker()
    await worker.__aenter__()
    await until(lambda: _is_set(entered))
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.1)
    go_on.set()
    await stopping
    row = await handle.status()
    assert (row.state, row.crashes, row.releases) == (State.READY, 0, 1)


async def _is_set(event: threading.Event) -> bool:
    return event.is_set()


async def test_a_queue_per_user_is_claimed_in_the_same_order_as_by_single_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(5)
    tasks = [
        NewTask(
            f"01900000-0000-7000-8000-{number:012d}",
            rng.choice(["known", "also known", "unknown"]),
            f"user {rng.randrange(40)}",
            rng.choice(list(Priority)),
            b"{}",
            CODEC,
            upstream=rng.choice(["", "model"]),
        )
        for number in range(300)
    ]
    functions = {"known": CrashPolicy(), "also known": CrashPolicy(crash_limit=2)}
    orders = []
    for many in (3, 100_000):
        monkeypatch.setattr(claiming, "MANY_CHANNELS", many)
        ticks = itertools.count(1_800_000_000)
        store = SqliteStore(tmp_path / f"{many}.db", clock=lambda ticks=ticks: float(next(ticks)))
        await store.add_worker(NewWorker("w", "w", "p", "h", 1, ("*",), 10, 1e9))
        for task in tasks:
            await store.enqueue([task])
        order: list[str] = []
        for queues in (("*",), ("user 3", "user 1", "nobody"), ("*",)):
            for reserved in ({}, {Priority.BULK: 2}, {}, {}):
                request = ClaimRequest("w", 11, queues, functions, reserved=reserved)
                order += [task.fence.task_id for task in (await store.claim(request)).tasks]
        orders.append(order)
        await store.close()
    assert orders[0] == orders[1]
    assert len(orders[0]) == len(set(orders[0])) > 60
