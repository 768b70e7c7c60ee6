"""Plans of the hot statements that must not depend on the planner's estimates."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from postgres_support import SCHEMA
from tidegate.store.postgres.connecting import connect
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import in_schema, load


async def test_rows_deleted_by_a_claim_are_looked_up_in_a_hash(worker_url: str):
    take = in_schema(load("claim")["take"], SCHEMA)
    channel = [["default"], [1], [""], ["app:noop"], [0], [0.0], [500], [3], [10.0], [600.0], True, None]
    connection = await asyncpg.connect(worker_url)
    try:
        plan = "\n".join(
            row[0] for row in await connection.fetch(f"EXPLAIN {take}", None, "worker", *channel)
        )
    finally:
        await connection.close()
    assert "hashed SubPlan" in plan
    assert "Join Filter" not in plan


async def test_completions_since_ever_of_all_queues_need_one_read_of_the_tally(worker_url: str) -> None:
    done_ever = in_schema(load("get_queue_stats")["done_ever"], SCHEMA)
    connection = await asyncpg.connect(worker_url)
    try:
        await connection.execute(
            f"INSERT INTO {SCHEMA}.tally (minute, queue, function, upstream, tenant, succeeded)"
            " SELECT 1, 'q' || n % 500, 'f', '', '', 1 FROM generate_series(1, 5000) AS n"
        )
        found = await connection.fetch(done_ever)
        plan = json.loads(await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {done_ever}"))[0]["Plan"]
    finally:
        await connection.close()
    assert {tuple(row) for row in found} == {(f"q{number}", 10) for number in range(500)}
    loops = [node["Actual Loops"] for node in nodes(plan) if node.get("Relation Name") == "tally"]
    assert loops == [1]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a plan's nodes."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.mark.parametrize(("pooler", "keeps_plans"), [(False, True), (True, False)])
async def test_a_session_reports_whether_its_plans_are_kept(worker_url: str, pooler: bool, keeps_plans: bool):
    link = await connect(worker_url, pooler=pooler)
    try:
        assert PostgresSession(link, SCHEMA, None).keeps_plans is keeps_plans
    finally:
        await link.close()
