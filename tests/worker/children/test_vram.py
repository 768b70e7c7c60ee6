"""GPU memory limits, with readings that the tests make up."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.worker.children import pool as child_pool
from tidegate.worker.children import process_tree
from tidegate.worker.children.pool import ChildPool, ChildRules
from tidegate.worker.children.vram import AGAIN_SECONDS, VramLimit, vram_reader

GIB = 1 << 30


class NVMLError(Exception):
    pass


def fake_library(processes: Callable[[int], list[tuple[int, int | None]]], *, works: bool = True) -> Any:
    """Return a `pynvml` with two devices."""
    library = types.ModuleType("pynvml")

    def init() -> None:
        if not works:
            raise NVMLError("Driver Not Loaded")

    values = {
        "NVMLError": NVMLError,
        "nvmlInit": init,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetComputeRunningProcesses": lambda device: [
            types.SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in processes(device)
        ],
    }
    for name, value in values.items():
        setattr(library, name, value)
    return library


def test_gpu_memory_of_a_process_is_summed_over_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[int, list[tuple[int, int | None]]] = {
        0: [(7, GIB), (8, 2 * GIB)],
        1: [(7, 3 * GIB), (9, None)],
    }
    monkeypatch.setitem(sys.modules, "pynvml", fake_library(held.__getitem__))
    read = vram_reader()
    assert read is not None
    assert read() == {7: 4 * GIB, 8: 2 * GIB, 9: 0}


def test_without_the_nvidia_library_an_error_is_logged_and_the_limit_is_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert vram_reader() is None
    assert "pip install 'tidegate[gpu]'" in caplog.text


def test_without_a_gpu_driver_an_error_is_logged_and_the_limit_is_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_library(lambda device: [], works=False))
    assert vram_reader() is None
    assert "Driver Not Loaded" in caplog.text


@pytest.mark.parametrize("in_container", [True, False])
def test_in_a_container_with_its_own_process_ids_a_warning_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_container: bool
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_library(lambda device: []))
    monkeypatch.setattr(process_tree, "has_own_process_ids", lambda: in_container)
    assert vram_reader() is not None
    assert ("start the container with --pid=host" in caplog.text) is in_container


def test_a_process_with_its_own_process_ids_is_recognized() -> None:
    code = "from tidegate.worker.children import process_tree; print(process_tree.has_own_process_ids())"
    inside = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    try:
        done = subprocess.run([*inside, sys.executable, "-c", code], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if not done.stdout:
        pytest.skip(f"a process with process ids of its own cannot be started here: {done.stderr.strip()}")
    assert done.stdout.strip() == "True"


def test_a_lost_gpu_device_fails_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(device: int) -> list[tuple[int, int | None]]:
        raise NVMLError("GPU is lost")

    monkeypatch.setitem(sys.modules, "pynvml", fake_library(lost))
    read = vram_reader()
    assert read is not None
    assert read() == {}
    assert "GPU is lost" in caplog.text


def test_a_reading_is_used_for_a_second() -> None:
    now, readings = 100.0, iter([{4711: 3 * GIB}, {4711: GIB}])
    watch = VramLimit(2 * GIB, lambda: next(readings), clock=lambda: now)
    assert watch.excess(4711) == 3 * GIB
    assert watch.excess(4711) == 3 * GIB
    now += AGAIN_SECONDS
    assert watch.excess(4711) is None


def test_a_limit_without_readings_has_no_effect() -> None:
    assert VramLimit(1, None).excess(os.getpid()) is None


@pytest.mark.anyio
async def test_a_child_over_its_gpu_limit_is_replaced_after_its_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    held: dict[int, int] = {}
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += AGAIN_SECONDS
        return now

    monkeypatch.setattr(child_pool, "ChildProcess", InstantChild)
    children = ChildPool("nothing:app", ChildRules(vram=VramLimit(2 * GIB, lambda: held, clock=clock)))
    async with children.acquire() as child:
        held[child.pid] = GIB
    async with children.acquire() as again:
        assert again is child
        held[child.pid] = 3 * GIB
        assert child.is_alive  # not while its task runs
    async with children.acquire() as fresh:
        assert fresh is not child
        await asyncio.sleep(0)
        assert not child.is_alive
    assert "is replaced: it holds 3072 MiB of GPU memory" in caplog.text
    await children.close()


class InstantChild(child_pool.ChildProcess):
    """A child process whose start runs nothing and takes no time."""

    numbers = iter(range(2**22 + 1, 2**22 + 100))  # above every process id

    def __init__(self, application: str, **options: Any) -> None:
        super().__init__(application, **options)
        self._number = next(self.numbers)
        self._lives = False

    @property
    def pid(self) -> int:
        return self._number

    @property
    def is_alive(self) -> bool:
        return self._lives

    async def start(self) -> None:
        self._lives = True

    async def close(self) -> None:
        self._lives = False
