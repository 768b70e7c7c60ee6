"""`SELECT tidegate.enqueue(…)`: enqueue with plain SQL, from any language, in the caller's own transaction."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from pgserver import Server
from postgres_support import SCHEMA, fresh_database, migrated
from tidegate import FinalState, Priority, State, Tidegate
from tidegate.internals import core_of
from tidegate.store.postgres.roles import role, roles_sql
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter, TaskRow

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(worker_url: str) -> AsyncIterator[Tidegate]:
    """An application whose manifest is stored, as its first worker stores it."""
    application = Tidegate(worker_url)

    @application.task(name="shop:pack", queue="parcels", priority="bulk")
    async def pack(order: int, *, gift: bool = False) -> str:
        return f"{order} {gift}"

    core = core_of(application)
    await (await core.opened_store()).save_manifest("shop:app", core.manifest())
    yield application
    await application.aclose()


@pytest.fixture
def store(app: Tidegate) -> Store:
    return core_of(app).store


@pytest.fixture
def only_enqueues(postgres: Server, app: Tidegate) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the role that may only enqueue."""
    with psycopg.connect(postgres.url(user=role(SCHEMA, "enqueuer")), autocommit=True) as connection:
        yield connection


def enqueue(connection: psycopg.Connection[Any], arguments: str, *values: Any) -> str:
    row = connection.execute(f"SELECT tidegate.enqueue({arguments})", values).fetchone()
    assert row is not None
    return str(row[0])


async def row_of(store: Store, task_id: str) -> TaskRow:
    return (await store.read_tasks([task_id]))[task_id]


async def test_a_task_enqueued_by_sql_runs_with_its_arguments_by_name_or_by_position(
    app: Tidegate, only_enqueues: psycopg.Connection[Any]
) -> None:
    by_name = enqueue(only_enqueues, """'shop:pack', '{"order": 7, "gift": true}'""")
    by_position = enqueue(only_enqueues, "'shop:pack', '[8]'")
    async with app.worker():
        assert await app.handle(by_name).result("20s") == "7 True"
        assert await app.handle(by_position).result("20s") == "8 False"


async def test_queue_priority_and_the_rest_are_the_functions_own_unless_given(
    store: Store, only_enqueues: psycopg.Connection[Any]
) -> None:
    plain = await row_of(store, enqueue(only_enqueues, "'shop:pack', '[1]'"))
    assert (plain.queue, plain.priority, plain.tenant, plain.state) == (
        "parcels",
        Priority.BULK,
        "",
        State.READY,
    )
    given = enqueue(
        only_enqueues,
        """'shop:pack', args => '[1]', queue => 'fast', priority => 'interactive', tenant => 'acme',
        delay => interval '1 hour', labels => '{"from": "rails"}'""",
    )
    row = await row_of(store, given)
    assert (row.queue, row.priority, row.tenant, row.state) == (
        "fast",
        Priority.INTERACTIVE,
        "acme",
        State.SCHEDULED,
    )
    assert row.labels == {"from": "rails"}
    assert row.due_at == pytest.approx(row.enqueued_at + 3600.0, abs=0.1)
    at = await row_of(store, enqueue(only_enqueues, "'shop:pack', '[1]', run_at => '2100-01-01 00:00+00'"))
    assert at.due_at == 4_102_444_800.0


async def test_a_functions_deadline_and_final_hook_count_for_tasks_that_sql_enqueues(
    app: Tidegate, store: Store, only_enqueues: psycopg.Connection[Any]
) -> None:
    received: list[FinalState] = []

    @app.task(name="shop:after")
    async def after(state: FinalState) -> None:
        received.append(state)

    @app.task(name="shop:slow", deadline="1h", on_final=after)
    async def slow() -> None: ...

    core = core_of(app)
    await store.save_manifest("shop:app", core.manifest())
    task_id = enqueue(only_enqueues, "'shop:slow'")
    row = await row_of(store, task_id)
    assert row.deadline_at == pytest.approx(row.enqueued_at + 3600.0, abs=0.1)
    async with app.worker():
        await core.task_watcher(store).final(task_id)
        async with asyncio.timeout(20):
            while not received:
                await store.wait_for_change(0.2)
    assert received[0].task_id == task_id


async def test_ids_are_of_version_7_and_rise_with_time(only_enqueues: psycopg.Connection[Any]) -> None:
    before = time.time_ns() // 1_000_000
    ids = []
    for _ in range(3):
        ids.append(uuid.UUID(enqueue(only_enqueues, "'shop:pack', '[1]'")))
        only_enqueues.execute("SELECT pg_sleep(0.002)")
    assert [(each.version, each.variant) for each in ids] == [(7, uuid.RFC_4122)] * 3
    assert ids == sorted(ids)
    assert before - 1000 <= ids[0].int >> 80 <= time.time_ns() // 1_000_000 + 1000


async def test_a_rollback_leaves_no_task_and_a_commit_leaves_one(
    store: Store, postgres: Server, only_enqueues: psycopg.Connection[Any]
) -> None:
    with only_enqueues.transaction(force_rollback=True):
        gone = enqueue(only_enqueues, "'shop:pack', '[1]'")
    assert await store.read_tasks([gone]) == {}
    with only_enqueues.transaction():
        kept = enqueue(only_enqueues, "'shop:pack', '[1]'")
        assert await store.read_tasks([kept]) == {}  # nobody sees it before the commit
    assert (await row_of(store, kept)).state is State.READY


async def test_a_trigger_enqueues_with_the_rows_it_sees(
    store: Store, postgres: Server, app: Tidegate
) -> None:
    owner = role(SCHEMA, "enqueuer")
    with postgres.connect() as admin:
        admin.execute(f"CREATE SCHEMA orders AUTHORIZATION {owner}")
    try:
        with psycopg.connect(postgres.url(user=owner), autocommit=True) as connection:
            connection.execute("CREATE TABLE orders.placed (number integer)")
            connection.execute(
                """
                CREATE FUNCTION orders.pack() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN
                    PERFORM tidegate.enqueue(
                        'shop:pack', jsonb_build_object('order', NEW.number), key => 'order-' || NEW.number
                    );
                    RETURN NEW;
                END $$;
                CREATE TRIGGER pack AFTER INSERT ON orders.placed FOR EACH ROW EXECUTE FUNCTION orders.pack();
                """
            )
            with connection.transaction(force_rollback=True):
                connection.execute("INSERT INTO orders.placed VALUES (1)")
            connection.execute("INSERT INTO orders.placed SELECT generate_series(2, 4)")
        (stats,) = await store.get_queue_stats()
        assert (stats.queue, stats.ready) == ("parcels", 3)
    finally:
        with postgres.connect() as admin:
            admin.execute("DROP SCHEMA orders CASCADE")


async def test_a_key_returns_the_first_task_and_refuses_other_arguments(
    only_enqueues: psycopg.Connection[Any],
) -> None:
    first = enqueue(only_enqueues, "'shop:pack', '[1]', key => 'k'")
    assert enqueue(only_enqueues, "'shop:pack', '[1]', key => 'k'") == first
    with pytest.raises(errors.UniqueViolation, match=f"belongs to task {first}"):
        enqueue(only_enqueues, "'shop:pack', '[2]', key => 'k'")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ("'shop:pakc'", errors.InvalidParameterValue, "no application that ran here declares"),
        ("NULL", errors.InvalidParameterValue, "no application that ran here declares"),
        ("'shop:pack', '3'", errors.InvalidParameterValue, "args must be a JSON object"),
        ("'shop:pack', NULL", errors.InvalidParameterValue, "args must be a JSON object"),
        ("'shop:pack', '{'", errors.InvalidTextRepresentation, "json"),
        ("'shop:pack', priority => 'high'", errors.InvalidParameterValue, "invalid priority: 'high'"),
        ("'shop:pack', queue => ' q'", errors.InvalidParameterValue, "invalid queue name"),
        ("'shop:pack', key => ''", errors.InvalidParameterValue, "invalid key"),
        ("'shop:pack', labels => '[1]'", errors.InvalidParameterValue, "labels must be"),
        ("'shop:pack', labels => '{\"a\": 1}'", errors.InvalidParameterValue, "labels must be"),
        ("'shop:pack', run_at => 'infinity'", errors.DatetimeFieldOverflow, "never be due"),
        ("'shop:pack', jsonb_build_array(repeat('x', 1048577))", errors.ProgramLimitExceeded, "too large"),
    ],
)
async def test_what_cannot_be_enqueued_is_an_error_in_the_callers_transaction(
    store: Store, only_enqueues: psycopg.Connection[Any], arguments: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        enqueue(only_enqueues, arguments)
    assert await store.get_queue_stats() == []


async def test_an_undeclared_function_is_accepted_on_request_and_waits_for_a_worker_that_has_it(
    store: Store, only_enqueues: psycopg.Connection[Any]
) -> None:
    task_id = enqueue(only_enqueues, "'shop:later', unknown_ok => true")
    row = await row_of(store, task_id)
    assert (row.queue, row.priority, row.state) == ("default", Priority.NORMAL, State.READY)


async def test_arguments_that_do_not_fit_make_a_dead_letter_that_says_so(
    app: Tidegate, store: Store, only_enqueues: psycopg.Connection[Any]
) -> None:
    wrong_type = enqueue(only_enqueues, """'shop:pack', '{"order": "seven"}'""")
    wrong_name = enqueue(only_enqueues, """'shop:pack', '{"order": 7, "gft": true}'""")
    missing = enqueue(only_enqueues, "'shop:pack'")
    async with app.worker():
        for task_id in (wrong_type, wrong_name, missing):
            await core_of(app).task_watcher(store).final(task_id)
    letters = {letter.task_id: letter for letter in await store.list_dead_letters(TaskFilter(), limit=10)}
    assert {letter.reason for letter in letters.values()} == {"invalid_request"}
    assert "order" in letters[wrong_type].message
    assert "gft" in letters[wrong_name].message or "(order" in letters[wrong_name].message
    assert len(letters) == 3


async def test_the_enqueuer_may_do_nothing_else_and_a_reader_may_not_enqueue(
    postgres: Server, only_enqueues: psycopg.Connection[Any]
) -> None:
    for statement in (
        "SELECT * FROM tidegate.task",
        "DELETE FROM tidegate.ready",
        "INSERT INTO tidegate.pause VALUES ('queue', 'q', 0, '', '')",
        "SELECT tidegate.unsee_1(gen_random_uuid())",
        "CREATE TABLE tidegate.mine (id integer)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            only_enqueues.execute(statement)
    with psycopg.connect(postgres.url(user=role(SCHEMA, "reader")), autocommit=True) as reader:
        reader.execute("SET default_transaction_read_only = off")
        with pytest.raises(errors.InsufficientPrivilege, match="enqueue"):
            reader.execute("SELECT tidegate.enqueue('shop:pack', '[1]')")


async def test_a_hostile_search_path_changes_nothing_of_what_the_function_does(
    store: Store, postgres: Server, app: Tidegate
) -> None:
    with postgres.connect() as admin:
        admin.execute(f"CREATE SCHEMA hostile AUTHORIZATION {role(SCHEMA, 'enqueuer')}")
    try:
        with psycopg.connect(postgres.url(user=role(SCHEMA, "enqueuer")), autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION hostile.length(bytea) RETURNS integer LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE 'this must not run with the rights of the owner'; END $$"
            )
            connection.execute("SET search_path = hostile, pg_catalog")
            enqueue(connection, "'shop:pack', '[1]'")
    finally:
        with postgres.connect() as admin:
            admin.execute("DROP SCHEMA hostile CASCADE")


async def test_roles_made_after_the_upgrade_and_again_have_the_same_rights(postgres: Server) -> None:
    with fresh_database(postgres) as name:
        await migrated(f"{postgres.url(name)}?schema=late")
        with postgres.connect(name) as admin:
            for _ in range(2):
                admin.execute(roles_sql("late"))
            rights = {
                kind: admin.execute(
                    "SELECT bool_or(has_function_privilege(%s, oid, 'EXECUTE')) FROM pg_proc"
                    " WHERE proname = 'enqueue' AND pronamespace = 'late'::regnamespace",
                    [role("late", kind)],
                ).fetchone()
                for kind in ("enqueuer", "worker", "reader")
            }
            assert rights == {"enqueuer": (True,), "worker": (True,), "reader": (False,)}
            admin.execute("DROP SCHEMA late CASCADE")
            for kind in ("migrator", "worker", "reader", "enqueuer"):
                admin.execute(f"DROP OWNED BY {role('late', kind)}; DROP ROLE {role('late', kind)}")


async def test_psql_enqueues_too(app: Tidegate, postgres: Server) -> None:
    url = postgres.url(user=role(SCHEMA, "enqueuer"))
    statement = "SELECT tidegate.enqueue('shop:pack', '{\"order\": 9}')"
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not installed here; the other tests send the same statement by psycopg")
    done = subprocess.run([psql, url, "-XAtc", statement], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    async with app.worker():
        assert await app.handle(done.stdout.strip()).result("20s") == "9 False"
