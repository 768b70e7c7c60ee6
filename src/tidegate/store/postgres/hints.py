"""Notify other processes of commits: one hint for many commits, in its own transaction."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tidegate.errors import StoreError
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.errors import CONTENT_ERRORS
from tidegate.store.postgres.statements import load
from tidegate.store.postgres.uncancelled import UncancelledTask, WorkResult

_HINT = load("wait_for_change")["hint"]

GAP_SECONDS = 0.02
"""Interval between two hints of an event loop. The first is sent at once; later ones are combined."""
_FAREWELL_SECONDS = 1.0


class Hints:
    """Sends hints from one event loop.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sending: UncancelledTask[None] | None = None
        self._gap: asyncio.TimerHandle | None = None
        self._is_due = False
        database.before_loop_ends(self.flush)

    def committed(self) -> None:
        """Send a hint soon. This never waits, and a lost hint does no harm."""
        self._is_due = True
        if self._sending is None and self._gap is None:
            self._send()

    async def flush(self) -> None:
        """Send a pending hint; return when it was sent, or after a second."""
        while self._is_due or self._sending is not None:
            self._end_gap()
            if self._sending is None:
                self._send()
            assert self._sending is not None
            done, _ = await asyncio.wait([self._sending], timeout=_FAREWELL_SECONDS)
            if not done:
                sending = self._sending
                sending.end()
                await asyncio.wait([sending])
                break
        self._end_gap()

    def _end_gap(self) -> None:
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None

    def _send(self) -> None:
        self._gap, self._is_due = None, False
        self._sending = UncancelledTask(self._hint(), name="tidegate-postgres-hint")
        self._sending.add_done_callback(self._sent)

    async def _hint(self) -> None:
        # A lost hint does no harm: waiting processes poll. The server may refuse a hint when its queue is
        # full.
        with suppress(StoreError, *CONTENT_ERRORS):
            await self._database.autocommit(lambda db: db.row(_HINT, self._database.address.schema))

    def _sent(self, sending: asyncio.Task[WorkResult[None]]) -> None:
        self._sending = None
        if not sending.cancelled():
            self._gap = asyncio.get_running_loop().call_later(GAP_SECONDS, self._gap_is_over)

    def _gap_is_over(self) -> None:
        self._gap = None
        if self._is_due:
            self._send()
