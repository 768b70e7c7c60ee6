"""A store on a separate SQLite file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from store_build import Build, SettableClock

from tidegate.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "queue.db"


@pytest.fixture
async def store(path: Path, clock: SettableClock) -> AsyncIterator[SqliteStore]:
    one = SqliteStore(path, clock=clock, busy_seconds=10.0)
    await one.open()
    yield one
    await one.close()


@pytest.fixture
async def hasty(path: Path, clock: SettableClock, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """Another store on the same file, which waits only 0.2 s for a lock."""
    one = SqliteStore(path, clock=clock, busy_seconds=0.2)
    await one.open()
    yield one
    await one.close()


@pytest.fixture
def build(store: SqliteStore, clock: SettableClock) -> Build:
    return Build(store, clock)
