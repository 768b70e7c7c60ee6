"""A piece of work for the store's thread: a function over a connection, and what became of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

import apsw

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
Precheck = Callable[[apsw.Connection], T | None]


class Mode(Enum):
    """What a job needs around it."""

    READ = "read"
    """One snapshot, no lock."""
    WRITE = "write"
    """A part of a write transaction."""
    BARE = "bare"
    """A connection outside any transaction, its schema unchecked: upgrade and upkeep."""


class Job(Generic[T]):
    """One call of the store on its way through the thread.

    Args:
        work: What to do.
        mode: What it needs around it.
        precheck: Asked first, in a snapshot without the write lock; an answer other than None is the job's,
            and the work is not done. For work that mostly finds nothing to do.
        expires_at: By the monotonic clock; a job not begun by then is abandoned.
    """

    __slots__ = ("_taken", "error", "expires_at", "mode", "precheck", "value", "work")

    def __init__(self, work: Work[T], mode: Mode, *, precheck: Precheck[T] | None, expires_at: float) -> None:
        self.work = work
        self.mode = mode
        self.precheck = precheck
        self.expires_at = expires_at
        self.value: T | None = None
        self.error: BaseException | None = None
        self._taken = threading.Lock()

    def take(self) -> bool:
        """Claim the job, to begin or to abandon it; True for the first caller only."""
        return self._taken.acquire(blocking=False)

    @property
    def is_late(self) -> bool:
        """Whether it should have begun by now."""
        return time.monotonic() >= self.expires_at
