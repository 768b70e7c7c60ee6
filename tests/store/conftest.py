"""Fixtures made from the back ends that the conformance suite runs on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from store_back_ends import BACK_ENDS, BackEnd, Clients, opened
from store_build import Build, SettableClock

from tidegate.store.protocol import Store


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture(params=sorted(BACK_ENDS))
def back_end(request: pytest.FixtureRequest) -> BackEnd:
    return BACK_ENDS[request.param]


@pytest.fixture
def clients(back_end: BackEnd, request: pytest.FixtureRequest, clock: SettableClock) -> Iterator[Clients]:
    with back_end.clients(request, clock) as made:
        yield made


@pytest.fixture
def unmade(back_end: BackEnd, request: pytest.FixtureRequest, clock: SettableClock) -> Iterator[Clients]:
    """Clients of a database without a schema."""
    with back_end.unmade(request, clock) as made:
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
