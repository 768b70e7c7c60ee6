"""When a script, a caller or an event loop ends at a bad moment, no session and no error message is left."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from pgserver import Server
from support import until
from tidegate.store.postgres import uncancelled
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.store import PostgresStore

SOON = 10.0
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate'"
MINE = "SELECT pg_backend_pid()"
SLOW = "SELECT pg_backend_pid() FROM pg_sleep(0.2)"

SCRIPT = """
import asyncio, gc, sys
from tidegate import Tidegate

async def main(pause):
    app = Tidegate(sys.argv[1])

    @app.task(name="t")
    async def body() -> None: ...

    await body.enqueue()
    await body.enqueue()
    await asyncio.sleep(pause)

for run in range(20):
    asyncio.run(main(run / 1000))
    gc.collect()
"""

CLOSED_LOOPS = """
import asyncio, gc, sys, time
import psycopg
from tidegate import Tidegate

url, admin, outlives = sys.argv[1:]

def new_app():
    app = Tidegate(url)
    app.task(name="t")(body)
    return app

async def body() -> None: ...

async def twice(app):
    await app.function("t").enqueue()
    await app.function("t").enqueue()

app = new_app()
for _ in range(12):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(twice(app if outlives == "app" else new_app()))
    loop.close()

ends_at = time.monotonic() + 10
with psycopg.connect(admin, autocommit=True) as server:
    while True:
        asyncio.run(twice(app))
        ((count,),) = server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate'")
        if count == 0:
            break
        assert time.monotonic() < ends_at, f"{count} sessions are left"
"""


def sessions(server: Server) -> int:
    """Return how many of the test's sessions the server has."""
    with server.connect() as admin:
        ((count,),) = admin.execute(SESSIONS).fetchall()
    return int(count)


@pytest.fixture
def none_before(postgres: Server, worker_url: str) -> Server:
    """A server without sessions of earlier tests."""
    with postgres.connect() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'tidegate'"
        )
    return postgres


async def test_scripts_that_enqueue_and_exit_print_nothing(worker_url: str) -> None:
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", SCRIPT, worker_url], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


async def test_cancelled_reads_keep_their_sessions(worker_url: str) -> None:
    store = PostgresStore(f"{worker_url}?hints=off")
    used: set[int] = set()

    async def read(db: PostgresSession) -> None:
        used.add(await db.value(MINE))
        await db.value(MINE)

    for turn in range(200):
        reading = asyncio.create_task(store._database.read(read))
        await asyncio.sleep(turn % 7 / 2000)  # from before it connects to after it ended
        reading.cancel()
        await asyncio.wait([reading])
    assert len(used) <= store.address.connections
    await store.close()


async def test_a_transaction_that_only_reads_keeps_its_session_when_it_is_cancelled(worker_url: str) -> None:
    store = PostgresStore(f"{worker_url}?connections=1&hints=off")
    begun = asyncio.Event()

    async def read(db: PostgresSession) -> object:
        begun.set()
        return await db.value(SLOW)

    pid = await store._database.transact(lambda db: db.value(MINE), snapshot=True)
    reading = asyncio.create_task(store._database.transact(read, snapshot=True))
    await begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await store._database.read(lambda db: db.value(MINE)) == pid
    await store.close()


async def test_a_cancelled_read_that_does_not_end_in_time_is_stopped(
    store: PostgresStore, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncancelled, "GRACE_SECONDS", 0.1)
    begun = asyncio.Event()

    async def read(db: PostgresSession) -> object:
        begun.set()
        return await db.value("SELECT pg_sleep(60)")

    reading = asyncio.create_task(store._database.read(read))
    await begun.wait()
    reading.cancel()

    async def is_ended() -> bool:
        with postgres.connect() as admin:
            found = admin.execute("SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'")
            return found.fetchone() is None

    await until(is_ended, within=SOON)
    assert await store.now() > 0


async def test_a_cancelled_claim_takes_nothing(store: PostgresStore) -> None:
    """A worker that stops reads its runs; no claim may run after that."""
    begun, has_gone_on = asyncio.Event(), []

    async def take(db: PostgresSession) -> None:
        begun.set()
        await db.value(SLOW)
        has_gone_on.append(1)

    taking = asyncio.create_task(store._database.autocommit(take, repeatable=False))
    await begun.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await asyncio.sleep(0.3)
    assert has_gone_on == []


async def test_closing_a_store_ends_the_work_of_cancelled_callers(
    none_before: Server, worker_url: str
) -> None:
    store = PostgresStore(worker_url)
    for wait in (0.0, 0.001, 0.005):
        reading = asyncio.create_task(store.get_queue_stats())
        await asyncio.sleep(wait)
        reading.cancel()
    await store.close()

    async def none_left() -> bool:
        return sessions(none_before) == 0

    await until(none_left, within=SOON)


@pytest.mark.parametrize("outlives", ["app", "nothing"])
async def test_sessions_of_loops_closed_without_the_store_are_ended(
    none_before: Server, worker_url: str, outlives: str
) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CLOSED_LOOPS, worker_url, none_before.url(), outlives],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
