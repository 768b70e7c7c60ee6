"""The back ends that the conformance suite runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

from store_build import SettableClock

from tidegate.store.protocol import Store
from tidegate.store.sqlite.store import SqliteStore

Clients = Callable[[], Store]
"""Makes another client of the same, at first empty, data."""

BackEnd = Callable[[Path, SettableClock], AbstractContextManager[Clients]]
"""Given a directory of its own and the clock to use."""


@contextmanager
def sqlite_clients(directory: Path, clock: SettableClock) -> Iterator[Clients]:
    yield lambda: SqliteStore(directory / "tidegate.db", clock=clock)


BACK_ENDS: dict[str, BackEnd] = {"sqlite": sqlite_clients}
"""By name. A new back end is entered here, and nowhere else."""


@asynccontextmanager
async def opened(clients: Clients) -> AsyncIterator[Store]:
    """A client, open for the block."""
    store = clients()
    try:
        await store.open()
        yield store
    finally:
        await store.close()
