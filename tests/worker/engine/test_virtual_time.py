"""The real engine and SQLite store on virtual time: days pass in a moment, and a seed repeats a run."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from support import app_on
from tidegate import Exponential, Pool, State, Timings
from tidegate.domain.ids import IdMaker
from tidegate.domain.states import FINAL
from tidegate.internals import core_of
from tidegate.store.sqlite.inline import InlineRunner
from tidegate.store.sqlite.store import SqliteStore
from tidegate.testing.virtual_time import StuckError, VirtualLoop, run_virtually
from tidegate.worker.embedded import EmbeddedWorker


def simulate(directory: Path, seed: int, within: float = 600.0, tasks: int = 12) -> tuple[list[Any], float]:
    """Run tasks that fail by chance, with real time limits, on two workers; return their histories.

    Each task is due within `within` virtual seconds of its enqueue.
    """
    directory.mkdir()
    loop, rng = VirtualLoop(), random.Random(seed)
    path = directory / "queue.db"
    store = SqliteStore(path, runner=InlineRunner(path), clock=loop.wall)
    app = app_on(store, pools=[Pool(concurrency=3, poll_interval=1.0)], timings=Timings())
    core_of(app)._make_id = IdMaker(lambda: int(loop.wall() * 1000), rng.getrandbits)

    @app.task(name="t", timeout=60, max_attempts=3, backoff=Exponential(base=10))
    async def body(number: int) -> int:
        await asyncio.sleep(rng.uniform(0.5, 70))
        if rng.random() < 0.3:
            raise OSError("by chance")
        return number

    async def work() -> list[Any]:
        workers = [
            EmbeddedWorker(
                core_of(app),
                core_of(app).pools,
                core_of(app).timings,
                rng=random.Random(seed + n),
                threaded=False,
            )
            for n in range(2)
        ]
        async with workers[0], workers[1]:
            ids = []
            for number in range(tasks):
                ids.append((await body.using(delay=rng.uniform(0, within)).enqueue(number)).id)
                await asyncio.sleep(rng.uniform(0, 30))
            while True:
                rows = await store.read_tasks(ids)
                if all(row.state in FINAL for row in rows.values()):
                    break
                await asyncio.sleep(5)
        return [(rows[task_id], await store.get_history(task_id)) for task_id in ids]

    try:
        return run_virtually(work(), loop), loop.time()
    finally:
        run_virtually(store.close(), VirtualLoop())


def test_an_hour_passes_in_a_moment_and_every_task_ends(tmp_path: Path) -> None:
    reported, virtual_seconds = simulate(tmp_path / "a", seed=1, within=3_600)
    assert virtual_seconds > 3600
    assert {row.state for row, _ in reported} <= {State.SUCCEEDED, State.DEAD}
    assert any(row.run > 1 for row, _ in reported)
    assert any(entry.reason == "timeout" for _, history in reported for entry in history)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    assert simulate(tmp_path / "a", seed=2) == simulate(tmp_path / "b", seed=2)


def test_waiting_for_an_event_that_never_comes_raises_instead_of_hanging() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError):
        run_virtually(work(), VirtualLoop())
