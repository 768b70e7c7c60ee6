"""A map whose workers are killed at random: its counts are exact, and one callback is enqueued."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest
from worker_support import Service, came

from tidegate import Tidegate
from tidegate.store.rows import TaskFilter

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

ITEMS = 400
KILLS = 6
APP = """
import asyncio
import os
import pathlib

from tidegate import MapEnd, Permanent, Pool, Tidegate, Timings

app = Tidegate(
    timings=Timings(lease="3s", beat="1s", reap="1s", promote="0.5s"), pools=[Pool(concurrency=10)]
)


@app.task(name="work", max_attempts=10)
async def work(number: int) -> int:
    await asyncio.sleep(0.1)
    if number % 40 == 0:
        raise Permanent("every fortieth")
    return number


@app.task(name="report")
async def report(end: MapEnd) -> dict[str, int]:
    with open(pathlib.Path(os.environ["OUT"]) / "ends", "a") as out:
        out.write(f"{end.succeeded} {end.dead} {end.cancelled}\\n")
"""


async def test_counts_are_exact_and_the_callback_is_one_although_workers_are_killed(
    tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mapped.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rng = random.Random(3)
    app = Tidegate(store_url)
    await app._core.store.migrate()

    @app.task(name="work")
    async def work(number: int) -> int: ...

    @app.task(name="report")
    async def report(end: dict[str, int]) -> None: ...

    handle = await work.map(range(ITEMS), on_complete=report)
    workers = [_start(tmp_path, store_url) for _ in range(2)]
    try:
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.5, 2.0))
            victim = rng.randrange(2)
            os.kill(workers[victim].pid, signal.SIGKILL)
            workers[victim].close()
            workers[victim] = _start(tmp_path, store_url)
        progress = await handle.wait(120)
        await came(lambda: (tmp_path / "ends").exists(), "the callback ran", within=60.0)
    finally:
        for worker in workers:
            worker.close()

    dead = len(range(0, ITEMS, 40))
    assert (progress.succeeded, progress.dead, progress.cancelled) == (ITEMS - dead, dead, 0)
    store = await app._core.opened_store()
    assert len(await store.list_tasks(TaskFilter(function="report"))) == 1
    assert set((tmp_path / "ends").read_text().splitlines()) == {f"{ITEMS - dead} {dead} 0"}
    await app.aclose()


def _start(folder: Path, url: str) -> Service:
    return Service(folder, "worker", "mapped:app", TIDEGATE_DATABASE_URL=url, OUT=str(folder))
