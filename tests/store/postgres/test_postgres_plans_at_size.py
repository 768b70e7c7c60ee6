"""The plans of claim, finish and promotion in large tables: by index and ctid, reading only the pages they
need."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from pgserver import Server
from postgres_support import SCHEMA, fresh_database, migrated
from tidegate.store.postgres.connecting import GENERIC_PLANS
from tidegate.store.postgres.statements import in_schema, load

CHANNELS = ("a", "b", "c", "d", "e")
SLOTS = 500
PAGES_A_TASK = {"peek": 3, "take": 40, "succeed": 40, "due": 10}
"""Most pages read per task, most of them repeatedly. A scan of a whole table needs far more."""

OF_TASKS = frozenset({"task", "payload", "ready", "running", "waiting", "archive", "key"})

FILL = """
CREATE TEMP TABLE new AS
SELECT n, (lpad(to_hex(n), 12, '0') || '7000' || '8' || substr(md5(n::text), 1, 15))::uuid AS id
FROM generate_series(1, {ready} * 3) AS n;
INSERT INTO task (id, function, queue, priority, enqueued_at)
SELECT id, 'app:' || substr('abcde', 1 + n % 5, 1), 'default', 1, n FROM new;
INSERT INTO payload (task_id, codec_tag, args) SELECT id, 'json/1', '{{}}' FROM new;
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
SELECT id, 'default', 1, '', 'app:' || substr('abcde', 1 + n % 5, 1), '', n, n, 0 FROM new WHERE n <= {ready};
INSERT INTO archive (task_id, state, run, finished_at)
SELECT id, 'succeeded', 1, n FROM new WHERE n > {ready} AND n <= {ready} * 2;
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
SELECT id, 'scheduled', n, 'default', 1, '', 'app:a', '', n, 0 FROM new WHERE n > {ready} * 2;
INSERT INTO key (kind, tenant, name, task_id, fingerprint, expires_at)
SELECT 'key', '', n::text, id, '', n + 1e9 FROM new WHERE n <= {ready};
INSERT INTO worker (id, name, pool, host, pid, queues, slots, version, started_at, heartbeat_at, expires_at)
VALUES ('w', 'w', 'p', 'h', 1, '["*"]', 500, '1', 0, 0, 1e12);
"""


@pytest.fixture(scope="module", params=[20_000, pytest.param(500_000, marks=pytest.mark.slow)])
def full(request: pytest.FixtureRequest, postgres: Server) -> Iterator[str]:
    """The URL of a database with this many ready, finished and scheduled tasks each."""
    with fresh_database(postgres) as name:
        asyncio.run(migrated(postgres.url(name)))
        with postgres.connect(name) as admin:
            admin.execute(f"SET search_path = {SCHEMA}")
            admin.execute(FILL.format(ready=request.param))
            admin.execute("VACUUM ANALYZE")
        yield postgres.url(name)


class Explained:
    """Runs statements with EXPLAIN, in a transaction that is rolled back."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def plan(self, operation: str, name: str, *values: object) -> dict[str, Any]:
        """Return the executed plan."""
        statement = in_schema(load(operation)[name], SCHEMA)
        reported = await self._connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *values
        )
        plan: dict[str, Any] = json.loads(reported)[0]["Plan"]
        return plan

    async def rows(self, operation: str, name: str, *values: object) -> list[Any]:
        """Return the rows."""
        found: list[Any] = await self._connection.fetch(in_schema(load(operation)[name], SCHEMA), *values)
        return found


@pytest.fixture(params=["usual", "steady"])
async def explained(full: str, request: pytest.FixtureRequest) -> AsyncIterator[Explained]:
    async with undone(full) as connection:
        if request.param == "steady":
            await connection.execute(GENERIC_PLANS)
        yield Explained(connection)


@asynccontextmanager
async def undone(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def held_to(plan: dict[str, Any], name: str, tasks: int) -> None:
    """Check that a plan follows the rules of all hot statements."""
    whole = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert not OF_TASKS & set(whole)
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages <= PAGES_A_TASK[name] * tasks


def peek_of(functions: tuple[str, ...]) -> tuple[object, ...]:
    names = [f"app:{name}" for name in functions]
    return ("w", None, names, SLOTS, False, 2_000, *[None] * 6, [], [])


def take_of(channels: tuple[str, ...], tasks: int) -> tuple[object, ...]:
    each = len(channels)
    return (
        None, "w", ["default"] * each, [1] * each, [""] * each, [f"app:{channel}" for channel in channels], [0] * each,
        [0.0] * each, [tasks // each] * each, [3] * each, [10.0] * each, [600.0] * each, True, None,
    )  # fmt: skip


@pytest.mark.parametrize("functions", [CHANNELS, CHANNELS[:1]], ids=["five lanes", "one lane"])
async def test_a_scan_reads_channels_from_their_index_alone(
    explained: Explained, functions: tuple[str, ...]
) -> None:
    plan = await explained.plan("claim", "peek", *peek_of(functions))
    held_to(plan, "peek", SLOTS * len(functions))
    reads = [node for node in nodes(plan) if node.get("Relation Name") == "ready"]
    assert reads
    assert {node["Index Name"] for node in reads} == {"ready_channel"}
    assert not any(node["Node Type"] == "Bitmap Heap Scan" for node in reads)


@pytest.mark.parametrize("channels", [CHANNELS, CHANNELS[:1]], ids=["five lanes", "one lane"])
async def test_a_claim_deletes_by_ctid_and_touches_only_the_rows_it_takes(
    explained: Explained, channels: tuple[str, ...]
) -> None:
    plan = await explained.plan("claim", "take", *take_of(channels, SLOTS))
    held_to(plan, "take", SLOTS)
    assert _deleted_by(plan, "ready") == "Tid Scan"
    assert plan["Actual Rows"] == SLOTS


async def test_a_finish_deletes_by_ctid_and_touches_only_the_rows_it_ends(explained: Explained) -> None:
    taken = await explained.rows("claim", "take", *take_of(CHANNELS, SLOTS))
    ids = sorted(row["task_id"] for row in taken)
    plan = await explained.plan("finish", "succeed", None, ids, [1] * len(ids), [], [], [], False)
    held_to(plan, "succeed", SLOTS)
    assert _deleted_by(plan, "running") == "Tid Scan"
    assert plan["Actual Rows"] == SLOTS


async def test_a_promotion_reads_due_tasks_in_index_order(explained: Explained) -> None:
    plan = await explained.plan("promote", "due", None, SLOTS)
    held_to(plan, "due", SLOTS)
    [read] = [node for node in nodes(plan) if node.get("Relation Name") == "waiting"]
    assert (read["Node Type"], read["Index Name"]) == ("Index Scan", "waiting_due")
    assert not any(node["Node Type"] == "Sort" for node in nodes(plan))


def _deleted_by(plan: dict[str, Any], table: str) -> str:
    """Return how the rows that are deleted from a table are found."""
    [deletion] = [
        node
        for node in nodes(plan)
        if node["Node Type"] == "ModifyTable"
        and node["Operation"] == "Delete"
        and node["Relation Name"] == table
    ]
    [scan] = [node for node in deletion["Plans"] if node.get("Relation Name") == table]
    found: str = scan["Node Type"]
    return found
