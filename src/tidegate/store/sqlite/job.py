"""A job for the store's thread: a function of a connection, and its result or error."""

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
    """What transaction a job needs."""

    READ = "read"
    """One snapshot, no lock."""
    WRITE = "write"
    """A write transaction, which it may share with other jobs."""
    BARE = "bare"
    """A connection outside any transaction, without a schema check: for upgrade and upkeep."""


class Job(Generic[T]):
    """One call of the store that the thread does.

    Args:
        work: The work.
        mode: The transaction it needs.
        precheck: Called first, in a snapshot without the write lock. If it returns a value other than None,
            that is the job's result and the work is not done. For work that mostly finds nothing to do.
        expires_at: The moment, by the monotonic clock, at which the job is abandoned if it has not begun.
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
        """Take the job, to begin or to abandon it; return True only to the first caller."""
        return self._taken.acquire(blocking=False)

    @property
    def is_late(self) -> bool:
        """Whether the job should have begun by now."""
        return time.monotonic() >= self.expires_at
