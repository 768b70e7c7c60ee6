"""Faults between the store and a server: restarts, lost connections, locks, overload, forks, two loops."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import asyncpg
import psycopg
import pytest
from store_build import Build, SettableClock

from pgserver import Server, postgres_server, proxied
from postgres_support import SCHEMA, migrated
from support import until
from tidegate.domain.failure import CallFailure, Reason
from tidegate.errors import StoreBusyError, StoreUnavailableError
from tidegate.store.postgres import database as database_module
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.enqueue import COPY_TASKS
from tidegate.store.postgres.roles import role
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import EnqueueResult, TaskFilter

SOON = 10.0
ONE = "SELECT 1"
MINE = "SELECT pg_backend_pid() FROM pg_sleep(0.01)"


@pytest.fixture(scope="module")
def fragile() -> Iterator[Server]:
    """A server that may be stopped."""
    with postgres_server() as started:
        asyncio.run(migrated(started.url()))
        yield started


@pytest.fixture
async def on_fragile(fragile: Server) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(fragile.url())
    yield store
    await store.close()


def database_of(store: PostgresStore) -> Database:
    return store._database


async def cut(server: Server) -> None:
    """Cut every connection of the test."""
    with server.connect() as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidegate'"
        )


async def test_a_restart_between_two_calls_is_not_noticed(on_fragile: PostgresStore, fragile: Server) -> None:
    build = Build(on_fragile, SettableClock())
    await asyncio.gather(*(build.one() for _ in range(8)))  # several connections are open
    fragile.stop(immediately=True)
    fragile.start()
    assert await build.one()
    assert await build.one()


async def test_while_the_server_is_down_calls_raise_an_error_with_the_fix(
    on_fragile: PostgresStore, fragile: Server
) -> None:
    fragile.stop(immediately=True)
    try:
        with pytest.raises(StoreUnavailableError, match="cannot be reached") as caught:
            await on_fragile.now()
        assert caught.value.fix
    finally:
        fragile.start()
    assert await on_fragile.now() > 0


async def test_an_interrupted_transaction_is_retried(store: PostgresStore, postgres: Server) -> None:
    tries = []

    async def work(db: PostgresSession) -> int:
        tries.append(1)
        if len(tries) == 1:
            await cut(postgres)
        found: int = await db.value(ONE)
        return found

    assert await database_of(store).transact(work) == 1
    assert len(tries) == 2


async def test_work_that_is_not_repeatable_is_not_retried(store: PostgresStore, postgres: Server) -> None:
    tries = []

    async def work(db: PostgresSession) -> None:
        tries.append(1)
        await cut(postgres)
        await db.value(ONE)

    with pytest.raises(StoreUnavailableError):
        await database_of(store).transact(work, repeatable=False)
    assert len(tries) == 1


async def test_a_deadlock_is_retried_and_both_transactions_succeed(
    store: PostgresStore, build: Build
) -> None:
    one, other = await build.enqueue(2)
    lock = "SELECT 1 FROM /*schema*/task WHERE id = $1 FOR UPDATE"
    met = asyncio.Barrier(2)

    def taking(first: str, second: str):
        tries = []

        async def work(db: PostgresSession) -> None:
            await db.value(lock, first)
            if not tries:
                tries.append(1)
                await met.wait()
            await db.value(lock, second)

        return work

    database = database_of(store)
    await asyncio.gather(database.transact(taking(one, other)), database.transact(taking(other, one)))


LOCKED_OUT = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidegate' AND wait_event_type = 'Lock'"
)


@pytest.mark.parametrize("kind", ["key", "unique"])
async def test_batches_with_the_same_names_in_another_order_do_not_deadlock(
    store: PostgresStore, postgres: Server, build: Build, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(database_module, "_TRIES", 1)  # a deadlock would be retried and go unnoticed
    ones = [build.new(**{kind: name}) for name in "amz"]
    others = [build.new(**{kind: name}) for name in "zma"]
    with postgres.connect() as admin, psycopg.connect(postgres.url()) as holder:
        holder.execute("INSERT INTO tidegate.key VALUES (%s, '', 'm', gen_random_uuid(), '', NULL)", [kind])

        async def both_wait() -> bool:
            return admin.execute(LOCKED_OUT).fetchone() == (2,)

        async with asyncio.TaskGroup() as group:
            one = group.create_task(store.enqueue(ones))
            other = group.create_task(store.enqueue(others))
            await until(both_wait)
            holder.rollback()
    won = {answer.task_id for answer in one.result() if answer.created}
    won |= {answer.task_id for answer in other.result() if answer.created}
    assert len(won) == 3
    assert [answer.task_id for answer in one.result()] == [a.task_id for a in reversed(other.result())]


async def test_a_gate_change_that_waited_for_its_lock_uses_the_time_after_the_wait(
    store: PostgresStore, postgres: Server
) -> None:
    await store.report_failure("u", CallFailure(Reason.RATE_LIMIT))
    with postgres.connect() as admin, psycopg.connect(postgres.url()) as holder:
        holder.execute("SELECT 1 FROM tidegate.gate FOR UPDATE")

        async def waits() -> bool:
            return admin.execute(LOCKED_OUT).fetchone() == (1,)

        async with asyncio.TaskGroup() as group:
            group.create_task(store.report_probe("u", is_good=True, seconds=0.1))
            await until(waits)
            turn_at = await store.now()
            holder.rollback()
    (row,) = await store.list_upstreams()
    assert row.gate.last_opened_at is not None
    assert row.gate.last_opened_at >= turn_at


async def test_endless_conflicts_raise_store_busy(store: PostgresStore) -> None:
    async def work(db: PostgresSession) -> None:
        raise asyncpg.SerializationError("again")

    with pytest.raises(StoreBusyError):
        await database_of(store).autocommit(work)


async def test_a_call_ends_within_its_time_limit_for_any_delay(worker_url: str, build: Build) -> None:
    task_id = await build.one()
    holder = await asyncpg.connect(worker_url)
    hasty = PostgresStore(worker_url, busy_seconds=0.3)
    async with holder.transaction():
        await holder.execute("SELECT 1 FROM tidegate.ready WHERE task_id = $1 FOR UPDATE", task_id)
        with pytest.raises(StoreUnavailableError, match=r"within 0\.3 s"):
            await hasty.cancel([task_id])
    assert await hasty.now() > 0
    await holder.close()
    await hasty.close()


async def test_a_transaction_on_a_silent_connection_ends_in_time(postgres: Server, worker_url: str) -> None:
    async with proxied(postgres) as proxy:
        store = PostgresStore(proxy.url(user=role(SCHEMA, "worker")), busy_seconds=0.5)

        async def work(db: PostgresSession) -> None:
            await db.value(ONE)
            proxy.swallow()
            await db.value(ONE)

        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailableError, match="did not answer"):
                await database_of(store).transact(work)
        proxy.forget()
        proxy.cut()
        await store.close()


@asynccontextmanager
async def whose_answer_is_lost(postgres: Server, word: str, done: Callable[[], Awaitable[bool]]):
    """A store that gets no response to statements with this word, and loses the connection once they are
    done."""
    async with proxied(postgres) as proxy:
        store = PostgresStore(proxy.url(user=role(SCHEMA, "worker")))

        async def cut_when_done() -> None:
            await until(done)
            proxy.forget()
            proxy.cut()

        proxy.swallow_answer_to(word.encode())
        async with asyncio.TaskGroup() as group:
            group.create_task(cut_when_done())
            yield store
        await store.close()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("count", [1, 3, COPY_TASKS])
async def test_a_retried_enqueue_after_a_lost_result_returns_created(
    postgres: Server, store: PostgresStore, build: Build, count: int, named: bool
) -> None:
    new = [build.new(queue="lost", key=f"key {number}" if named else None) for number in range(count)]

    async def stored() -> bool:
        return len(await store.read_tasks([task.id for task in new])) == count

    async with whose_answer_is_lost(postgres, "lost" if count == 1 else "COMMIT;", stored) as losing:
        answers = await losing.enqueue(new)
    assert answers == [EnqueueResult(task.id, created=True) for task in new]


async def test_a_retried_batch_commit_does_not_conflict_with_itself(
    postgres: Server, store: PostgresStore, build: Build
) -> None:
    held = await build.one(key="held")
    new = [build.new(key=key) for key in ("mine", "held")]
    await store.enqueue_part("stage", new)

    async def committed() -> bool:
        return new[0].id in await store.read_tasks([new[0].id])

    async with whose_answer_is_lost(postgres, "COMMIT;", committed) as losing:
        assert await losing.commit_batch("stage") == {new[1].id: held}


async def test_a_heartbeat_on_a_silent_connection_fails_in_time_for_the_next(
    postgres: Server, worker_url: str
) -> None:
    async with proxied(postgres) as proxy:
        store = PostgresStore(proxy.url(user=role(SCHEMA, "worker")))
        worker = await Build(store, SettableClock()).worker(lease=3.0)
        await asyncio.gather(*(store.now() for _ in range(4)))  # every connection is open
        proxy.swallow()
        async with asyncio.timeout(3.0):
            with pytest.raises(StoreUnavailableError, match="did not answer within 1 s"):
                await store.extend_leases([worker], 3.0)
            proxy.forget()
            assert await store.extend_leases([worker], 3.0) == set()
        proxy.cut()
        await store.close()


async def test_a_call_whose_connection_is_lost_can_be_cancelled(
    store: PostgresStore, postgres: Server
) -> None:
    is_lost = asyncio.Event()

    async def work(db: PostgresSession) -> None:
        await cut(postgres)
        is_lost.set()
        await asyncio.Event().wait()

    calling = asyncio.create_task(database_of(store).transact(work))
    async with asyncio.timeout(SOON):
        await is_lost.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_a_cancelled_call_leaves_no_connection_in_a_transaction(store: PostgresStore) -> None:
    begun = asyncio.Event()

    async def sleep(db: PostgresSession) -> object:
        begun.set()
        return await db.value("SELECT pg_sleep(30)")

    for _ in range(8):
        call = asyncio.create_task(database_of(store).autocommit(sleep))
        await (
            begun.wait()
        )  # once it is connected: asyncpg itself logs an error if it is cancelled while it connects
        begun.clear()
        await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await asyncio.wait_for(store.now(), SOON) > 0


async def test_a_process_opens_no_more_connections_than_its_number(worker_url: str) -> None:
    store = PostgresStore(f"{worker_url}?connections=3&hints=off")
    used = await asyncio.gather(
        *(database_of(store).autocommit(lambda db: db.value(MINE)) for _ in range(50))
    )
    assert len(set(used)) == 3
    await store.close()


async def test_a_store_serves_two_event_loops(store: PostgresStore, build: Build) -> None:
    await build.one()

    async def elsewhere() -> int:
        try:
            return len(await store.list_tasks(TaskFilter()))
        finally:
            await store.close()

    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == 1
    assert await store.now() > 0


async def test_a_forked_child_uses_none_of_its_parents_connections(
    store: PostgresStore, build: Build
) -> None:
    task_id = await build.one()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        theirs.send(list(asyncio.run(store.read_tasks([task_id]))))

    process = context.Process(target=child)
    process.start()
    assert await asyncio.to_thread(ours.poll, SOON)
    assert ours.recv() == [task_id]
    process.join(SOON)
    assert await store.now() > 0
