"""Who has the event loop right now: a few bytes of memory that pool process and supervisor share.

When the process dies or stalls, they name the task whose code was running. It alone is charged; its
neighbours, which only waited, go back uncharged.
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
"""The culprit of an end that was asked for. Runs it left behind could not be given back in time; no task is
to blame."""


class CurrentTaskSlot:
    """The shared bytes, seen from either side.

    Args:
        fd: A file of at least one page; None: make one, to be passed on to the child.
    """

    def __init__(self, fd: int | None = None) -> None:
        self.fd = _new_shared_file() if fd is None else fd
        self._memory = mmap.mmap(self.fd, mmap.PAGESIZE)

    def set(self, name: bytes) -> None:
        """Write who has the loop now; `name` comes from `encode_fence`."""
        self._memory[: _LAYOUT.size] = name

    def clear(self) -> None:
        """Write that nobody's task has the loop."""
        self._memory[: _LAYOUT.size] = _EMPTY

    def read(self) -> Fence | None:
        """Return the run that has the loop, or had it when the process died; None: nobody's task had."""
        taken, task_id, run = _LAYOUT.unpack_from(self._memory)
        return Fence(str(uuid.UUID(bytes=task_id)), run) if taken else None

    def close(self) -> None:
        """Let go of the memory and the file."""
        self._memory.close()
        os.close(self.fd)


def encode_fence(fence: Fence) -> bytes:
    """Return a run as the bytes that name it."""
    return _LAYOUT.pack(1, uuid.UUID(fence.task_id).bytes, fence.run)


class TrackedCoroutine(Coroutine[Any, Any, None]):
    """A coroutine that has the spot whenever it has the loop.

    Args:
        inner: The coroutine itself.
        current_task: Where to write.
        name: Who it runs for.
    """

    __slots__ = ("_current_task", "_inner", "_name")

    def __init__(self, inner: Coroutine[Any, Any, None], current_task: CurrentTaskSlot, name: bytes) -> None:
        self._inner = inner
        self._current_task = current_task
        self._name = name

    def send(self, value: Any) -> Any:
        """Go on until the next wait."""
        self._current_task.set(self._name)
        try:
            return self._inner.send(value)
        finally:
            self._current_task.clear()

    def throw(self, *error: Any) -> Any:
        """Go on with an exception until the next wait."""
        self._current_task.set(self._name)
        try:
            return self._inner.throw(*error)
        finally:
            self._current_task.clear()

    def close(self) -> None:
        """End without going on."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._inner.__await__()


def _new_shared_file() -> int:
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("tidegate-current-task")
    else:
        fd, path = tempfile.mkstemp(prefix="tidegate-current-task-")
        os.unlink(path)  # noqa: PTH108 - the name is not needed once both have the file
    os.ftruncate(fd, mmap.PAGESIZE)
    return fd
