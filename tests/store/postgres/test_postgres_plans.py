"""How PostgreSQL runs the hot statements: what must not depend on what the planner believes."""

import asyncpg
import pytest

from postgres_support import SCHEMA
from tidegate.store.postgres.links import connect
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import in_schema, load


async def test_what_a_claim_deleted_is_looked_up_in_a_hash_and_not_compared_pair_by_pair(worker_url: str):
    take = in_schema(load("claim")["take"], SCHEMA)
    lane = [["default"], [1], [""], ["app:noop"], [0], [0.0], [500], [3], [10.0], [600.0]]
    connection = await asyncpg.connect(worker_url)
    try:
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {take}", None, "worker", *lane))
    finally:
        await connection.close()
    assert "hashed SubPlan" in plan
    assert "Join Filter" not in plan


@pytest.mark.parametrize(("pooler", "keeps_plans"), [(False, True), (True, False)])
async def test_a_session_knows_whether_its_plans_are_kept(worker_url: str, pooler: bool, keeps_plans: bool):
    link = await connect(worker_url, pooler=pooler)
    try:
        assert Session(link, SCHEMA, None).keeps_plans is keeps_plans
    finally:
        await link.close()
