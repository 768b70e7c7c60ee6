"""A file full of tasks, and an empty database to move them to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from store_build import SettableClock
from transfer_support import Move

from pgserver import Server
from postgres_support import SCHEMA, emptied
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.transfer.source import Source
from tidegate.store.transfer.target import Target


@pytest.fixture
def target_url(postgres: Server) -> str:
    """The URL of an empty store, as the worker's role."""
    emptied(postgres)
    return postgres.url(user=role(SCHEMA, "worker"))


@pytest.fixture
async def moving(tmp_path: Path, target_url: str, clock: SettableClock) -> AsyncIterator[Move]:
    path = tmp_path / "queue.db"
    move = Move(
        SqliteStore(path, clock=clock),
        PostgresStore(target_url, clock=clock),
        Source(path, clock=clock),
        Target(target_url, clock=clock),
        clock,
    )
    await move.old.open()
    yield move
    for end in (move.old, move.new, move.source, move.target):
        await end.close()
