"""Idle connections: checked before they are used again, and closed after a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pgserver import Server, proxied
from postgres_support import SCHEMA
from support import until
from tidegate.store.postgres import idle
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
MINE = "SELECT pg_backend_pid()"


@pytest.fixture
async def lone(worker_url: str) -> AsyncIterator[PostgresStore]:
    """A store that uses one connection and sends no hints."""
    store = PostgresStore(f"{worker_url}?connections=1&hints=off")
    yield store
    await store.close()


async def pid(store: PostgresStore) -> int:
    """Return the server process of the session in use."""

    async def ask(db: PostgresSession) -> int:
        found: int = await db.value(MINE)
        return found

    return await store._database.read(ask)


async def test_an_idle_connection_dropped_by_the_network_costs_only_seconds(
    postgres: Server, worker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(idle, "CHECK_SECONDS", 0.3)
    async with proxied(postgres) as proxy:
        store = PostgresStore(proxy.url(user=role(SCHEMA, "worker")))
        await asyncio.gather(*(store.now() for _ in range(4)))  # several connections are open
        proxy.swallow()
        proxy.forget()  # the open connections stay silent, new ones work
        async with asyncio.timeout(SOON):
            await store.now()
            await store.now()
        proxy.cut()
        await store.close()


async def test_a_connection_that_was_quiet_and_still_answers_is_kept(
    lone: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "QUIET_SECONDS", 0.0)
    assert await pid(lone) == await pid(lone)


async def test_a_connection_in_use_is_not_checked(
    lone: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def answers(link: object) -> bool:
        asked.append(link)
        return True

    monkeypatch.setattr("tidegate.store.postgres.connections.answers", answers)
    for _ in range(3):
        await pid(lone)
    assert asked == []


@pytest.mark.parametrize("connections", [1, 3])
async def test_idle_connections_are_closed(
    postgres: Server, worker_url: str, monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE_SECONDS", 0.2)
    store = PostgresStore(f"{worker_url}?connections={connections}&hints=off")
    pids = await asyncio.gather(*(pid(store) for _ in range(connections)))

    async def gone() -> bool:
        with postgres.connect() as admin:
            found = admin.execute("SELECT FROM pg_stat_activity WHERE pid = ANY(%s)", [list(pids)])
            return found.fetchone() is None

    await until(gone, within=SOON)
    assert await pid(store) not in pids
    await store.close()


async def test_an_idle_connection_that_is_used_in_time_is_not_closed(
    lone: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "MOST_IDLE_SECONDS", 0.5)
    loop = asyncio.get_running_loop()
    used, ends_at = set(), loop.time() + 1.5
    while loop.time() < ends_at:
        used.add(await pid(lone))
        await asyncio.sleep(0.01)
    assert len(used) == 1
