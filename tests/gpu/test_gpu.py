"""Child processes on a real GPU: which one they see, how much memory they may hold, and what an error does.

`make test-gpu` runs them. They allocate up to 2 GiB of the first GPU.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cuda
from support import APPS, all_final, until, worker_process
from tidegate import State
from tidegate.worker.children.vram import vram_reader

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(300),  # a driver that was not in use may need a long time to start
]

MIB = 1 << 20
TESTS = Path(__file__).parents[1]


def gpu_worker(directory: Path, **env: str) -> Any:
    """Start a worker on `apps/on_gpu.py`."""
    path = os.pathsep.join([str(TESTS), str(APPS), os.environ.get("PYTHONPATH", "")])
    return worker_process("on_gpu:app", directory, PYTHONPATH=path, **env)


def held_by(pid: int) -> int:
    """Return the bytes of GPU memory that a process holds, as `vram_limit` reads them."""
    read = vram_reader()
    assert read is not None
    return read().get(pid, 0)


def require_host_process_ids() -> None:
    """Skip the test where the driver counts by other process ids than ours."""
    code = "import cuda, os, sys; cuda.allocate(1 << 20); print(os.getpid(), flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        is_found = held_by(int(process.stdout.readline())) > 0
        process.communicate()
    if not is_found:
        pytest.skip(
            "NVIDIA's library reports other process ids than ours: this is a container without --pid=host"
        )


@pytest.mark.parametrize("by", ["number", "UUID"])
async def test_a_child_process_sees_the_one_gpu_it_was_assigned(client: Any, tmp_path: Path, by: str) -> None:
    every = cuda.device_uuids()
    with gpu_worker(tmp_path, GPUS="0" if by == "number" else every[-1]):
        _, seen = await (await client.visible.enqueue()).result(60)
    assert len(seen) == 1
    assert seen[0] in every if by == "number" else seen == every[-1:]
    await client.app.aclose()


async def test_two_child_processes_see_two_different_gpus(client: Any, tmp_path: Path) -> None:
    every = cuda.device_uuids()
    if len(every) < 2:
        pytest.skip("there is one GPU only")
    with gpu_worker(tmp_path, GPUS=",".join(every[:2]), CONCURRENCY="2"):
        seen: dict[int, list[str]] = {}

        async def both_have_run() -> bool:
            handles = [await client.visible.enqueue() for _ in range(4)]
            seen.update([await handle.result(60) for handle in handles])
            return len(seen) == 2

        await until(both_have_run, within=60, what="two child processes have run a task")
    assert sorted(map(tuple, seen.values())) == sorted((uuid,) for uuid in every[:2])
    await client.app.aclose()


async def test_a_child_process_that_holds_too_much_gpu_memory_is_replaced_and_the_memory_is_free_again(
    client: Any, tmp_path: Path
) -> None:
    require_host_process_ids()
    with gpu_worker(tmp_path, GPUS=cuda.device_uuids()[0], VRAM_LIMIT="1536MiB") as worker:
        first = await (await client.hold.enqueue(64 * MIB)).result(60)
        assert held_by(first) >= 64 * MIB
        assert await (await client.process.enqueue()).result(60) == first, "it holds less than the limit"
        assert await (await client.hold.enqueue(2048 * MIB)).result(60) == first

        async def is_replaced() -> bool:  # GPU memory is read at most once a second
            return await (await client.process.enqueue()).result(60) != first

        await until(is_replaced, within=60, what="another child process runs the tasks")

        async def is_free() -> bool:
            return held_by(first) == 0

        await until(is_free, within=60, what="the replaced process holds no GPU memory")
        assert f"child process {first} is replaced: it holds" in worker.log()
        assert "MiB of GPU memory" in worker.log()
    await client.app.aclose()


@pytest.mark.parametrize("how", ["the driver", "torch"])
async def test_a_child_process_is_replaced_after_a_cuda_out_of_memory_error(
    client: Any, tmp_path: Path, how: str
) -> None:
    if how == "torch" and find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    with gpu_worker(tmp_path, GPUS=cuda.device_uuids()[0]) as worker:
        before = await (await client.process.enqueue()).result(60)
        task = client.exhaust if how == "the driver" else client.exhaust_with_torch
        handle = await task.enqueue()
        row = (await all_final(client.app, [handle.id], within=120))[handle.id]
        assert row.state is State.DEAD
        assert "CUDA out of memory" in (await handle.history())[-1].message
        assert await (await client.process.enqueue()).result(60) != before
        assert f"child process {before} is replaced: fatal error: CUDA out of memory" in worker.log()
    await client.app.aclose()


def test_a_worker_with_process_ids_of_its_own_finds_its_gpu_memory_or_warns(
    gpu: None, tmp_path: Path
) -> None:
    """A process with ids of its own, as in a container, either reads what it holds or logs a warning."""
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*inside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("unshare cannot start a process with process ids of its own here")
    code = (
        "import cuda, logging, os; logging.basicConfig(); cuda.allocate(64 << 20)\n"
        "from tidegate.worker.children.vram import vram_reader\n"
        "print(os.getpid(), vram_reader()().get(os.getpid(), 0))"
    )
    done = subprocess.run(
        [*inside, sys.executable, "-c", code], cwd=TESTS, check=True, capture_output=True, text=True
    )
    pid, held = map(int, done.stdout.split())
    logging.getLogger(__name__).info("process %d of its own namespace finds %d bytes", pid, held)
    assert pid < os.getpid(), "it has process ids of its own"
    assert held >= 64 * MIB or "--pid=host" in done.stderr
