"""Workers as if on several machines: killed outright, with clocks that differ by hours."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from pgserver import NotHereError, Server, unpacked
from postgres_support import SCHEMA, emptied
from support import WorkerProcess, all_final, ledger, load_app, starts, until, worker_process
from tidegate import State
from tidegate.internals import core_of
from tidegate.store.postgres.roles import role

HOURS = "3h"


@pytest.fixture
def url(postgres: Server) -> str:
    emptied(postgres)
    return postgres.url(user=role(SCHEMA, "worker"))


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Any:
    return load_app("bodies", tmp_path, monkeypatch, url=url)


@pytest.fixture(scope="session")
def fake_clock() -> Path:
    """The library that makes a process believe in another time."""
    installed = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if installed:
        return installed[0]
    try:
        return next(unpacked("libfaketime").glob("**/libfaketimeMT.so.1"))
    except (NotHereError, StopIteration) as error:
        pytest.skip(f"libfaketime is neither installed nor can be fetched: {error}")


def wrong_clock(library: Path, offset: str) -> dict[str, str]:
    """Return the environment of a machine whose clock is off."""
    return {"LD_PRELOAD": str(library), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


async def test_tasks_of_a_killed_machine_are_reclaimed_by_another(
    client: Any, tmp_path: Path, url: str
) -> None:
    with (
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url) as one,
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url) as other,
    ):
        handles = [await client.nap.enqueue(0.7) for _ in range(12)]
        ids = [handle.id for handle in handles]

        async def all_started() -> bool:
            return all(starts(tmp_path, task_id) for task_id in ids)

        await until(all_started)
        for pid in (*one.children(), one.pid):
            os.kill(pid, signal.SIGKILL)
        rows = await all_final(client.app, ids)
        assert other.process.poll() is None
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    for task_id in ids:
        assert len(starts(tmp_path, task_id)) == rows[task_id].run
    await client.app.aclose()


@pytest.mark.parametrize("offset", [f"+{HOURS}", f"-{HOURS}"])
async def test_a_worker_with_a_wrong_clock_does_not_use_it(
    client: Any, tmp_path: Path, url: str, fake_clock: Path, offset: str
) -> None:
    wrong = wrong_clock(fake_clock, offset)
    with (
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url, **wrong),
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url),
    ):
        store = await core_of(client.app).opened_store()

        async def both_work() -> bool:
            return len(await store.list_workers()) == 2

        await until(both_work)
        later = await client.nap.using(delay=3_600).enqueue(0.0)
        ids: list[str] = []

        async def both_ran() -> bool:
            ids.append((await client.nap.enqueue(0.05)).id)
            moments = [start["at"] for task_id in ids for start in starts(tmp_path, task_id)]
            return bool(moments) and max(moments) - min(moments) > 3_600

        await until(both_ran, what="both ran tasks, each by its own clock")
        rows = await all_final(client.app, ids)
        assert {row.run for row in rows.values()} == {1}, "no lease was cut short"
        assert (await later.status()).state is State.SCHEDULED, "nothing ran before its time"
        assert len(await store.list_workers()) == 2
    await client.app.aclose()


def at_most(moments: list[float], count: int, seconds: float) -> None:
    """Hold the starts of every window of so many seconds against the limit."""
    for at in moments:
        assert sum(at <= other < at + seconds for other in moments) <= count


RATE, BURST = 20, 10
"""Starts a second, and what a late look may catch up: half a second's worth."""


@pytest.mark.parametrize("back_end", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def test_a_limit_holds_for_four_processes_one_killed_and_one_with_a_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, back_end: str
) -> None:
    on_postgres = back_end == "postgres"
    url = request.getfixturevalue("url") if on_postgres else f"sqlite:///{tmp_path}/queue.db"
    # A SQLite file belongs to one machine, and that has one clock.
    wrong = wrong_clock(request.getfixturevalue("fake_clock"), "+20s") if on_postgres else {}
    client = load_app("paced", tmp_path, monkeypatch, url=url)

    def worker(**env: str) -> AbstractContextManager[WorkerProcess]:
        return worker_process("paced:app", tmp_path, TIDEGATE_DATABASE_URL=url, **env)

    async def all_work(count: int) -> None:
        async def look() -> bool:
            return len(await store.list_workers()) >= count

        await until(look, within=60, what=f"{count} workers are there")

    async def burst(tasks: int) -> list[float]:
        before = len(ledger(tmp_path))
        await client.app.enqueue_many([client.call.prepare() for _ in range(tasks)])

        async def done() -> bool:
            (row,) = await store.get_queue_stats()
            return row.ready + row.blocked + row.running + row.retrying == 0

        await until(done, within=60, what="all are done")
        return sorted(entry["at"] for entry in ledger(tmp_path)[before:])

    store = await core_of(client.app).opened_store()
    with worker() as one, worker(), worker(), worker(**wrong), ExitStack() as later:
        await all_work(4)

        async def some_began() -> bool:
            return len(ledger(tmp_path)) >= 20

        async def kill_and_replace() -> None:
            await until(some_began, what="some have started")
            for pid in (*one.children(), one.pid):
                os.kill(pid, signal.SIGKILL)
            later.enter_context(worker())

        first, _ = await asyncio.gather(burst(100), kill_and_replace())
        await asyncio.sleep(1.5)  # idle: what is not used then is not saved up
        second = await burst(40)
        assert len({entry["pid"] for entry in ledger(tmp_path)}) >= 4, "all of them took part"
    assert len(first) >= 100
    assert len(second) == 40
    for moments in (first, second):
        at_most(moments, RATE + BURST + 2, 1.0)
    assert (len(first) - 1) / (first[-1] - first[0]) >= 0.7 * RATE, "the limit is used"
    await client.app.aclose()
