"""Waiting for commits: those of this process wake at once, those of others by hint if possible."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import psycopg
import pytest
from store_build import Build, SettableClock

from pgserver import Bouncer, Server
from postgres_support import SCHEMA
from tidegate.store.postgres import hints
from tidegate.store.postgres.listener import Listener
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
REFUSED = "SELECT chr(1114112), $1::text"
"""A program limit is exceeded, as with a full queue of hints."""
LISTENING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tidegate' AND query ILIKE '%listen%'"


@pytest.fixture
async def twin(worker_url: str) -> AsyncIterator[PostgresStore]:
    one = PostgresStore(worker_url)
    yield one
    await one.close()


async def seconds(store: PostgresStore, timeout: float = SOON) -> float:
    """Return how long one wait took."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    await store.wait_for_change(timeout)
    return loop.time() - before


async def quiet(store: PostgresStore) -> None:
    """Wait until this task has seen every commit so far."""
    while await seconds(store, timeout=0.3) < 0.3:
        pass


async def test_a_commit_of_another_process_wakes_a_waiter_at_once(
    store: PostgresStore, twin: PostgresStore
) -> None:
    await quiet(store)
    waiting = asyncio.create_task(seconds(store))
    await asyncio.sleep(0)
    await Build(twin, SettableClock()).one()
    assert await waiting < SOON / 2


async def test_a_rolled_back_enqueue_sends_no_hint(store: PostgresStore, twin: PostgresStore) -> None:
    await quiet(store)
    build = Build(twin, SettableClock())
    with pytest.raises(ValueError, match="no"):
        await twin._database.transact(lambda db: refuse())
    assert await seconds(store, timeout=0.2) >= 0.2
    await build.one()


async def refuse() -> None:
    raise ValueError("no")


async def test_many_commits_send_few_hints(twin: PostgresStore, worker_url: str) -> None:
    received: list[str] = []
    with psycopg.connect(worker_url, autocommit=True) as ear:
        ear.execute(f"LISTEN {SCHEMA}")
        loop = asyncio.get_running_loop()
        began = loop.time()
        build = Build(twin, SettableClock())
        await asyncio.gather(*(build.one() for _ in range(100)))
        took = loop.time() - began
        await twin.close()
        received += [notice.channel for notice in ear.notifies(timeout=0.2)]
    assert 1 <= len(received) <= took / hints.GAP_SECONDS + 2


async def test_a_disconnected_listener_listens_again(
    store: PostgresStore, twin: PostgresStore, postgres: Server
) -> None:
    await quiet(store)
    with postgres.connect() as admin:
        listeners = [pid for (pid,) in admin.execute(LISTENING)]
        assert listeners
        for pid in listeners:
            admin.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert await seconds(store) < SOON  # a hint may have been missed
    await quiet(store)
    waiting = asyncio.create_task(seconds(store))
    await asyncio.sleep(0)
    await Build(twin, SettableClock()).one()
    assert await waiting < SOON / 2


async def test_a_listener_notices_that_the_server_lost_its_session(worker_url: str, postgres: Server) -> None:
    received = asyncio.Event()
    listener = Listener(worker_url, SCHEMA, received.set, probe_seconds=0.05)
    listener.start()
    await asyncio.wait_for(received.wait(), SOON)
    received.clear()
    listener._channel = "another"  # as if the server had lost the session
    await asyncio.wait_for(received.wait(), SOON)
    await listener.stop()


async def test_without_hints_a_wait_ends_at_its_timeout_or_after_an_own_commit(worker_url: str) -> None:
    silent = PostgresStore(f"{worker_url}?hints=off")
    await quiet(silent)
    waiting = asyncio.create_task(seconds(silent))
    await asyncio.sleep(0)
    await Build(silent, SettableClock()).one()
    assert await waiting < SOON / 2
    await silent.close()


async def test_behind_a_pooler_hints_come_over_the_direct_connection(
    worker_url: str, twin: PostgresStore, postgres: Server, bouncer: Bouncer
) -> None:
    pooled = bouncer.url(user="tidegate_worker")
    store = PostgresStore(f"{pooled}?listen={postgres.host}:{postgres.port}")
    await quiet(store)
    waiting = asyncio.create_task(seconds(store))
    await asyncio.sleep(0)
    await Build(twin, SettableClock()).one()
    assert await waiting < SOON / 2
    await store.close()


async def test_no_listener_uses_a_pooler(worker_url: str, bouncer: Bouncer) -> None:
    store = PostgresStore(bouncer.url(user="tidegate_worker"))
    await quiet(store)
    assert await seconds(store, timeout=0.2) >= 0.2
    await Build(store, SettableClock()).one()
    await store.close()


async def test_a_server_that_refuses_hints_does_no_harm(
    store: PostgresStore, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    monkeypatch.setattr(hints, "_HINT", REFUSED)
    assert await build.one()
    await store.close()
    gc.collect()
    assert complaints == []
