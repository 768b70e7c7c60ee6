"""The back ends that the conformance suite runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest
from store_build import SettableClock

from pgserver import Server
from postgres_support import SCHEMA, emptied, fresh_database
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.protocol import Store
from tidegate.store.sqlite.store import SqliteStore

Clients = Callable[[], Store]
"""Returns another client of the same data, which is empty at first."""

Made = Callable[[pytest.FixtureRequest, SettableClock], AbstractContextManager[Clients]]
"""Called with the clock to use."""


@dataclass(frozen=True)
class BackEnd:
    """One back end."""

    clients: Made
    """Clients of data without tasks."""
    unmade: Made
    """Clients of a database without a schema."""
    examples: int
    """Number of examples for property-based tests; fewer where each costs more."""


@contextmanager
def sqlite_clients(request: pytest.FixtureRequest, clock: SettableClock) -> Iterator[Clients]:
    path = request.getfixturevalue("tmp_path_factory").mktemp("store") / "tidegate.db"
    yield lambda: SqliteStore(path, clock=clock)


def postgres_clients(through: str) -> Made:
    """Return a factory of clients with the worker's role, through the fixture of this name."""

    @contextmanager
    def made(request: pytest.FixtureRequest, clock: SettableClock) -> Iterator[Clients]:
        server: Server = request.getfixturevalue("postgres")
        checked_by = request.getfixturevalue(through)
        emptied(server)
        url = checked_by.url(user=role(SCHEMA, "worker"))
        if checked_by is not server:
            url += f"?listen={server.host}:{server.port}"
        yield lambda: PostgresStore(url, clock=clock)

    return made


def unmade_postgres_clients(through: str) -> Made:
    """Return a factory of clients of a separate database, through the fixture of this name."""

    @contextmanager
    def made(request: pytest.FixtureRequest, clock: SettableClock) -> Iterator[Clients]:
        server: Server = request.getfixturevalue("postgres")
        checked_by = request.getfixturevalue(through)
        with fresh_database(server) as name:
            yield lambda: PostgresStore(checked_by.url(name), clock=clock)

    return made


BACK_ENDS: dict[str, BackEnd] = {
    "sqlite": BackEnd(sqlite_clients, sqlite_clients, examples=25),
    "postgres": BackEnd(postgres_clients("postgres"), unmade_postgres_clients("postgres"), examples=10),
    "pgbouncer": BackEnd(postgres_clients("bouncer"), unmade_postgres_clients("bouncer"), examples=5),
}
"""Back ends by name. A new back end is added only here."""


@asynccontextmanager
async def opened(clients: Clients) -> AsyncIterator[Store]:
    """Open a client during the block."""
    store = clients()
    try:
        await store.open()
        yield store
    finally:
        await store.close()
