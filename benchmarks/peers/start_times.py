"""When each task's function started: one number per task in a file that the harness and all workers map.

The clock is the system's monotonic one, the same in all processes of a machine. The first line of every
function is `began(number)`, so that all queues pay the same for being measured. Only the standard library:
this runs inside the peers' own environment.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from array import array
from functools import cache
from pathlib import Path

VARIABLE = "BENCH_MOMENTS"
_SLOT = struct.Struct("<d")


def began(number: int) -> None:
    """Record that the function of task `number` starts now."""
    _SLOT.pack_into(_mapped(), number * _SLOT.size, time.monotonic())


def begun_at(number: int) -> float:
    """Return when the function of task `number` started; 0.0 if it has not."""
    moment: float = _SLOT.unpack_from(_mapped(), number * _SLOT.size)[0]
    return moment


@cache
def _mapped() -> mmap.mmap:
    with open(os.environ[VARIABLE], "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


class StartTimes:
    """The harness's side: a file for each worker process, all of `count` slots."""

    def __init__(self, directory: Path, *, count: int, workers: int = 1) -> None:
        """Make the files, with empty slots."""
        self.paths = [directory / f"moments-{number}" for number in range(workers)]
        self._count = count
        for path in self.paths:
            path.write_bytes(bytes(count * _SLOT.size))

    def begun(self) -> list[int]:
        """Return how many functions have started in each worker."""
        return [self._count - slots.count(0.0) for slots in self._read()]

    def all(self) -> list[float]:
        """Return when each function started; all have started."""
        merged = [max(slots) for slots in zip(*self._read(), strict=True)]
        assert all(merged), "some bodies began in two processes, and others in none"
        return merged

    def rate(self) -> float:
        """Return the starts per second, from when every worker had started one; all have started."""
        since = max(min(filter(None, slots)) for slots in self._read())
        moments = self.all()
        return sum(moment > since for moment in moments) / (max(moments) - since)

    def _read(self) -> list[array[float]]:
        return [array("d", path.read_bytes()) for path in self.paths]
