"""Reads the GPU memory of processes through NVIDIA's management library, if `tidegate[gpu]` is installed.

The library uses the process ids of the host. In a container with its own process ids nothing is found, and
the limit has no effect: a warning says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from tidegate.worker.children import process_tree

log = logging.getLogger("tidegate.worker")

AGAIN_SECONDS = 1.0
"""A reading is reused for this long: leaks grow slowly, and a reading takes milliseconds."""

VramByProcess = Callable[[], Mapping[int, int]]
"""A function that returns the bytes of GPU memory by process id, summed over all devices."""


def vram_reader() -> VramByProcess | None:
    """Return a function that reads GPU memory. Without the library or a GPU, log an error and return None."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except ImportError:
        log.error("vram_limit has no effect: nvidia-ml-py is not installed (pip install 'tidegate[gpu]')")
        return None
    except pynvml.NVMLError as error:
        log.error("vram_limit has no effect: the GPUs cannot be read (%s)", error)
        return None
    if process_tree.has_own_process_ids():
        log.warning(
            "vram_limit has no effect if this is a container with process ids of its own: NVIDIA's library "
            "reports those of the host (start the container with --pid=host)"
        )

    def read() -> dict[int, int]:
        held: dict[int, int] = {}
        for device in devices:
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
                held[process.pid] = held.get(process.pid, 0) + (process.usedGpuMemory or 0)
        return held

    def safely() -> Mapping[int, int]:
        try:
            return read()
        except pynvml.NVMLError as error:  # a lost device must not fail the tasks on other devices
            log.warning("GPU memory cannot be read: %s", error)
            return {}

    return safely


class VramLimit:
    """Checks whether a process tree uses too much GPU memory.

    Args:
        limit: Bytes.
        read: Reads the GPU memory; None: it cannot be read, and nothing is checked.
        clock: Monotonic seconds.
    """

    def __init__(
        self, limit: int, read: VramByProcess | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._read = read
        self._clock = clock
        self._read_at = float("-inf")
        self._held: Mapping[int, int] = {}

    def excess(self, pid: int) -> int | None:
        """Return the bytes that a process and its descendants use if more than the limit, else None."""
        if self._read is None:
            return None
        if self._clock() - self._read_at >= AGAIN_SECONDS:
            self._held, self._read_at = self._read(), self._clock()
        tree = (pid, *process_tree.descendants(pid))
        held = sum(self._held.get(member, 0) for member in tree)
        return held if held > self._limit else None
