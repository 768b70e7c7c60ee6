"""Logs the runs that succeeded, one line for each, all runs of one turn of the event loop together.

At full speed a pool process ends thousands of runs a second. To log each one separately would take half as
long as the run of a short function; to log them together takes a fraction of that.
"""

from __future__ import annotations

import asyncio

from tidegate.store.rows import ClaimedTask
from tidegate.worker import report


class RunLog:
    """Collects the runs that succeeded until the next turn of the loop, then logs them.

    Args:
        loop: The event loop of the runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended: list[tuple[ClaimedTask, float, str]] = []

    def add(self, claimed: ClaimedTask, seconds: float, trace_id: str) -> None:
        """Log that a run succeeded, with its duration in seconds and its trace (empty if not traced)."""
        if not self._ended:
            self._loop.call_soon(self.flush)
        self._ended.append((claimed, seconds, trace_id))

    def flush(self) -> None:
        """Log all runs collected so far."""
        ended, self._ended = self._ended, []
        report.runs_succeeded(ended)
