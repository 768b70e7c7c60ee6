"""The queue of writers: a blocking `flock` on a side file.

SQLite's own busy handler polls, so with several writers some wait long by chance. The kernel wakes waiters of
a lock in order (p99 with 12 writers: 20 ms instead of 106 ms). Correctness does not depend on this lock:
`BEGIN IMMEDIATE` still excludes every other writer.

The lock needs a side file because closing any descriptor of the database file would drop SQLite's locks
(POSIX locks belong to the process): https://sqlite.org/howtocorrupt.html The side file also has one line
about the database file, for `file_identity.py`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MOST_BYTES = 512


class FileLock:
    """An exclusive lock between processes, and between threads that each use their own object.

    The holder may take it again, and must release it as often.

    Args:
        path: The side file; created with mode 0600 if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock without a time limit, and hold it in the `with` block.

        Raises:
            OSError: The side file cannot be created or opened.
        """
        if not self._depth:
            self._take(fcntl.LOCK_EX)
        self._depth += 1
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def held_if_free(self) -> Iterator[bool]:
        """Hold the lock in the `with` block if it is free; yield whether it is held."""
        try:
            if not self._depth:
                self._take(fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        self._depth += 1
        try:
            yield True
        finally:
            self._release()

    def read(self) -> bytes:
        """Return the content of the side file. The lock is not needed.

        Raises:
            OSError: The side file cannot be created or opened.
        """
        return os.pread(self._opened(), _MOST_BYTES, 0)

    def write(self, text: bytes) -> None:
        """Write the content of the side file; ignore a full disk. The caller holds the lock."""
        with suppress(OSError):
            fd = self._opened()
            os.pwrite(fd, text, 0)
            os.ftruncate(fd, len(text))

    def forget(self) -> None:
        """Close the descriptor: at the end, and in a forked child, where it would keep the parent's lock."""
        self._depth = 0
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _take(self, how: int) -> None:
        while True:
            fcntl.flock(self._opened(), how)
            if self._is_current():
                return
            self.forget()

    def _opened(self) -> int:
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._fd

    def _release(self) -> None:
        self._depth -= 1
        if not self._depth and self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _is_current(self) -> bool:
        """Whether the locked file is still at the path. A lock on a deleted file excludes no process."""
        assert self._fd is not None
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
