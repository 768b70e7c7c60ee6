"""Maps over HTTP: enqueue, follow, cancel and retry, within one tenant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from web_support import make, served

from tidegate import Tidegate
from tidegate.web import Role

pytestmark = pytest.mark.anyio


async def run_to_the_end(app: Tidegate, client: Any, url: str) -> dict[str, Any]:
    """Run a worker until maintenance has ended the map; return the map."""
    async with app.worker():
        await app.map_handle(url.rpartition("/")[2]).wait(20)
        async with asyncio.timeout(20):
            while (found := (await client.get(url)).json())["map"]["ended_at"] is None:
                await asyncio.sleep(0.05)
    return dict(found)


async def test_a_map_is_enqueued_followed_and_its_callback_runs(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        body = {"task": "web:echo", "items": [1, {"a": 2}, [3]], "name": "n", "on_complete": "web:echo"}
        answer = await client.post("/api/v1/maps", json=body)
        assert answer.status_code == 202
        url = answer.headers["location"]
        assert answer.json()["created"] is True
        assert (await client.get(url)).json()["waiting"] == 3

        found = await run_to_the_end(app, client, url)

        assert (found["succeeded"], found["map"]["name"]) == (3, "n")
        callback = await app.result(found["map"]["callback_task_id"], 10)
        assert (callback["map_id"], callback["succeeded"]) == (found["map"]["map_id"], 3)
        items = (await client.get(f"{url}/items")).json()["items"]
        assert [(item["index"], item["state"]) for item in items] == [(at, "succeeded") for at in range(3)]
        assert await app.result(items[1]["task_id"]) == {"a": 2}
        page = (await client.get(f"{url}/items?limit=1&after=1")).json()
        assert ([item["index"] for item in page["items"]], page["next"]) == ([2], 2)
        listed = (await client.get("/api/v1/maps")).json()["maps"]
        assert [one["map_id"] for one in listed] == [found["map"]["map_id"]]


async def test_the_same_key_returns_the_same_map_and_other_items_are_refused(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        body = {"task": "web:echo", "items": [1, 2]}
        header = {"Idempotency-Key": "nightly"}
        answers = [await client.post("/api/v1/maps", json=body, headers=header) for _ in range(2)]
        assert [answer.json()["created"] for answer in answers] == [True, False]
        assert len({answer.json()["map_id"] for answer in answers}) == 1
        other = await client.post("/api/v1/maps", json=body | {"items": [1, 3]}, headers=header)
        assert other.status_code == 422
        assert other.json()["type"].endswith("key-conflict")
        both = await client.post("/api/v1/maps", json=body | {"key": "x"}, headers=header)
        assert both.status_code == 400


async def test_an_item_that_does_not_fit_is_named_and_nothing_is_enqueued(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        answer = await client.post("/api/v1/maps", json={"task": "web:add", "items": [1, "two"]})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["at"] == "items[1]"
        for body, status in (
            ({"task": "web:nothing", "items": []}, 422),
            ({"task": "web:add", "items": [1], "max_failures": -1}, 422),
            ({"task": "web:add", "items": [1], "on_complete": "web:none"}, 422),
            ({"task": "web:add", "items": [1], "surprise": 1}, 400),
        ):
            assert (await client.post("/api/v1/maps", json=body)).status_code == status, body
        assert (await client.get("/api/v1/maps")).json() == {"maps": [], "next": None}


async def test_dead_items_are_retried_and_the_rest_is_cancelled_over_http(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        answer = await client.post("/api/v1/maps", json={"task": "web:fail", "items": ["a", "b"]})
        url = answer.headers["location"]
        assert (await run_to_the_end(app, client, url))["dead"] == 2

        assert (await client.post(f"{url}/retry")).json()["sent"] == 2
        assert (await client.get(url)).json()["waiting"] == 2

        answer = await client.post("/api/v1/maps", json={"task": "web:echo", "items": [1, 2]})
        url = answer.headers["location"]
        cancelled = await client.post(f"{url}/cancel", json={"why": "wrong items"})
        assert (cancelled.json()["cancelled"], cancelled.json()["map"]["cancel_why"]) == (2, "wrong items")


async def test_a_tenant_sees_and_changes_its_own_maps_only(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.OPERATOR, "acme"), await make(app, Role.OPERATOR, "other")
    viewer = await make(app, Role.VIEWER, "acme")
    async with served(app) as api, api.client(mine) as me, api.client(theirs) as them:
        answer = await me.post("/api/v1/maps", json={"task": "web:echo", "items": [1], "key": "k"})
        url = answer.headers["location"]
        for method, path in (
            ("GET", url),
            ("GET", f"{url}/items"),
            ("POST", f"{url}/cancel"),
            ("POST", f"{url}/retry"),
        ):
            assert (await them.request(method, path)).status_code == 404, path
        assert (await them.get("/api/v1/maps")).json()["maps"] == []
        other = await them.post("/api/v1/maps", json={"task": "web:echo", "items": [2], "key": "k"})
        assert other.json()["created"] is True
        found = (await me.get(url)).json()
        assert (found["map"]["tenant"], found["cancelled"]) == ("acme", 0)
        async with api.client(viewer) as reader:
            assert (await reader.post(f"{url}/cancel")).status_code == 403
            assert (await reader.get(url)).status_code == 200


async def test_a_submitted_task_waits_for_tasks_of_its_own_tenant_only(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.SUBMITTER, "acme"), await make(app, Role.SUBMITTER, "other")
    async with served(app) as api, api.client(mine) as me, api.client(theirs) as them:
        first = (await me.post("/api/v1/tasks", json={"task": "web:echo"})).json()["task_id"]
        body = {"task": "web:echo", "after": [first], "on_failure": "cancel"}
        second = (await me.post("/api/v1/tasks", json=body)).json()["task_id"]
        assert (await app.status(second)).state == "held"
        refused = await them.post("/api/v1/tasks", json=body)
        assert refused.status_code == 404
        wrong = await me.post("/api/v1/tasks", json=body | {"on_failure": "explode"})
        assert wrong.status_code == 422
