"""Records which task runs on the event loop, in a few bytes of memory shared by pool process and supervisor.

When the process dies or stalls, these bytes name the task whose code was running. Only that task is charged
with the crash. The other tasks of the process, which only waited, are requeued uncharged.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import uuid
from collections.abc import Coroutine, Generator
from typing import Any

from tidegate.domain.outcome import Fence

_LAYOUT = struct.Struct("!B16sQ")
_EMPTY = _LAYOUT.pack(0, b"", 0)

NO_CULPRIT = Fence("00000000-0000-0000-0000-000000000000", 0)
"""The culprit of a process that ended on request: no task. Some runs may not have been released in time, but
no task caused that."""


class CurrentTaskSlot:
    """The shared bytes, used by both processes.

    Args:
        fd: A file of at least one page; None creates one, to be passed to the child process.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _new_shared_file() if fd is None else fd
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)

    def set(self, name: bytes) -> None:
        """Record which run is on the event loop; `name` comes from `encode_fence`."""
        self._memory[: _LAYOUT.size] = name

    def clear(self) -> None:
        """Record that no run is on the event loop."""
        self._memory[: _LAYOUT.size] = _EMPTY

    def read(self) -> Fence | None:
        """Return the run on the event loop (of a dead process: the last one); None if there was none."""
        is_set, task_id, run = _LAYOUT.unpack_from(self._memory)
        return Fence(str(uuid.UUID(bytes=task_id)), run) if is_set else None

    def close(self) -> None:
        """Release the memory and the file."""
        self._memory.close()
        os.close(self.fd)


def encode_fence(fence: Fence) -> bytes:
    """Return the bytes that identify a run."""
    return _LAYOUT.pack(1, bytes.fromhex(fence.task_id.replace("-", "")), fence.run)


class TrackedCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that sets the current-task slot whenever it runs on the event loop.

    Args:
        inner: The coroutine itself.
        current_task: The slot to set.
        name: The run, from `encode_fence`.
    """

    __slots__ = ("_current_task", "_inner", "_name")

    def __init__(self, inner: Coroutine[Any, Any, None], current_task: CurrentTaskSlot, name: bytes) -> None:
        self._inner = inner
        self._current_task = current_task
        self._name = name

    def send(self, value: Any) -> Any:
        """Run until the next wait."""
        self._current_task.set(self._name)
        try:
            return self._inner.send(value)
        finally:
            self._current_task.clear()

    def throw(self, *error: Any) -> Any:
        """Throw an exception into the coroutine and run until the next wait."""
        self._current_task.set(self._name)
        try:
            return self._inner.throw(*error)
        finally:
            self._current_task.clear()

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._inner.__await__()


def _new_shared_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tidegate-current-task")
    else:
        fd, path = tempfile.mkstemp(prefix="tidegate-current-task-")
        os.unlink(path)  # noqa: PTH108 - both processes use the descriptor, not the name
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd
