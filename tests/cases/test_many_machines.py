"""C30 and C31 on PostgreSQL: workers of several machines, killed outright, their clocks hours apart."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pgserver import NotHereError, Server, unpacked
from postgres_support import SCHEMA, emptied
from support import all_final, load_app, starts, until, worker_process
from tidegate import State
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


async def test_what_a_killed_machine_ran_is_taken_up_by_another(
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
async def test_a_worker_whose_clock_is_hours_off_decides_nothing_by_it(
    client: Any, tmp_path: Path, url: str, fake_clock: Path, offset: str
) -> None:
    wrong = wrong_clock(fake_clock, offset)
    with (
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url, **wrong),
        worker_process("bodies:app", tmp_path, TIDEGATE_DATABASE_URL=url),
    ):
        store = await client.app.opened_store()

        async def both_work() -> bool:
            return len(await store.workers()) == 2

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
        assert len(await store.workers()) == 2
    await client.app.aclose()
