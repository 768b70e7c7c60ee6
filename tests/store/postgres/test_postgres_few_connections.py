"""A server with few connections: calls share the existing ones, and heartbeats have their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import fresh_database, migrated
from support import until
from tidegate import StoreUnavailableError
from tidegate.store.postgres import connections as links_module
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
MINE = "SELECT pg_backend_pid()"


class Narrow:
    """A database whose owner may have a limited number of connections."""

    def __init__(self, server: Server, name: str) -> None:
        self.url = server.url(name, user="narrow")
        self._server = server

    def allow(self, connections: int) -> None:
        """Allow this many sessions from now on."""
        with self._server.connect() as admin:
            admin.execute(f"ALTER ROLE narrow CONNECTION LIMIT {connections}")


@pytest.fixture
def narrow(postgres: Server) -> Iterator[Narrow]:
    with postgres.connect() as admin, fresh_database(postgres) as name:
        admin.execute("CREATE ROLE narrow LOGIN")
        admin.execute(f"ALTER DATABASE {name} OWNER TO narrow")
        try:
            asyncio.run(migrated(postgres.url(name, user="narrow")))
            yield Narrow(postgres, name)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            admin.execute("DROP ROLE narrow")
            admin.execute(f"CREATE DATABASE {name}")  # the fixture drops it


@pytest.fixture
async def store(narrow: Narrow) -> AsyncIterator[PostgresStore]:
    one = PostgresStore(f"{narrow.url}?pooler=off&hints=off")
    yield one
    await one.close()


async def pid(store: PostgresStore, *, generic_plan: bool = False, sleep: float = 0.0) -> int:
    """Return the server process of the session in use."""

    async def ask(db: PostgresSession) -> int:
        found: int = await db.value(f"{MINE} FROM pg_sleep({sleep})")
        return found

    return await store._database.autocommit(ask, generic_plan=generic_plan)


async def test_without_a_connection_left_one_of_the_other_kind_is_used(
    narrow: Narrow, store: PostgresStore
) -> None:
    narrow.allow(1)
    usual = await pid(store)
    assert await pid(store, generic_plan=True) == usual
    assert await pid(store) == usual


async def test_without_a_connection_left_calls_wait_for_the_existing_one(
    narrow: Narrow, store: PostgresStore
) -> None:
    narrow.allow(1)
    first = await pid(store)
    async with asyncio.timeout(SOON):
        used = await asyncio.gather(
            *(pid(store, generic_plan=turn % 2 == 0, sleep=0.01) for turn in range(20))
        )
    assert set(used) == {first}


async def test_callers_that_wait_for_a_lost_connection_open_another(
    narrow: Narrow, store: PostgresStore, postgres: Server
) -> None:
    narrow.allow(1)
    holding = asyncio.create_task(pid(store, sleep=30))
    await asyncio.sleep(0.2)
    waiting = asyncio.create_task(pid(store))
    await asyncio.sleep(0.2)
    with postgres.connect() as admin:
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'narrow'")
    async with asyncio.timeout(SOON):
        assert await waiting
    holding.cancel()
    await asyncio.wait([holding])


async def test_without_any_connection_every_call_raises_an_error(
    narrow: Narrow, store: PostgresStore
) -> None:
    narrow.allow(0)
    async with asyncio.timeout(SOON):
        ended = await asyncio.gather(*(pid(store) for _ in range(8)), return_exceptions=True)
    assert {type(error) for error in ended} == {StoreUnavailableError}
    narrow.allow(4)
    assert await pid(store)


async def test_more_connections_are_opened_when_the_server_has_some_again(
    narrow: Narrow, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "FULL_SECONDS", 0.05)
    narrow.allow(1)
    assert len({*await asyncio.gather(*(pid(store, sleep=0.05) for _ in range(3)))}) == 1
    narrow.allow(-1)
    await asyncio.sleep(0.1)
    assert len({*await asyncio.gather(*(pid(store, sleep=0.3) for _ in range(3)))}) == 3


async def test_a_heartbeat_has_a_connection_that_no_other_work_uses(
    narrow: Narrow, store: PostgresStore
) -> None:
    worker = await Build(store, SettableClock()).worker(lease=30.0)
    assert await store.extend_leases([worker], 30.0) == set()
    busy = [asyncio.create_task(pid(store, sleep=30)) for _ in range(8)]
    await asyncio.sleep(0.2)
    async with asyncio.timeout(SOON):
        assert await store.extend_leases([worker], 30.0) == set()
    for call in busy:
        call.cancel()
    await asyncio.wait(busy)


async def test_the_only_connection_serves_heartbeats_and_other_work(
    narrow: Narrow, store: PostgresStore
) -> None:
    narrow.allow(1)
    worker = await Build(store, SettableClock()).worker(lease=30.0)
    async with asyncio.timeout(SOON):
        for _ in range(3):
            assert await store.extend_leases([worker], 30.0) == set()
            await asyncio.gather(
                *(pid(store, sleep=0.01) for _ in range(5)), store.extend_leases([worker], 30.0)
            )


@pytest.mark.parametrize("connections", [1, 2, 4])
async def test_heartbeats_and_calls_stay_within_the_connection_limit(
    narrow: Narrow, connections: int
) -> None:
    store = PostgresStore(f"{narrow.url}?pooler=off&hints=off&connections={connections}")
    worker = await Build(store, SettableClock()).worker(lease=30.0)
    narrow.allow(connections)
    async with asyncio.timeout(SOON):
        for _ in range(3):
            await store.extend_leases([worker], 30.0)
            calls = (pid(store, generic_plan=turn % 2 == 0, sleep=0.01) for turn in range(20))
            used = await asyncio.gather(*calls, *(store.extend_leases([worker], 30.0) for _ in range(3)))
    assert len({one for one in used if isinstance(one, int)}) <= connections
    await store.close()
    assert await pid(store)
    await store.close()


async def test_a_supervisor_uses_fewer_connections_than_the_url_allows(narrow: Narrow) -> None:
    store = PostgresStore(f"{narrow.url}?pooler=off&hints=off&connections=9", supervises=True)
    used = await asyncio.gather(*(pid(store, sleep=0.1) for _ in range(12)))
    assert len(set(used)) == 3
    await store.close()


async def test_a_supervisor_uses_one_connection_if_the_workers_may_open_too_many(
    narrow: Narrow, postgres: Server
) -> None:
    store = PostgresStore(f"{narrow.url}?pooler=off&hints=off", supervises=True)
    worker = await Build(store, SettableClock()).worker(lease=30.0)
    await store.extend_leases([worker], 30.0)
    busy = asyncio.gather(*(pid(store, sleep=0.3) for _ in range(6)))
    _, is_too_much = await store.describe_connections(processes=1_000, supervisors=1)
    assert is_too_much
    await busy
    assert len(set(await asyncio.gather(*(pid(store, sleep=0.01) for _ in range(6))))) == 1
    assert await store.extend_leases([worker], 30.0) == set()

    async def one_is_left() -> bool:
        with postgres.connect() as admin:
            found = admin.execute("SELECT FROM pg_stat_activity WHERE usename = 'narrow'").fetchall()
        return len(found) == 1

    await until(one_is_left, within=SOON)
    await store.close()
