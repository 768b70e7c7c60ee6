"""Reaps child processes that this process did not start: they became ours when their parents died.

Process 1 of a container and a child subreaper get such children. Children that asyncio waits for are left to
asyncio: they are only inspected, not reaped (`WNOWAIT`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator

log = logging.getLogger("tidegate.supervisor")

RECHECK_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36


class ZombieReaper:
    """Reaps dead children that nothing else waits for. Belongs to one event loop.

    Args:
        own_pids: Returns the process ids that other code here waits for.
    """

    def __init__(self, own_pids: Callable[[], Collection[int]]) -> None:
        self._own_pids = own_pids
        self._starting = 0
        self._recheck: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Adopt orphans from now on, if the kernel supports it, and reap them when they end."""
        become_subreaper()
        if hasattr(os, "waitid"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self.reap)
            self.reap()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Reap nothing in this block: a process is being started, and its id is not known yet."""
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1
            self._schedule_recheck()

    def reap(self) -> None:
        """Reap every dead child that is not in `own_pids`."""
        with contextlib.suppress(ChildProcessError):  # there are no children
            while not self._starting:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None:
                    return
                if found.si_pid in self._own_pids():
                    # this child hides other dead children until its waiter has reaped it
                    self._schedule_recheck()
                    return
                os.waitpid(found.si_pid, os.WNOHANG)
                log.debug("reaped orphan process %d", found.si_pid)

    def _schedule_recheck(self) -> None:
        if hasattr(os, "waitid") and (self._recheck is None or self._recheck.when() <= self._now()):
            self._recheck = asyncio.get_running_loop().call_later(RECHECK_SECONDS, self.reap)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def become_subreaper() -> None:
    """Make orphaned descendants our children instead of children of process 1 (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
