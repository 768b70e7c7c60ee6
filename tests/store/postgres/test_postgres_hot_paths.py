"""What makes claims and finishes cheap: cached plans, and scans that several large claims reuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from store_build import Build, ids_of

from postgres_support import SCHEMA
from tidegate.domain.spec import Priority, Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.postgres import claim
from tidegate.store.postgres.channels import LARGE_CLAIM, PEEK_REUSE_SECONDS, KnownChannels
from tidegate.store.postgres.connecting import GENERIC_PLANS
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import in_schema, load
from tidegate.store.postgres.store import PostgresStore
from tidegate.store.rows import ClaimRequest, CrashPolicy

MODE = "SELECT current_setting('plan_cache_mode') || ' ' || pg_backend_pid()"

# --- connections -----------------------------------------------------------------------------------------


@asynccontextmanager
async def database(url: str, connections: int) -> AsyncIterator[Database]:
    store = PostgresStore(f"{url}?connections={connections}")
    try:
        yield store._database
    finally:
        await store.close()


async def mode(database: Database, *, generic_plan: bool) -> tuple[str, str]:
    """Return the plan cache mode for such work, and the server process."""
    printed: str = await database.autocommit(lambda db: db.value(MODE), generic_plan=generic_plan)
    how, _, pid = printed.partition(" ")
    return how, pid


async def test_generic_plan_statements_use_a_connection_that_plans_once(worker_url: str) -> None:
    async with database(worker_url, connections=4) as db:
        usual, usual_pid = await mode(db, generic_plan=False)
        generic_plan, steady_pid = await mode(db, generic_plan=True)
        assert (usual, generic_plan) == ("auto", "force_generic_plan")
        assert await mode(db, generic_plan=False) == ("auto", usual_pid)
        assert await mode(db, generic_plan=True) == ("force_generic_plan", steady_pid)


async def test_a_single_connection_is_switched_as_often_as_needed(worker_url: str) -> None:
    async with database(worker_url, connections=1) as db:
        found = [
            await mode(db, generic_plan=generic_plan) for generic_plan in (False, True, False, True, True)
        ]
    assert [how for how, _ in found] == [
        "auto", "force_generic_plan", "auto", "force_generic_plan", "force_generic_plan",
    ]  # fmt: skip
    assert len({pid for _, pid in found}) == 1


async def test_the_connection_limit_holds_for_both_kinds_of_plans(
    worker_url: str,
) -> None:
    async with database(worker_url, connections=3) as db:
        asked = [mode(db, generic_plan=bool(number % 2)) for number in range(40)]
        found = await asyncio.gather(*asked)
    assert [how for how, _ in found] == ["auto", "force_generic_plan"] * 20
    assert len({pid for _, pid in found}) <= 3


async def test_switching_a_connection_discards_its_plans(worker_url: str) -> None:
    async def prepare(session: PostgresSession) -> None:
        await session.script(
            "CREATE TEMP TABLE small (id integer PRIMARY KEY); INSERT INTO small VALUES (1); ANALYZE small;"
            "PREPARE probing (integer) AS SELECT 1 FROM small WHERE id = $1"
        )

    async def plan(session: PostgresSession) -> str:
        return str(await session.value("EXPLAIN (FORMAT JSON) EXECUTE probing (1)"))

    async with database(worker_url, connections=1) as db:
        await db.autocommit(prepare)
        plans = [
            await db.autocommit(plan) for _ in range(8)
        ]  # from the sixth run on, the server keeps a plan
        assert all("Seq Scan" in each for each in plans)
        assert "Index" in await db.autocommit(plan, generic_plan=True)
        assert "Seq Scan" in await db.autocommit(plan)


async def test_a_replaced_connection_is_switched_again(worker_url: str) -> None:
    async with database(worker_url, connections=1) as db:
        _, pid = await mode(db, generic_plan=True)

        async def cut(session: PostgresSession) -> None:
            await session.value("SELECT pg_terminate_backend(pg_backend_pid())")

        with pytest.raises(Exception, match="connection"):
            await db.autocommit(cut, repeatable=False, generic_plan=True)
        how, another = await mode(db, generic_plan=True)
    assert how == "force_generic_plan"
    assert another != pid


STEADY_STATEMENTS = [
    *[("claim", name) for name in ("peek", "walk", "take", "take_charged", "gates", "mark_probes")],
    *[("finish", name) for name in ("succeed", "end", "attempt", "spend", "rules", "spend_rule", "retry")],
    *[("finish", name) for name in ("release", "dead_letter", "cancel", "free_name", "count", "use")],
    *[("gates", name) for name in ("in_flight", "save", "named_locked")],
    ("extend_leases", "beat"),
    ("save_progress", "save"),
    ("read_chunks", "after"),
    *[("steps", name) for name in ("begin", "end", "rows")],
    *[("cached", name) for name in ("look", "answer", "lead", "keep", "end_wait")],
    ("get_result", "result"),
    ("get_payload", "payload"),
]
OF_TASKS = {
    "task", "payload", "ready", "running", "waiting", "archive", "dead", "result", "attempt", "action", "key",
    "chunk", "stream", "progress", "permit", "usage",
    "step", "doubt", "event_wait", "task_wait", "approval", "cache_wait", "cached_result",
    "provider_job", "provider_job_item",
}  # fmt: skip


@pytest.mark.parametrize(("operation", "name"), STEADY_STATEMENTS)
async def test_a_plan_from_empty_tables_does_not_scan_them_later(
    worker_url: str, operation: str, name: str
) -> None:
    statement = in_schema(load(operation)[name], SCHEMA)
    connection = await asyncpg.connect(worker_url)
    try:
        await connection.execute(GENERIC_PLANS)
        kinds = (await connection.prepare(statement)).get_parameters()
        nothing = f"({', '.join('NULL' for _ in kinds)})" if kinds else ""
        await connection.execute(f"PREPARE hot AS {statement}")
        reported = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE hot{nothing}")
    finally:
        await connection.close()
    for node in nodes(json.loads(reported)[0]["Plan"]):
        if node.get("Relation Name") in OF_TASKS and "Scan" in node["Node Type"]:
            by_place = node["Node Type"] == "Tid Scan"
            by_bitmap = node["Node Type"] == "Bitmap Heap Scan"
            assert by_place or by_bitmap or "Index Cond" in node, node
        if node["Node Type"] == "Bitmap Index Scan":
            assert "Index Cond" in node, node


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a plan's nodes."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


# --- looks -----------------------------------------------------------------------------------------------


class Looks:
    """Claims in the store's database with a clock for remembered scans, and counts the scans."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.count = 0
        self._database = store._database
        self._known = KnownChannels(lambda: self.now)
        look: Callable[..., object] = claim._peek_with_gates

        def counted(*given: object) -> object:
            self.count += 1
            return look(*given)

        monkeypatch.setattr(claim, "_peek_with_gates", counted)

    async def claim(self, request: ClaimRequest) -> list[str]:
        found = await claim.claim(self._database, self._known, request)
        assert found.is_alive
        return ids_of(found.tasks)

    async def is_alive(self, request: ClaimRequest) -> bool:
        found = await claim.claim(self._database, self._known, request)
        assert not found.tasks
        return found.is_alive


@pytest.fixture
def looks(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(store, monkeypatch)


async def test_a_scan_that_found_one_channel_is_reused_by_the_next_large_claim(
    build: Build, looks: Looks
) -> None:
    ids = await build.enqueue(3 * LARGE_CLAIM)
    request = build.request(await build.worker(), LARGE_CLAIM)
    assert await looks.claim(request) == ids[:LARGE_CLAIM]
    assert await looks.claim(request) == ids[LARGE_CLAIM : 2 * LARGE_CLAIM]
    assert looks.count == 1
    looks.now += PEEK_REUSE_SECONDS
    assert await looks.claim(request) == ids[2 * LARGE_CLAIM :]
    assert looks.count == 2


async def test_a_small_claim_always_scans(build: Build, looks: Looks) -> None:
    await build.enqueue(3 * LARGE_CLAIM)
    worker = await build.worker()
    await looks.claim(build.request(worker, LARGE_CLAIM))
    urgent = await build.one(priority=Priority.INTERACTIVE)
    assert await looks.claim(build.request(worker, 1)) == [urgent]


async def test_slots_that_the_reused_channel_does_not_fill_go_to_others(build: Build, looks: Looks) -> None:
    await build.enqueue(LARGE_CLAIM + 5)
    worker = await build.worker()
    await looks.claim(build.request(worker, LARGE_CLAIM))
    elsewhere = await build.enqueue(7, queue="another")
    assert len(await looks.claim(build.request(worker, LARGE_CLAIM))) == 5 + len(elsewhere)
    assert looks.count == 2


async def test_limits_declared_after_a_scan_apply_to_a_claim_that_would_reuse_it(
    store: PostgresStore, build: Build, looks: Looks
) -> None:
    await build.enqueue(3 * LARGE_CLAIM)
    request = build.request(await build.worker(), LARGE_CLAIM)
    await looks.claim(request)
    few = Limits((Window("rate_limit", 60, 60.0),))
    await store.declare_limits([LimitDeclaration(GateKind.FUNCTION, "app:work", few)])
    assert 0 < len(await looks.claim(request)) <= 60
    assert looks.count == 2


async def test_a_worker_retired_after_a_scan_gets_no_task(
    store: PostgresStore, build: Build, looks: Looks
) -> None:
    await build.enqueue(3 * LARGE_CLAIM)
    worker = await build.worker()
    await looks.claim(build.request(worker, LARGE_CLAIM))
    await store.retire_worker(worker, why="gone", is_loss=True, only_if_expired=False)
    assert not await looks.is_alive(build.request(worker, LARGE_CLAIM))


async def test_a_scan_of_one_pool_is_not_reused_by_another(build: Build, looks: Looks) -> None:
    await build.enqueue(2 * LARGE_CLAIM)
    other = await build.enqueue(LARGE_CLAIM, function="app:other")
    worker = await build.worker()
    terms = {"app:other": CrashPolicy()}
    await looks.claim(build.request(worker, LARGE_CLAIM))
    assert await looks.claim(build.request(worker, LARGE_CLAIM, functions=terms)) == other
