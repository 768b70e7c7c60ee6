"""The back ends that the conformance suite runs on, and the fixtures made from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from store_build import Build, SettableClock

from tidegate.store.protocol import Store
from tidegate.store.sqlite.store import SqliteStore

Clients = Callable[[], Store]
"""Makes another client of the same, at first empty, data."""


@contextmanager
def sqlite_clients(directory: Path, clock: SettableClock) -> Iterator[Clients]:
    yield lambda: SqliteStore(directory / "tidegate.db", clock=clock)


BACK_ENDS = {"sqlite": sqlite_clients}
"""By name: a context manager over (directory, clock) that gives `Clients`. A new back end is entered here."""


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=sorted(BACK_ENDS))
def clients(request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock) -> Iterator[Clients]:
    with BACK_ENDS[request.param](tmp_path, clock) as made:
        yield made


@pytest.fixture
async def store(clients: Clients) -> AsyncIterator[Store]:
    async with opened(clients) as one:
        yield one


@pytest.fixture
async def twin(clients: Clients, store: Store) -> AsyncIterator[Store]:
    """A second client on the store's data, as another process would have."""
    async with opened(clients) as one:
        yield one


@pytest.fixture
def build(store: Store, clock: SettableClock) -> Build:
    return Build(store, clock)


class opened(AsyncExitStack):
    """A client, open for the block."""

    def __init__(self, clients: Clients) -> None:
        super().__init__()
        self._clients = clients

    async def __aenter__(self) -> Store:  # type: ignore[override]
        await super().__aenter__()
        store = self._clients()
        self.push_async_callback(store.close)
        await store.open()
        return store
