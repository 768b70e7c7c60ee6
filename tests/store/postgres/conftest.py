"""Fixtures for what only PostgreSQL has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import SCHEMA, emptied, fresh_database
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore

Open = Callable[..., PostgresStore]


@pytest.fixture
def worker_url(postgres: Server) -> str:
    """The URL of an empty store, as the worker's role."""
    emptied(postgres)
    return postgres.url(user=role(SCHEMA, "worker"))


@pytest.fixture
def fresh_url(postgres: Server) -> Iterator[str]:
    """The URL of a separate, empty database, as its owner."""
    with fresh_database(postgres) as name:
        yield postgres.url(name)


@pytest.fixture
async def store(worker_url: str) -> AsyncIterator[PostgresStore]:
    one = PostgresStore(worker_url)
    yield one
    await one.close()


@pytest.fixture
def build(store: PostgresStore) -> Build:
    return Build(store, SettableClock())
