"""Enqueues in the caller's transaction: a rollback leaves no task, a commit leaves one (promise G3)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from transaction_callers import CALLERS, ORDER, Products, by_async_session, called, orders, over

from pgserver import Server
from postgres_support import SCHEMA, migrated
from tidegate import NO_LIMIT, FinalState, Pool, PreparedTask, Tidegate
from tidegate.domain.states import State
from tidegate.errors import ArgumentsError, ConfigError, KeyConflictError, OptionError, UsageError
from tidegate.internals import core_of
from tidegate.store.postgres import enqueue_within
from tidegate.store.postgres.roles import role
from tidegate.store.rows import ClaimRequest, CrashPolicy, TaskFilter
from tidegate.store.worker_rows import NewWorker

sys.path.insert(0, str(Path(__file__).parents[2] / "apps"))
from joining import make_app

PROGRAM = Path(__file__).parents[2] / "apps" / "joining.py"
SOON = 10.0


@pytest.fixture
def user_url(postgres: Server, worker_url: str) -> Iterator[str]:
    """The URL of an application that has its own table and is a member of the worker's role."""
    with postgres.connect() as admin:
        admin.execute("DROP SCHEMA IF EXISTS own CASCADE")
        admin.execute("DROP ROLE IF EXISTS shop")
        admin.execute(f"CREATE ROLE shop LOGIN IN ROLE {role(SCHEMA, 'worker')}")
        admin.execute("CREATE SCHEMA own AUTHORIZATION shop")
        admin.execute("SET ROLE shop")
        admin.execute("CREATE TABLE own.orders (number integer)")
        yield postgres.url(user="shop")
        admin.execute("RESET ROLE")
        admin.execute("DROP SCHEMA own CASCADE")
        admin.execute("DROP ROLE shop")


@pytest.fixture
async def shop(worker_url: str) -> AsyncIterator[tuple[Tidegate, Any]]:
    app, work = make_app(worker_url)
    yield app, work
    await app.aclose()


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_a_committed_transaction_creates_its_tasks(
    user_url: str, shop: Any, caller: Any, number: int
) -> None:
    app, work = shop
    ids = await called(caller, user_url, Products(app, work, number), commit=True)
    assert len(ids) == number
    for place, task_id in enumerate(ids, 1):
        assert (await app.status(task_id)).state is State.READY
        assert await core_of(app).store.get_payload(task_id) == (
            b'{"a":[],"k":{"number":%d}}' % place,
            "json/1",
        )
    assert orders(user_url) == 1


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_a_rolled_back_transaction_creates_no_task(
    user_url: str, shop: Any, caller: Any, number: int
) -> None:
    app, work = shop
    ids = await called(caller, user_url, Products(app, work, number), commit=False)
    assert len(ids) == number
    assert await core_of(app).store.read_tasks(ids) == {}
    assert orders(user_url) == 0


@pytest.mark.parametrize("number", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
async def test_a_final_hook_is_stored_with_its_task(
    user_url: str, shop: Any, caller: Any, number: int
) -> None:
    app, _ = shop

    @app.task(name="report")
    async def report(final: FinalState) -> None: ...

    @app.task(name="followed", on_final=report)
    async def followed(number: int) -> None: ...

    ids = await called(caller, user_url, Products(app, followed, number), commit=True)
    await core_of(app).store.cancel(ids)
    reports = await core_of(app).store.list_tasks(TaskFilter(function="report"))
    finals = [json.loads((await core_of(app).store.get_payload(row.id))[0])["a"][0] for row in reports]
    assert sorted(final["task_id"] for final in finals) == sorted(ids)


@pytest.mark.parametrize(("end", "tasks"), [("commit", 1), ("rollback", 0)])
async def test_django_creates_a_task_with_its_own_rows(
    worker_url: str, user_url: str, shop: Any, end: str, tasks: int
) -> None:
    done = await asyncio.to_thread(django, worker_url, user_url, end)
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 3
    assert len(await core_of(shop[0]).store.read_tasks(ids)) == 3 * tasks
    assert orders(user_url) == tasks


async def test_django_without_an_atomic_block_is_refused(worker_url: str, user_url: str) -> None:
    done = await asyncio.to_thread(django, worker_url, user_url, "autocommit")
    assert "no transaction open" in done.stderr
    assert "transaction.atomic()" in done.stderr


def django(url: str, user_url: str, end: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, url, user_url, end], capture_output=True, text=True, timeout=50
    )


async def test_a_task_is_invisible_until_the_commit(user_url: str, shop: Any) -> None:
    app, work = shop
    connection = await asyncpg.connect(user_url)
    async with connection.transaction():
        handle = await work.using(conn=connection).enqueue(1)
        assert await core_of(app).store.read_tasks([handle.id]) == {}
    assert set(await core_of(app).store.read_tasks([handle.id])) == {handle.id}
    await connection.close()


async def test_sqlalchemy_notifies_after_its_commits(user_url: str, worker_url: str, shop: Any) -> None:
    other = Tidegate(worker_url)
    await core_of(other).store.wait_for_change(0.3)
    waiting = asyncio.create_task(core_of(other).store.wait_for_change(SOON))
    await asyncio.sleep(0)
    began = asyncio.get_running_loop().time()
    await by_async_session(user_url, Products(*shop), commit=True)
    await waiting
    assert asyncio.get_running_loop().time() - began < SOON / 2
    await other.aclose()


async def test_a_task_committed_without_a_hint_runs_within_the_poll_interval(
    user_url: str, worker_url: str, shop: Any
) -> None:
    app, work = shop
    connection = await asyncpg.connect(user_url)
    async with app.worker(pools=[Pool(poll_interval=0.3)]):
        async with connection.transaction():
            ids = await app.enqueue_many([work.prepare(number) for number in range(20)], conn=connection)
        async with asyncio.timeout(SOON / 2):
            assert [await app.result(task_id) for task_id in ids] == list(range(20))
    await connection.close()


async def test_a_key_returns_one_task_across_transactions(user_url: str, shop: Any) -> None:
    _, work = shop
    connection = await asyncpg.connect(user_url)
    ids = []
    for _ in range(2):
        async with connection.transaction():
            handle = await work.using(conn=connection, key="k").enqueue(1)
            ids.append((handle.id, handle.created))
    assert ids == [(ids[0][0], True), (ids[0][0], False)]
    async with connection.transaction():
        with pytest.raises(KeyConflictError):
            await work.using(conn=connection, key="k").enqueue(2)
        assert (await work.using(conn=connection).enqueue(2)).created  # the transaction can continue
    await connection.close()


async def test_many_tasks_are_stored_like_single_ones(user_url: str, shop: Any) -> None:
    app, work = shop
    first = work.using(key="k", tenant="t", labels={"kind": "größer"}, timeout=7, deadline=50, max_attempts=2)
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    once = work.using(unique="until_final", total_timeout=NO_LIMIT, deadline=moment)
    tasks = [first.prepare(1), first.prepare(1), work.using(delay=60, priority="bulk").prepare(2),
             once.prepare(3), once.prepare(3), work.prepare(4)]  # fmt: skip
    connection = await asyncpg.connect(user_url)
    async with connection.transaction():
        ids = await app.enqueue_many(tasks, conn=connection)
    await connection.close()
    assert ids == [tasks[task_filter].task_id for task_filter in (0, 0, 2, 3, 3, 5)]
    rows = await core_of(app).store.read_tasks(ids)
    row = rows[ids[0]]
    assert (row.tenant, row.labels, row.max_attempts) == ("t", {"kind": "größer"}, 2)
    assert row.deadline_at == pytest.approx(row.enqueued_at + 50)
    assert row.key == "k"
    assert rows[ids[3]].deadline_at == moment.timestamp()
    worker = NewWorker("w", "w", "default", "here", 1, ("*",), 10, 30.0)
    await core_of(app).store.add_worker(worker)
    claim = await core_of(app).store.claim(ClaimRequest("w", 10, ("*",), {work.spec.name: CrashPolicy()}))
    totals = {task.fence.task_id: task.total_timeout_seconds for task in claim.tasks}
    assert totals == {ids[0]: None, ids[3]: NO_LIMIT, ids[5]: None}
    assert rows[ids[2]].state is State.SCHEDULED
    assert len(rows) == 4
    again = await app.enqueue_many([first.prepare(1), once.prepare(3)])
    assert again == [ids[0], ids[3]]


async def test_a_conflict_stores_none_of_many_and_the_transaction_can_continue(
    user_url: str, shop: Any
) -> None:
    app, work = shop
    keyed = work.using(key="k")
    with psycopg.connect(user_url) as connection:
        connection.execute(ORDER)
        with pytest.raises(KeyConflictError, match="'k'"):
            app.enqueue_many_sync([work.prepare(0), keyed.prepare(1), keyed.prepare(2)], conn=connection)
        handle = work.using(conn=connection, key="k").enqueue_sync(2)
    assert handle.created
    assert orders(user_url) == 1
    assert [row.id for row in await core_of(app).store.list_tasks(TaskFilter())] == [handle.id]


async def test_tasks_for_several_statements_are_stored_in_order_in_few_round_trips(
    user_url: str, shop: Any
) -> None:
    app, work = shop
    connection = await asyncpg.connect(user_url)
    sent = []
    with connection.query_logger(lambda record: sent.append(record.query)):
        async with connection.transaction():
            ids = await app.enqueue_many((work.prepare(number) for number in range(2_500)), conn=connection)
    await connection.close()
    assert len([query for query in sent if "json_to_recordset" in query]) == 3
    last = await core_of(app).store.get_payload(ids[-1])
    assert last == (b'{"a":[],"k":{"number":2499}}', "json/1")
    assert len(set(ids)) == 2_500
    assert sum(stats.ready for stats in await core_of(app).store.get_queue_stats()) == 2_500


async def test_transactions_take_the_same_names_in_one_order_across_all_statements(
    user_url: str, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue_within, "_PART_TASKS", 2)
    app, work = shop

    async def store(names: list[str]) -> None:
        connection = await asyncpg.connect(user_url)
        async with connection.transaction():
            await app.enqueue_many([work.using(key=name).prepare(1) for name in names], conn=connection)
        await connection.close()

    for number in range(10):
        names = [f"{number}-{letter}" for letter in "abcdef"]
        async with asyncio.timeout(SOON), asyncio.TaskGroup() as both:
            both.create_task(store(names))
            both.create_task(store(names[::-1]))
    assert sum(stats.ready for stats in await core_of(app).store.get_queue_stats()) == 60


async def test_many_tasks_with_one_that_cannot_be_stored_are_refused_before_sending(
    user_url: str, shop: Any
) -> None:
    app, work = shop
    bad = PreparedTask(dataclasses.replace(work.prepare(1).new_task, tenant="a\0b"))
    connection = await asyncpg.connect(user_url)
    async with connection.transaction():
        with pytest.raises(ArgumentsError, match="NUL"):
            await app.enqueue_many([work.prepare(0), bad], conn=connection)
        assert await app.enqueue_many([], conn=connection) == []
    await connection.close()
    assert await core_of(app).store.list_tasks(TaskFilter()) == []


@pytest.mark.parametrize("commit", [True, False])
async def test_many_tasks_of_one_function_are_part_of_the_callers_transaction(
    user_url: str, shop: Any, commit: bool
) -> None:
    app, work = shop
    held = await work.using(unique="until_final").enqueue(1)
    connection = await asyncpg.connect(user_url)
    transaction = connection.transaction()
    await transaction.start()
    handles = await work.using(conn=connection, unique="until_final").enqueue_many([(1,), {"number": 2}])
    await (transaction.commit() if commit else transaction.rollback())
    await connection.close()
    with psycopg.connect(user_url) as blocking:
        more = work.using(conn=blocking).enqueue_many_sync([(3,), work.prepare(4)])
        await asyncio.to_thread(blocking.commit if commit else blocking.rollback)
    assert [handle.created for handle in [*handles, *more]] == [False, True, True, True]
    assert handles[0].id == held.id
    rows = await core_of(app).store.read_tasks([handle.id for handle in [*handles, *more]])
    assert len(rows) == (4 if commit else 1)


async def test_conn_is_refused_for_a_task_that_is_only_prepared(user_url: str, shop: Any) -> None:
    _, work = shop
    with psycopg.connect(user_url) as connection, pytest.raises(UsageError, match="enqueue_many"):
        work.using(conn=connection).prepare(1)


async def test_a_connection_with_its_own_json_codec_stores_labels_unchanged(user_url: str, shop: Any) -> None:
    app, work = shop
    connection = await asyncpg.connect(user_url)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    labelled = work.using(labels={"a": "b"})
    async with connection.transaction():
        one = await work.using(labels={"a": "b"}, conn=connection).enqueue(1)
        many = await app.enqueue_many([labelled.prepare(2), labelled.prepare(3)], conn=connection)
    await connection.close()
    rows = await core_of(app).store.read_tasks([one.id, *many])
    assert [row.labels for row in rows.values()] == [{"a": "b"}] * 3


async def test_without_a_transaction_nothing_is_stored(user_url: str, shop: Any) -> None:
    app, work = shop
    connection = await asyncpg.connect(user_url)
    with pytest.raises(OptionError, match="no transaction open"):
        await work.using(conn=connection).enqueue(1)
    await connection.close()
    with pytest.raises(OptionError, match="closed"):
        await work.using(conn=connection).enqueue(1)
    engine = create_async_engine(over(user_url, "asyncpg"), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session:
        with pytest.raises(OptionError, match="no transaction open"):
            await work.using(conn=session).enqueue(1)
    await engine.dispose()
    blocking = psycopg.connect(user_url, autocommit=True)
    with blocking, pytest.raises(OptionError, match="no transaction open"):
        work.using(conn=blocking).enqueue_sync(1)
    with pytest.raises(OptionError, match="closed"):
        work.using(conn=blocking).enqueue_sync(1)
    assert await core_of(app).store.list_tasks(TaskFilter()) == []


async def test_a_blocking_connection_for_an_async_enqueue_or_the_reverse_is_refused(
    user_url: str, shop: Any
) -> None:
    _, work = shop
    connection = await asyncpg.connect(user_url)
    with pytest.raises(UsageError, match="conn= is async"):
        work.using(conn=connection).enqueue_sync(1)
    await connection.close()
    with psycopg.connect(user_url) as blocking, pytest.raises(UsageError, match="blocks"):
        await work.using(conn=blocking).enqueue(1)


@pytest.mark.parametrize("conn", [object(), "postgresql://localhost", 7])
async def test_an_object_that_is_not_a_connection_is_refused(shop: Any, conn: object) -> None:
    with pytest.raises(OptionError, match="conn= is a"):
        await shop[1].using(conn=conn).enqueue(1)


async def test_another_database_is_refused(fresh_url: str, shop: Any) -> None:
    _, work = shop
    connection = await asyncpg.connect(fresh_url)
    with pytest.raises(ConfigError, match="without the application's tables"):
        async with connection.transaction():
            await work.using(conn=connection).enqueue(1)
    await migrated(fresh_url)
    with pytest.raises(ConfigError, match="another database"):
        async with connection.transaction():
            await work.using(conn=connection).enqueue(1)
    await connection.close()


async def test_a_role_without_rights_gets_an_error_with_the_fix(
    postgres: Server, user_url: str, shop: Any
) -> None:
    _, work = shop
    with postgres.connect() as admin:
        admin.execute(f"REVOKE {role(SCHEMA, 'worker')} FROM shop")
    connection = await asyncpg.connect(user_url)
    with pytest.raises(ConfigError, match="may not enqueue"):
        async with connection.transaction():
            await work.using(conn=connection).enqueue(1)
    await connection.close()


async def test_a_sqlite_store_refuses_a_callers_connection(tmp_path: Path) -> None:
    app, work = make_app(f"sqlite:///{tmp_path}/queue.db")
    with pytest.raises(OptionError, match="PostgreSQL"):
        await work.using(conn=object()).enqueue(1)
    with pytest.raises(OptionError, match="PostgreSQL"):
        work.using(conn=object()).enqueue_sync(1)
    with pytest.raises(OptionError, match="PostgreSQL"):
        await app.enqueue_many([work.prepare(1)], conn=object())
    with pytest.raises(OptionError, match="PostgreSQL"):
        app.enqueue_many_sync([work.prepare(1)], conn=object())
    await app.aclose()
