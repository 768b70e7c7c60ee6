"""Three workers fire one schedule a second while they are killed at random: one task for each second, none missed.

`--schedule-seconds 300` runs it for five minutes on each store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from worker_support import Service, came

from tidegate.domain.schedule import TickOutcome
from tidegate.store.connect import open_store
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import TickRow

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(1_200)]

WORKERS = 3
MOST_SECONDS_BETWEEN_KILLS = 6.0
APP = """
import os
import pathlib

from tidegate import Context, Pool, Tidegate, Timings

app = Tidegate(timings=Timings(lease="4s", beat="1s", reap="1s", promote="0.5s"))


@app.schedule("every 1s", catch_up="all", overlap="allow", name="second")
@app.task(name="second", max_attempts=10)
async def second(ctx: Context) -> None:
    with open(pathlib.Path(os.environ["OUT"]) / "moments", "a") as out:
        out.write(f"{ctx.scheduled_for.timestamp():.0f} {ctx.task_id}\\n")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "seconds.py").write_text(APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def start(folder: Path, url: str) -> Service:
    return Service(folder, "worker", "seconds:app", TIDEGATE_DATABASE_URL=url)


async def all_ticks(store: Store) -> list[TickRow]:
    found: list[TickRow] = []
    while page := await store.list_ticks("second", before_at=found[-1].at if found else None, limit=1_000):
        found += page
    return found[::-1]


async def test_each_second_has_one_task_although_workers_are_killed(
    folder: Path, store_url: str, request: pytest.FixtureRequest
) -> None:
    seconds = request.config.getoption("--schedule-seconds")
    rng = random.Random(5)
    workers = [start(folder, store_url) for _ in range(WORKERS)]
    kills = 0
    try:
        async with opened(store_url) as store:
            await came(lambda: (folder / "moments").exists(), "the schedule fires", within=60.0)
            ends_at = time.monotonic() + seconds
            while time.monotonic() < ends_at:
                await asyncio.sleep(rng.uniform(0.5, MOST_SECONDS_BETWEEN_KILLS))
                victim = rng.randrange(WORKERS)
                os.kill(workers[victim].pid, signal.SIGKILL)
                workers[victim].close()
                kills += 1
                workers[victim] = start(folder, store_url)
            await store.pause_schedule("second")
            ticks = await all_ticks(store)

            def ran() -> set[str]:
                return {line.split()[1] for line in (folder / "moments").read_text().splitlines()}

            await came(lambda: {tick.task_id for tick in ticks} <= ran(), "every task ran", within=120.0)
            late = max(tick.decided_at - tick.at for tick in ticks)
    finally:
        for worker in workers:
            worker.close()

    print(f"{len(ticks)} ticks, {kills} kills, the latest decided {late:.1f} s after its moment")
    first = ticks[0].at
    assert [tick.at for tick in ticks] == [first + number for number in range(len(ticks))]
    assert len(ticks) >= seconds - 1
    assert Counter(tick.outcome for tick in ticks) == {TickOutcome.FIRED: len(ticks)}
    assert len({tick.task_id for tick in ticks}) == len(ticks)
    pairs = {tuple(line.split()) for line in (folder / "moments").read_text().splitlines()}
    assert pairs == {(f"{tick.at:.0f}", tick.task_id) for tick in ticks}
