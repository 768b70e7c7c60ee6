"""`PostgresStore`: the store contract on a server. Each method names its work, done in the modules beside."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.store.postgres import schema
from tidegate.store.postgres.address import parse_address
from tidegate.store.postgres.clock import ServerClock
from tidegate.store.postgres.database import BUSY_SECONDS, Database


class PostgresStore:
    """The store on a PostgreSQL server: connected at the first use, for any number of event loops.

    Args:
        url: `postgresql://…`; what else it may say is in `Address`.
        clock: The store's clock in seconds since the epoch, for tests; the server's by default.
        busy_seconds: How long a call may take in all before StoreBusyError or StoreUnavailableError.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float] | None = None,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.address = parse_address(url)
        self._database = Database(self.address, clock=clock, busy_seconds=busy_seconds)
        self._clock = ServerClock()

    # --- lifecycle ---

    async def open(self) -> None:
        """Connect and check the schema; it is never made here."""
        await self._database.transact(schema.check, snapshot=True)

    async def close(self) -> None:
        """Let go of all connections; a later call makes new ones."""
        await self._database.close()

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations applied."""
        return await schema.upgrade(self._database)

    async def now(self) -> float:
        """Return the store's clock."""
        return await self._database.once(self._clock.now)
