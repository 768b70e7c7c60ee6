"""Sizes of tables and forgetting over HTTP."""

from __future__ import annotations

import pytest
from web_support import make, served

from tidegate import Tidegate
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def test_the_sizes_of_the_tables_are_shown_the_largest_first(app: Tidegate) -> None:
    await app.function("web:add").enqueue(1)
    async with served(app) as api, api.client() as client:
        sizes = (await client.get("/api/v1/database/sizes")).json()
    assert sizes["bytes"] > 0
    assert [table["rows"] for table in sizes["tables"] if table["table"] == "task"] == [1]
    bytes_of_tables = [table["bytes"] for table in sizes["tables"]]
    assert bytes_of_tables == sorted(bytes_of_tables, reverse=True)


async def test_an_admin_forgets_a_tenant_and_the_audit_log_says_who_did(app: Tidegate) -> None:
    admin = await make(app, Role.ADMIN)
    add = app.function("web:add")
    other = await add.using(tenant="other").enqueue(1)
    for _ in range(2):
        await add.using(tenant="acme", delay=3_600).enqueue(1)
    async with served(app) as api, api.client(admin) as client:
        planned = await client.post("/api/v1/forget", json={"tenant": "acme", "dry_run": True})
        assert (planned.json()["tasks"], planned.json()["unfinished"]) == (2, 2)
        refused = await client.post("/api/v1/forget", json={"tenant": "acme"})
        assert refused.status_code == 409
        assert "2 tasks are not final" in refused.text
        done = await client.post("/api/v1/forget", json={"tenant": "acme", "cancel": True})
        assert (done.json()["tasks"], done.json()["not_erased"]) == (2, "")
        left = (await client.get("/api/v1/tasks")).json()["tasks"]
        assert [task["task_id"] for task in left] == [other.id]
        (entry,) = (await client.get("/api/v1/audit")).json()["entries"]
        assert (entry["action"], entry["role"]) == ("forget", "admin")
        assert "acme" not in str(entry)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"tenant": "a", "task_id": "0191ffff"}, 422),
        ({"task_id": "0191ffff"}, 404),
        ({"id": "a"}, 400),
    ],
)
async def test_an_unclear_or_unknown_thing_to_forget_is_refused(
    app: Tidegate, body: dict[str, str], status: int
) -> None:
    async with served(app) as api, api.client() as client:
        assert (await client.post("/api/v1/forget", json=body)).status_code == status
