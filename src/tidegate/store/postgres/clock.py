"""The store's clock on PostgreSQL: the server's, kept from going backwards within a process."""

from __future__ import annotations

from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load

_NOW = load("now")["now"]


class ServerClock:
    """Asks the server for the present moment, in seconds since the epoch."""

    def __init__(self) -> None:
        self._latest = 0.0

    async def now(self, db: Session) -> float:
        """Return the present moment, never less than told before."""
        told: float = await db.value(_NOW, db.at)
        self._latest = max(self._latest, told)
        return self._latest
