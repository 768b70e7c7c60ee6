"""Fixtures made from the back ends that the conformance suite runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from store_back_ends import BACK_ENDS, Clients, opened
from store_build import Build, SettableClock

from tidegate.store.protocol import Store


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
