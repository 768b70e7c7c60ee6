"""A claim from a long backlog reads only what it takes, with any table statistics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from store_build import Build, SettableClock

from pgserver import Server
from postgres_support import SCHEMA, fresh_database, migrated
from tidegate.store.postgres.statements import in_schema, load
from tidegate.store.postgres.store import PostgresStore

FUNCTIONS = 5
QUEUES = 20
SLOTS = 100

BIG = pytest.param(500_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])


@pytest.fixture(scope="module", params=[20_000, BIG])
def backlog(postgres: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with that many ready tasks and without table statistics."""
    with fresh_database(postgres) as name:
        asyncio.run(migrated(postgres.url(name)))
        with postgres.connect(name) as admin:
            admin.execute(f"ALTER TABLE {SCHEMA}.ready SET (autovacuum_enabled = off)")
            admin.execute(filling(request.param))
        yield postgres.url(name)


def filling(tasks: int) -> str:
    """Ready tasks in many channels."""
    return f"""
    INSERT INTO {SCHEMA}.task (id, function, queue, priority, enqueued_at)
    SELECT gen_random_uuid(), 'app:f' || n % {FUNCTIONS}, 'q' || n % {QUEUES}, n % 3, n
    FROM generate_series(1, {tasks}) AS n;
    INSERT INTO {SCHEMA}.payload (task_id, codec_tag, args) SELECT id, 'json', '1' FROM {SCHEMA}.task;
    INSERT INTO {SCHEMA}.ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
    SELECT id, queue, priority, '', function, '', enqueued_at, enqueued_at, 0 FROM {SCHEMA}.task;
    """


async def explained(connection: Any, operation: str, name: str, *values: Any) -> dict[str, Any]:
    """Return the plan of a statement that was run and rolled back."""
    statement = in_schema(load(operation)[name], SCHEMA)
    undone = connection.transaction()
    await undone.start()
    try:
        found = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *values)
    finally:
        await undone.rollback()
    plan: dict[str, Any] = json.loads(found)[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a plan's nodes."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def reads_of(plan: dict[str, Any], table: str) -> set[str]:
    """Return how a plan reads a table."""
    return {
        node.get("Index Name", node["Node Type"])
        for node in nodes(plan)
        if node.get("Relation Name") == table and node["Node Type"] != "ModifyTable"
    }


def buffers(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_claim_reads_only_the_tasks_it_takes_from_a_long_backlog(
    backlog: str, is_known: bool
) -> None:
    store = PostgresStore(backlog)
    worker = await Build(store, SettableClock()).worker()
    connection: Any = await asyncpg.connect(backlog)
    try:
        if is_known:
            await connection.execute("ANALYZE")
        unbound = [None] * 6
        functions = ["app:f0", "app:f1"]
        peek = await explained(
            connection, "claim", "peek", worker, None, functions, SLOTS, False, 2_000, *unbound, [], []
        )
        channels = FUNCTIONS * QUEUES * 3
        assert reads_of(peek, "ready") == {"ready_channel"}
        assert buffers(peek) < 5 * channels + channels * SLOTS
        two = (["q0", "q5"], [0, 1], ["", ""], ["app:f0"] * 2, [0, 0], [0.0] * 2, [SLOTS // 2] * 2)
        terms = ([3, 3], [1.0, 1.0], [60.0, 60.0])
        take = await explained(connection, "claim", "take", None, worker, *two, *terms, True, None)
        assert take["Actual Rows"] == SLOTS
        assert reads_of(take, "ready") == {"ready_channel", "Tid Scan"}
        assert reads_of(take, "payload") == {"payload_pkey"}
        assert buffers(take) < 20 * SLOTS
    finally:
        await connection.close()
        await store.close()
