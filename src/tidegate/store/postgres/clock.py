"""The store's clock on PostgreSQL: the server's, kept from going backwards within a process."""

from __future__ import annotations

from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load

_NOW = load("now")["now"]


async def moment(db: Session) -> float:
    """Return the present moment, in seconds since the epoch."""
    now: float = await db.value(_NOW, db.at)
    return now


class HighWater:
    """Remembers the latest moment told."""

    def __init__(self) -> None:
        self._latest = 0.0

    async def now(self, db: Session) -> float:
        """Return the present moment, never less than told before."""
        self._latest = max(self._latest, await moment(db))
        return self._latest
