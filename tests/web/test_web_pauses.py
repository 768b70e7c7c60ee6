"""Pauses and other changes of a running queue over HTTP: what they do, and where they are recorded."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from web_support import NO_AUTHORITIES, bearer, direct, make, serve

from tidegate import Tidegate
from tidegate.internals import core_of
from tidegate.store.controls import ControlKind, ControlReport
from tidegate.store.worker_rows import NewWorker
from tidegate.web import Role, create_app

pytestmark = pytest.mark.anyio


async def post(client: httpx2.AsyncClient, path: str, **body: Any) -> Any:
    answer = await client.post(f"/api/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_operator_pauses_and_resumes_a_queue_under_the_name_of_the_token(app: Tidegate) -> None:
    async with serve(create_app(app)) as url:
        headers = bearer(await make(app, Role.OPERATOR))
        async with httpx2.AsyncClient(
            base_url=url, headers=headers, trust_env=False, verify=NO_AUTHORITIES
        ) as client:
            done = await post(client, "queues/pause", queue="a/b", why="bad prompt")
            assert done == {"kind": "queue", "name": "a/b", "answer": "paused"}
            assert (await post(client, "queues/pause", queue="a/b"))["answer"] == "was paused already"
            (pause,) = (await client.get("/api/v1/pauses")).json()["pauses"]
            assert (pause["kind"], pause["name"], pause["why"]) == ("queue", "a/b", "bad prompt")
            assert pause["paused_by"].startswith("operator of None")
            (queue,) = (await client.get("/api/v1/queues")).json()["queues"]
            assert (queue["queue"], queue["pause"]) == ("a/b", pause)
            assert (await post(client, "queues/resume", queue="a/b"))["answer"] == "resumed"
            assert (await post(client, "queues/resume", queue="a/b"))["answer"] == "was not paused"
            assert (await client.get("/api/v1/pauses")).json() == {"pauses": []}
    entries = await (await core_of(app).opened_store()).list_audit_entries()
    assert {entry.actor for entry in entries} == {pause["paused_by"]}
    assert [(entry.action, entry.answer) for entry in reversed(entries)] == [
        ("queue paused", "paused"),
        ("queue paused", "was paused already"),
        ("queue resumed", "resumed"),
        ("queue resumed", "was not paused"),
    ]


async def test_a_function_is_paused_by_its_full_name_and_an_unknown_one_is_refused(app: Tidegate) -> None:
    async with direct(app) as client:
        assert (await post(client, "functions/pause", function="web:add"))["answer"] == "paused"
        (pause,) = (await client.get("/api/v1/pauses")).json()["pauses"]
        assert (pause["kind"], pause["name"]) == ("function", "web:add")
        refused = await client.post("/api/v1/functions/pause", json={"function": "web:ad"})
        assert (refused.status_code, "web:add" in refused.text) == (422, True)
        assert (await post(client, "functions/resume", function="web:add"))["answer"] == "resumed"


async def test_a_name_that_no_queue_can_have_is_refused(app: Tidegate) -> None:
    async with direct(app) as client:
        answer = await client.post("/api/v1/queues/pause", json={"queue": ""})
        assert answer.status_code == 422, answer.text


async def test_tasks_of_a_paused_queue_run_after_it_is_resumed(app: Tidegate) -> None:
    async with direct(app) as client:
        await post(client, "queues/pause", queue="default")
        task_id = (await client.post("/api/v1/tasks", json={"task": "web:add", "args": [1, 2]})).json()[
            "task_id"
        ]
        async with app.worker():
            probe = (await client.post("/api/v1/tasks", json={"task": "web:echo", "queue": "other"})).json()
            watcher = core_of(app).task_watcher(core_of(app).store)
            await watcher.final(probe["task_id"])  # the worker claims: had it taken the first one, it ran it
            assert (await client.get(f"/api/v1/tasks/{task_id}")).json()["state"] == "ready"
            await post(client, "queues/resume", queue="default")
            await watcher.final(task_id)
        assert (await client.get(f"/api/v1/tasks/{task_id}/result")).json()["result"] == 3


async def test_a_worker_is_quieted_and_resumed_and_a_pool_is_changed(app: Tidegate) -> None:
    store = await core_of(app).opened_store()
    await store.add_worker(NewWorker("p1", "w1", "gpu", "host", 1, ("*",), 4, lease_seconds=60.0))
    async with direct(app) as client:
        for path, body in [
            ("workers/quiet", {"worker": "w1", "why": "hot"}),
            ("workers/resume", {"worker": "w1"}),
            ("pools/set", {"pool": "gpu", "concurrency": 2}),
        ]:
            answer = await client.post(f"/api/v1/{path}", json=body)
            assert (answer.status_code, answer.json()["reporters"]) == (202, ["p1"]), answer.text
        assert (await client.post("/api/v1/workers/reload")).json()["reporters"] == ["w1@host"]
        await store.report_controls([ControlReport(ControlKind.QUIET, "w1", "p1", 2, "applied")])
        rows = (await client.get("/api/v1/controls")).json()["controls"]
        assert [(row["kind"], row["name"], row["value"], row["version"]) for row in rows] == [
            ("concurrency", "gpu", 2, 1),
            ("quiet", "w1", 0, 2),
            ("reload", "*", None, 1),
        ]
        assert [report["answer"] for report in rows[1]["reports"]] == ["applied"]
        for path, body in [
            ("workers/quiet", {"worker": "w2"}),
            ("pools/set", {"pool": "gpu", "concurrency": 0}),
        ]:
            assert (await client.post(f"/api/v1/{path}", json=body)).status_code in {409, 422}


async def test_the_rate_limit_of_a_function_is_changed(app: Tidegate) -> None:
    async with direct(app) as client:
        done = await post(client, "functions/rate-limit", function="web:add", rate="80/min")
        assert done == {"function": "web:add", "limit": "80 in 1 min"}
        refused = await client.post("/api/v1/functions/rate-limit", json={"function": "web:add", "rate": "x"})
        assert refused.status_code == 422
