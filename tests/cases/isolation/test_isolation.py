"""Functions that hang, crash or exit in child processes harm no other task."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import all_final, load_app, runs_of, until, worker_process
from tidegate import CancelStatus, State

pytestmark = pytest.mark.anyio


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return load_app("hostile", tmp_path, monkeypatch)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Any]:
    with worker_process("hostile:app", tmp_path, OUT=str(tmp_path)) as process:
        yield process


def noted(directory: Path, name: str) -> list[Any]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_a_child_that_dies_costs_only_its_own_task_and_the_pool_heals(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    siblings = [await client.pause.enqueue(1.0) for _ in range(3)]
    dying = {how: await client.die.enqueue(how) for how in ("signal", "exit 1", "exit 0", "segfault")}
    rows = await all_final(client.app, [handle.id for handle in dying.values()])
    assert {(row.state, row.reason) for row in rows.values()} == {(State.DEAD, "crash")}
    words = {"signal": "signal 9", "exit 1": "exit code 1", "exit 0": "exit code 0", "segfault": "signal 11"}
    for how, handle in dying.items():
        runs = await runs_of(handle)
        assert words[how] in runs[0].message, how
        assert [run.charge for run in runs] == ["crash"] * 3
    after = [await client.normal.enqueue(number) for number in range(20)]
    assert [await handle.result(10) for handle in after] == list(range(20))
    for sibling in siblings:
        assert await sibling.result(10) == "rested"
        assert (await sibling.status()).run == 1
    assert worker.process.poll() is None
    assert len(worker.children()) == 1
    await client.app.aclose()


async def test_what_is_no_exception_is_a_failed_run_in_a_child_too(client: Any, worker: Any) -> None:
    names = {
        "exit 0": "SystemExit",
        "exit 3": "SystemExit",
        "interrupt": "KeyboardInterrupt",
        "generator": "",
        "base": "",
    }
    for how, name in names.items():
        handle, behind = await client.leave.enqueue(how), await client.normal.enqueue(7)
        assert await behind.result(10) == 7, how
        row = (await all_final(client.app, [handle.id]))[handle.id]
        assert row.state is State.DEAD, how
        assert name in (await runs_of(handle))[0].error_class, how
    await client.app.aclose()


@pytest.mark.parametrize(
    "how",
    [
        "except BaseException",
        "regex",
        *(pytest.param(how, marks=pytest.mark.slow) for how in ("sleep", "recv", "except Exception")),
    ],
)
async def test_unresponsive_code_ends_at_its_time_limit(
    client: Any, worker: Any, tmp_path: Path, how: str
) -> None:
    first = await client.normal.enqueue(1)
    await first.result(15)
    handles = [await client.deaf.enqueue(how) for _ in range(6)]
    rows = await all_final(client.app, [handle.id for handle in handles], within=20)
    assert {(row.state, row.reason) for row in rows.values()} == {(State.DEAD, "timeout")}
    for row in rows.values():
        assert row.finished_at - row.started_at < 0.6 + 0.4 + 10, "its wait for a fresh process included"
    after = [await client.normal.enqueue(number) for number in range(8)]
    assert [await handle.result(15) for handle in after] == list(range(8))
    assert not any(alive(pid) for pid in noted(tmp_path, "pids"))
    await client.app.aclose()


async def test_a_time_limit_ends_the_whole_process_tree(client: Any, worker: Any, tmp_path: Path) -> None:
    for how in ("run", "shell", "new session", "deaf to signals", "full pipe"):
        earlier = len(noted(tmp_path, "pids"))
        handle = await client.spawn.enqueue(how)
        rows = await all_final(client.app, [handle.id], within=15)
        assert (rows[handle.id].reason, rows[handle.id].state) == ("timeout", State.DEAD), how
        pids = noted(tmp_path, "pids")[earlier:]
        assert pids, how

        async def gone(pids: list[int] = pids) -> bool:
            return not any(alive(pid) for pid in pids)

        await until(gone, within=5, what=f"everything it started is gone: {how}")
    await client.app.aclose()


@pytest.mark.timeout(120)
async def test_a_task_over_its_memory_limit_is_killed_alone_and_the_amount_is_recorded(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    for how in ("at once", "slowly", "grandchild", "MemoryError"):
        handle = await client.eat.enqueue(how)
        meanwhile = [await client.normal.enqueue(number) for number in range(3)]
        assert [await one.result(15) for one in meanwhile] == [0, 1, 2], how
        rows = await all_final(client.app, [handle.id], within=30)
        runs = await runs_of(handle)
        assert rows[handle.id].state is State.DEAD, how
        if how == "MemoryError":
            assert len(runs) == 3
            assert runs[0].error_class == "MemoryError"
        else:
            assert "memory limit 300 MiB" in runs[0].message, how
            assert [run.charge for run in runs] == ["crash"] * len(runs), how
            assert len(runs) == 2, f"{how}: one retry, no more"
    assert worker.process.poll() is None
    await client.app.aclose()


async def test_children_are_fresh_interpreters_and_are_reused(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    handles = [await client.use_cuda.enqueue() for _ in range(12)]
    pids = [await handle.result(15) for handle in handles]
    assert 1 <= len(set(pids)) <= 4
    assert set(noted(tmp_path, "child_starts")) >= set(pids)
    await client.app.aclose()


async def test_a_process_with_a_broken_gpu_is_replaced_before_the_next_task(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("hostile:app", tmp_path, OUT=str(tmp_path), CONCURRENCY="1"):
        first = await client.maybe_broken.enqueue(0)
        others = [await client.maybe_broken.enqueue(number) for number in range(1, 6)]
        pids = {await handle.result(15) for handle in others}
        assert len(pids) == 1
        assert (await all_final(client.app, [first.id]))[first.id].state is State.DEAD
    await client.app.aclose()


async def test_a_child_process_runs_no_other_task_once_one_asked_for_its_replacement(
    client: Any, tmp_path: Path
) -> None:
    with worker_process("hostile:app", tmp_path, OUT=str(tmp_path), CONCURRENCY="1"):
        before = await (await client.maybe_broken.enqueue(1)).result(10)
        assert await (await client.replace_me.enqueue()).result(10) == before
        assert await (await client.maybe_broken.enqueue(1)).result(10) != before
    await client.app.aclose()


@pytest.mark.parametrize("how", ["ends", "fails"])
async def test_a_pool_process_whose_task_asks_for_it_lets_its_others_end_and_is_replaced(
    client: Any, worker: Any, tmp_path: Path, how: str
) -> None:
    neighbour = await client.pause.enqueue(1.0)

    async def is_running() -> bool:
        return (await neighbour.status()).state is State.RUNNING

    await until(is_running)
    (before,) = worker.children()
    await all_final(client.app, [(await client.replace_my_pool_process.enqueue(how)).id])
    assert await neighbour.result(10) == "rested"
    assert (await neighbour.status()).run == 1
    after = await (await client.replace_my_pool_process.enqueue("ends")).result(20)
    assert after != before
    assert f"process {before} has ended: asked by the task: I do not feel well" in worker.log()
    assert "the next starts in" not in worker.log(), "it counts as no crash"
    await client.app.aclose()


async def test_each_process_sees_one_gpu_in_turn(client: Any, tmp_path: Path) -> None:
    with worker_process("hostile:app", tmp_path, OUT=str(tmp_path), GPUS="0,1", CONCURRENCY="2"):
        handles = [await client.gpu.enqueue() for _ in range(4)]
        seen = [await handle.result(15) for handle in handles]
    assert set(seen) == {"0", "1"}
    await client.app.aclose()


async def test_coroutines_run_in_children_too_with_progress_and_retry(client: Any, worker: Any) -> None:
    handles = [await client.async_in_child.enqueue(number) for number in range(6)]
    results = [await handle.result(15) for handle in handles]
    assert [number for number, _ in results] == list(range(6))
    assert all(pid != worker.children()[0] for _, pid in results)
    progress = (await handles[5].status()).progress
    assert progress is not None
    assert progress.done == 5
    again = await client.ask_again.enqueue()
    assert await again.result(10) == 2
    assert [run.charge for run in await runs_of(again)] == ["nothing", ""]
    await client.app.aclose()


async def test_a_cancel_reaches_a_child_and_kills_it_after_its_grace(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    for count, function in enumerate((client.listens, client.deaf_to_cancel), 1):
        handle = await function.enqueue()

        async def listening(count: int = count) -> bool:
            return len(noted(tmp_path, "listening")) == count

        await until(listening)
        asked_at = time.monotonic()
        assert await handle.cancel() is CancelStatus.REQUESTED
        rows = await all_final(client.app, [handle.id])
        assert time.monotonic() - asked_at < 3
        assert rows[handle.id].state is State.CANCELLED
    await client.app.aclose()


async def test_a_forced_cancel_ends_a_function_that_ignores_cancels(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    handle = await client.deaf_forever.enqueue()

    async def listening() -> bool:
        return bool(noted(tmp_path, "listening"))

    await until(listening)
    assert await handle.cancel() is CancelStatus.REQUESTED
    client_with_transport = await client.pause.enqueue(0.6)
    await client_with_transport.result(10)
    assert (await handle.status()).state is State.RUNNING
    assert await handle.cancel(force=True) is CancelStatus.REQUESTED
    rows = await all_final(client.app, [handle.id], within=5)
    assert rows[handle.id].state is State.CANCELLED
    assert not any(alive(pid) for pid in noted(tmp_path, "listening"))
    await client.app.aclose()


async def test_a_task_that_kills_the_pool_process_is_dead_after_its_crash_limit_and_alone_at_the_last(
    client: Any, worker: Any, tmp_path: Path
) -> None:
    handle = await client.async_poison.enqueue()
    rows = await all_final(client.app, [handle.id], within=40)
    assert (rows[handle.id].state, rows[handle.id].reason) == (State.DEAD, "crash")
    reported = noted(tmp_path, "poison")
    assert [run for run, _ in reported] == [1, 2, 3]
    assert len({pid for _, pid in reported}) == 3
    after = await client.normal.enqueue(1)
    assert await after.result(15) == 1
    await client.app.aclose()


async def test_children_end_with_their_worker(client: Any, worker: Any, tmp_path: Path) -> None:
    await (await client.normal.enqueue(1)).result(15)
    children = noted(tmp_path, "child_starts")
    assert any(alive(pid) for pid in children)
    worker.process.kill()

    async def gone() -> bool:
        return not any(alive(pid) for pid in noted(tmp_path, "child_starts"))

    await until(gone, within=10, what="no child outlives its worker")
    await client.app.aclose()
