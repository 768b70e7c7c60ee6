"""Redrives and purges of dead letters over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from web_support import make, served

from support import until
from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def dead(app: Tidegate, count: int, tenant: str = "") -> list[str]:
    """Run tasks that fail; return their ids."""
    fail = app.function("web:fail")
    ids = [(await fail.using(tenant=tenant or None).enqueue("because")).id for _ in range(count)]
    store = await core_of(app).opened_store()
    async with app.worker():
        for task_id in ids:
            await core_of(app).task_watcher(store).final(task_id)
    return ids


async def test_a_redrive_is_counted_started_followed_aborted_and_undone(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        ids = await dead(app, 3)
        chosen = {"function": "web:fail", "expect": 3}

        planned = await client.post("/api/v1/operations/redrive", json=chosen | {"dry_run": True})
        assert planned.json() == {"letters": 3, "in_doubt": 0, "canary": 3}
        started = await client.post("/api/v1/operations/redrive", json=chosen)
        operation = started.json()
        assert started.status_code == 202
        assert (operation["state"], operation["preview"]) == ("choosing", 3)
        assert operation["filter"].startswith("function=web:fail")

        url = f"/api/v1/operations/{operation['operation_id']}"
        assert (await client.get(url)).json()["kind"] == "redrive"
        listed = (await client.get("/api/v1/operations")).json()["operations"]
        assert [one["operation_id"] for one in listed] == [operation["operation_id"]]
        assert (await client.post(f"{url}/abort")).json()["state"] == "aborted"
        assert (await client.post(f"{url}/abort")).status_code == 409
        assert (await client.post(f"{url}/undo")).status_code == 409
        letters = (await client.get(f"{url}/letters")).json()["letters"]
        assert {letter["task_id"] for letter in letters} <= set(ids)


async def test_a_purge_by_filter_is_counted_started_and_followed_to_its_end(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await dead(app, 3)
        kept = await dead(app, 1, tenant="acme")
        chosen = {"tenant": "", "function": "web:fail"}

        planned = await client.post("/api/v1/operations/purge", json=chosen | {"dry_run": True})
        assert planned.json() == {"letters": 3}
        assert (await client.get("/api/v1/operations")).json()["operations"] == []
        started = await client.post("/api/v1/operations/purge", json=chosen | {"expect": 3})
        operation = started.json()
        assert (started.status_code, operation["kind"], operation["preview"]) == (202, "purge", 3)

        url = f"/api/v1/operations/{operation['operation_id']}"
        done = await until(lambda: _ended(client, url))
        assert (done["state"], done["sent"], done["skipped"]) == ("done", 3, 0)
        left = (await client.get("/api/v1/dead-letters")).json()["dead_letters"]
        assert [letter["task_id"] for letter in left] == kept
        entries = (await client.get("/api/v1/audit")).json()["entries"]
        assert [(one["action"], one["target"]) for one in entries] == [
            ("purge", f"operation {operation['operation_id']}")
        ]
        assert (await client.post(f"{url}/undo")).status_code == 409


async def _ended(client: httpx2.AsyncClient, url: str) -> dict[str, Any] | None:
    found: dict[str, Any] = (await client.get(url)).json()
    return found if found["ended_at"] is not None else None


async def test_an_unclear_or_too_large_purge_is_refused_and_a_tenant_purges_its_own_letters_only(
    app: Tidegate,
) -> None:
    mine = await make(app, Role.OPERATOR, "acme")
    for tenant in ("acme", "other"):
        await dead(app, 1, tenant)
    async with served(app) as api, api.client(mine) as me:
        for body, status in (
            ({}, 422),
            ({"everything": True, "queue": "q"}, 422),
            ({"everything": True, "expect": 0}, 409),
            ({"everything": True, "to_queue": "q"}, 400),
        ):
            answer = await me.post("/api/v1/operations/purge", json=body)
            assert answer.status_code == status, (body, answer.text)
        started = (await me.post("/api/v1/operations/purge", json={"tenant": "other"})).json()
        done = await until(lambda: _ended(me, f"/api/v1/operations/{started['operation_id']}"))
        assert done["sent"] == 1
    store = await core_of(app).opened_store()
    left = await store.list_dead_letters(TaskFilter(), limit=9)
    assert [letter.tenant for letter in left] == ["other"]


async def test_an_unclear_or_too_large_redrive_is_refused(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        await dead(app, 2)
        for body, status in (
            ({}, 422),
            ({"everything": True, "queue": "q"}, 422),
            ({"everything": True, "stop_above": 2}, 422),
            ({"everything": True, "expect": 1}, 409),
            ({"everything": True, "surprise": 1}, 400),
        ):
            answer = await client.post("/api/v1/operations/redrive", json=body)
            assert answer.status_code == status, (body, answer.text)
        assert (await client.get("/api/v1/operations")).json() == {"operations": [], "next": None}
        assert (await client.get("/api/v1/operations/0191ffff")).status_code == 404


async def test_a_tenant_starts_and_sees_operations_of_its_own_letters_only(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.OPERATOR, "acme"), await make(app, Role.OPERATOR, "other")
    for tenant in ("acme", "other"):
        await dead(app, 1, tenant)
    async with served(app) as api, api.client(mine) as me, api.client(theirs) as them:
        started = await me.post("/api/v1/operations/redrive", json={"everything": True, "tenant": "other"})
        assert started.status_code == 422
        started = await me.post("/api/v1/operations/redrive", json={"everything": True})
        operation = started.json()

        assert (operation["preview"], "tenant=acme" in operation["filter"]) == (1, True)
        url = f"/api/v1/operations/{operation['operation_id']}"
        assert (await them.get(url)).status_code == 404
        assert (await them.post(f"{url}/abort")).status_code == 404
        assert (await them.get("/api/v1/operations")).json()["operations"] == []
        assert len((await me.get("/api/v1/operations")).json()["operations"]) == 1
