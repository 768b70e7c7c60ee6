"""Real worker processes: killed, stopped, and without their supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support import all_final, ledger, load_app, starts, until, worker_process
from tidegate import State
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task functions of `apps/bodies.py`, enqueueing into this test's own file."""
    return load_app("bodies", tmp_path, monkeypatch)


async def started(directory: Path, task_id: str, times: int = 1) -> list[dict[str, Any]]:
    async def look() -> Any:
        found = starts(directory, task_id)
        return found if len(found) >= times else None

    found: list[dict[str, Any]] = await until(look, what=f"{times} starts of {task_id}")
    return found


async def test_a_task_longer_than_its_lease_runs_once(client: Any, tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path), worker_process("bodies:app", tmp_path):
        handle = await client.nap.enqueue(3.0)
        later = await client.nap.using(delay=0.5).enqueue(1.5)
        assert await handle.result(20) == "slept"
        assert await later.result(20) == "slept"
    assert len(starts(tmp_path, handle.id)) == 1
    assert len(starts(tmp_path, later.id)) == 1
    await client.app.aclose()


@pytest.mark.parametrize("body", [pytest.param("block_loop", marks=pytest.mark.slow), "spin"])
async def test_code_that_blocks_the_loop_loses_no_lease(client: Any, tmp_path: Path, body: str) -> None:
    with worker_process("bodies:app", tmp_path), worker_process("bodies:app", tmp_path):
        handle = await getattr(client, body).enqueue(2.5)
        neighbours = [await client.nap.enqueue(0.1) for _ in range(3)]
        await handle.result(20)
        for neighbour in neighbours:
            await neighbour.result(20)
    for one in (handle, *neighbours):
        assert len(starts(tmp_path, one.id)) == 1
    await client.app.aclose()


async def test_tasks_of_a_killed_pool_process_run_again_at_once_and_are_not_charged(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path) as worker:
        handle = await client.nap.enqueue(1.0)
        first = (await started(tmp_path, handle.id))[0]
        os.kill(first["pid"], signal.SIGKILL)
        assert await handle.result(20) == "slept"
        assert worker.process.poll() is None
    row = await handle.status()
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert (row.attempts, row.crashes) == (0, 1)
    assert "signal 9" in runs[0].why
    assert len(starts(tmp_path, handle.id)) == 2
    await client.app.aclose()


async def test_another_worker_reclaims_what_ran_when_everything_was_killed(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path) as worker:
        handle = await client.nap.enqueue(5.0)
        first = (await started(tmp_path, handle.id))[0]
        with worker_process("bodies:app", tmp_path):

            async def two_workers() -> bool:
                return len(await core_of(client.app).store.list_workers()) == 2

            await until(two_workers)
            killed_at = time.time()
            os.killpg(first["pid"], signal.SIGSTOP)  # or it gives its task back before it dies
            worker.signal(signal.SIGKILL)
            os.killpg(first["pid"], signal.SIGKILL)
            assert await handle.result(20) == "slept"
    second = starts(tmp_path, handle.id)[1]
    assert 0.3 <= second["at"] - killed_at < 10, "the literal bound is held by the slow twin"
    row = await handle.status()
    assert (row.attempts, row.losses) == (0, 1)
    await client.app.aclose()


@pytest.mark.slow
async def test_a_task_of_a_dead_worker_starts_again_within_lease_and_reap_interval(
    client: Any, tmp_path: Path
) -> None:
    with (
        worker_process("bodies:app", tmp_path, LEASE="5") as worker,
        worker_process("bodies:app", tmp_path, LEASE="5") as other,
    ):
        await asyncio.sleep(7.0)  # both reapers have been passing for a whole lease
        handle = await client.nap.enqueue(30.0)
        first = (await started(tmp_path, handle.id))[0]
        holder = worker if first["pid"] in worker.children() else other
        killed_at = time.time()
        os.killpg(first["pid"], signal.SIGSTOP)
        holder.signal(signal.SIGKILL)
        os.killpg(first["pid"], signal.SIGKILL)
        second = (await started(tmp_path, handle.id, 2))[1]
    assert 2.0 <= second["at"] - killed_at <= 5 + 2 + 1
    await client.app.aclose()


async def test_pool_processes_end_soon_after_their_supervisor_died_and_release_their_tasks(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path) as worker:
        handle = await client.nap.enqueue(30.0)
        pid = (await started(tmp_path, handle.id))[0]["pid"]
        worker.signal(signal.SIGKILL)

        async def gone() -> bool:
            return not _alive(pid)

        await until(gone, within=6.0, what="the orphaned pool process ends")
    row = await handle.status()
    assert row.state is State.READY
    assert (row.attempts, row.releases) == (0, 1)
    await client.app.aclose()


async def test_a_worker_started_under_the_name_of_a_dead_one_does_not_keep_its_tasks(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path) as worker:
        handle = await client.nap.enqueue(1.0)
        first = (await started(tmp_path, handle.id))[0]
        worker.signal(signal.SIGKILL)
        os.killpg(first["pid"], signal.SIGKILL)
    with worker_process("bodies:app", tmp_path):
        assert await handle.result(20) == "slept"
    assert len(starts(tmp_path, handle.id)) == 2
    await client.app.aclose()


async def test_a_task_that_kills_its_process_each_time_is_dead_at_its_crash_limit(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path):
        neighbours = [await client.nap.enqueue(1.5) for _ in range(5)]
        await started(tmp_path, neighbours[-1].id)
        poison = await client.kill_own_process.enqueue(99)
        rows = await all_final(client.app, [poison.id])
        once = await client.kill_once_and_for_all.enqueue()
        rows |= await all_final(client.app, [once.id])
        for neighbour in neighbours:
            assert await neighbour.result(20) == "slept"
            counters = await neighbour.status()
            assert (counters.attempts, counters.crashes) == (0, 0)
            assert counters.releases >= 1
        fine = await client.add.enqueue(1, 2)
        assert await fine.result(20) == 3
    assert {(row.state, row.reason) for row in rows.values()} == {(State.DEAD, "crash")}
    assert len(starts(tmp_path, poison.id)) == 3
    assert len(starts(tmp_path, once.id)) == 1
    await client.app.aclose()


async def test_a_coroutine_that_will_not_stop_ends_its_process_without_charging_others(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path):
        neighbour = await client.nap.enqueue(1.5)
        first = (await started(tmp_path, neighbour.id))[0]
        stubborn = await client.swallow.enqueue()
        rows = await all_final(client.app, [stubborn.id])
        assert await neighbour.result(20) == "slept"
        after = await client.nap.enqueue(0.0)
        assert await after.result(20) == "slept"
    assert rows[stubborn.id].reason == "timeout"
    assert (await neighbour.status()).run == 1
    assert starts(tmp_path, after.id)[0]["pid"] != first["pid"]
    await client.app.aclose()


async def test_sigterm_lets_short_tasks_finish_and_releases_long_ones_uncharged(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("bodies:app", tmp_path, GRACE="1.5") as worker:
        short, long = await client.nap.enqueue(0.5), await client.nap.enqueue(60.0)
        await started(tmp_path, short.id)
        await started(tmp_path, long.id)
        asked_at = time.monotonic()
        worker.signal(signal.SIGTERM)

        async def reported() -> bool:
            return "takes no more tasks" in worker.log()

        await until(reported)
        queued = await client.nap.enqueue(0.0)
        assert worker.wait() == 0
        assert 1.0 < time.monotonic() - asked_at < 6.0
    rows = await core_of(client.app).store.read_tasks([short.id, long.id, queued.id])
    assert rows[short.id].state is State.SUCCEEDED
    assert rows[long.id].state is State.READY
    assert (rows[long.id].counters.attempts, rows[long.id].counters.releases) == (0, 1)
    assert rows[queued.id].run == 0
    assert await core_of(client.app).store.list_workers() == []
    await client.app.aclose()


async def test_a_second_signal_releases_everything_now(client: Any, tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path, GRACE="60") as worker:
        handle = await client.nap.enqueue(60.0)
        await started(tmp_path, handle.id)
        worker.signal(signal.SIGTERM)

        async def draining() -> bool:
            return "draining" in worker.log()

        await until(draining)
        asked_at = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert time.monotonic() - asked_at < 5.0
    assert (await handle.status()).state is State.READY
    await client.app.aclose()


async def test_an_idle_worker_stops_at_once(client: Any, tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path) as worker:

        async def registered() -> bool:
            return len(await (await core_of(client.app).opened_store()).list_workers()) == 1

        await until(registered)
        worker.signal(signal.SIGINT)
        asked_at = time.monotonic()
        assert worker.wait() == 0
        assert time.monotonic() - asked_at < 3.0
    await client.app.aclose()


async def test_scratch_is_removed_also_after_a_kill(client: Any, tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path):
        handle = await client.leave_scratch.enqueue(True)
        path = Path(await handle.result(20))
    left = [found for found in (tmp_path / "scratch").rglob("*") if found.is_file()]
    assert left == []
    assert not path.exists()
    await client.app.aclose()


async def test_an_unresponsive_process_is_killed_and_its_task_reclaimed(client: Any, tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path, STALL="1.0"):
        handle = await client.nap.enqueue(2.0)
        first = (await started(tmp_path, handle.id))[0]
        os.kill(first["pid"], signal.SIGSTOP)
        assert await handle.result(20) == "slept"
    assert len(starts(tmp_path, handle.id)) == 2
    runs = [entry for entry in await handle.history() if entry.kind == "run"]
    assert "stall" in runs[0].why
    await client.app.aclose()


def test_an_application_that_cannot_be_imported_stops_the_worker_with_its_traceback(tmp_path: Path) -> None:
    with worker_process("bodies:app", tmp_path, BREAK_IMPORT="1") as worker:
        assert worker.wait() == 78
        assert "refuses to be imported" in worker.log()


async def test_several_processes_share_the_work_and_start_each_task_once(client: Any, tmp_path: Path) -> None:
    with (
        worker_process("bodies:app", tmp_path, PROCESSES="2", CONCURRENCY="5"),
        worker_process("bodies:app", tmp_path, CONCURRENCY="5"),
    ):
        ids = await client.app.enqueue_many(client.nap.prepare(0.01) for _ in range(300))
        rows = await all_final(client.app, ids)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    began = [entry for entry in ledger(tmp_path) if entry["what"] == "start"]
    assert len(began) == 300
    assert len({entry["pid"] for entry in began}) > 1
    await client.app.aclose()


def _alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
