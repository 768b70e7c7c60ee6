"""How much GPU memory processes hold, by NVIDIA's management library, where `tidegate[gpu]` is installed.

It counts by the process ids of the host: in a container with process ids of its own nothing is found, and a
limit never strikes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from tidegate.worker.children import process_tree

log = logging.getLogger("tidegate.worker")

AGAIN_SECONDS = 1.0
"""A reading is used for so long: a leak grows slowly, and the library takes milliseconds."""

VramByProcess = Callable[[], Mapping[int, int]]
"""Returns the bytes of GPU memory by process id, summed over all devices."""


def vram_reader() -> VramByProcess | None:
    """Return a function that reads GPU memory; None, told in the log, where there is no library or GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except ImportError:
        log.error("vram_limit is not kept: nvidia-ml-py is not installed (pip install 'tidegate[gpu]')")
        return None
    except pynvml.NVMLError as error:
        log.error("vram_limit is not kept: the GPUs cannot be read (%s)", error)
        return None

    def read() -> dict[int, int]:
        held: dict[int, int] = {}
        for device in devices:
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
                held[process.pid] = held.get(process.pid, 0) + (process.usedGpuMemory or 0)
        return held

    def safely() -> Mapping[int, int]:
        try:
            return read()
        except pynvml.NVMLError as error:  # a lost device must not cost the tasks on others
            log.warning("GPU memory cannot be read: %s", error)
            return {}

    return safely


class VramLimit:
    """Says whether a process tree holds too much GPU memory.

    Args:
        limit: Bytes.
        read: How it is read; None: there is no limit to keep.
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
        """Return the bytes a process and its descendants hold if they are more than the limit, else None."""
        if self._read is None:
            return None
        if self._clock() - self._read_at >= AGAIN_SECONDS:
            self._held, self._read_at = self._read(), self._clock()
        held = sum(self._held.get(one, 0) for one in (pid, *process_tree.descendants(pid)))
        return held if held > self._limit else None
