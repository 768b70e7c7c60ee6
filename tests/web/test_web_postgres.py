"""The API and its streams on PostgreSQL: the same as on SQLite, also over several processes' stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from web_support import declare, follow, make, served

from pgserver import Server
from support import FAST
from tidegate import Pool, Tidegate
from tidegate.internals import core_of
from tidegate.web import Role

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    """A database of its own."""
    with postgres.connect() as admin:
        admin.execute("CREATE DATABASE web_api")
        yield postgres.url("web_api")
        admin.execute("DROP DATABASE web_api WITH (FORCE)")


@pytest.fixture
async def queue(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tidegate]:
    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    queue = Tidegate(url, pools=[Pool(concurrency=10, poll_interval=0.05)], timings=FAST)
    declare(queue)
    await core_of(queue).store.migrate()
    yield queue
    await queue.aclose()


async def test_a_task_is_submitted_followed_and_its_result_read(queue: Tidegate) -> None:
    async with served(queue, worker=True) as api, api.client(prefer="wait=10") as client:
        asked = {"task": "web:add", "args": {"a": 1, "b": 2}, "key": "k"}
        answers = await asyncio.gather(*(client.post("/api/v1/tasks", json=asked) for _ in range(20)))
        assert {answer.json()["result"] for answer in answers} == {3}
        assert len({answer.json()["task_id"] for answer in answers}) == 1
        streaming = (await client.post("/api/v1/tasks", json={"task": "web:tokens", "args": [20]})).json()
        events = await follow(client, streaming["task_id"], last_event_id="7")
        assert [event.data["data"] for event in events if event.name == "chunk"] == [
            f"p{n}" for n in range(8, 21)
        ]
        assert events[-1].name == "end"
        assert (await client.get("/readyz")).status_code == 200


async def test_another_processes_store_follows_live_and_a_tenant_sees_its_own(
    queue: Tidegate, url: str
) -> None:
    web = Tidegate(url)  # as a web process has it, on connections of its own
    declare(web)
    mine, theirs = await make(queue, Role.SUBMITTER, "acme"), await make(queue, Role.SUBMITTER, "other")
    async with served(web) as api, api.client(mine) as client, queue.worker():
        made = await client.post("/api/v1/tasks", json={"task": "web:tokens", "args": [20, 0.01]})
        events = await follow(client, made.json()["task_id"])
        assert [event.id for event in events if event.name == "chunk"] == [str(n) for n in range(1, 21)]
        async with api.client(theirs) as other:
            assert (await other.get(made.headers["location"])).status_code == 404
    await web.aclose()
    assert [entry.action for entry in await core_of(queue).store.list_audit_entries()] == ["submit"]


async def test_a_nul_in_any_text_is_no_fault_of_the_server(queue: Tidegate) -> None:
    task = await queue.function("web:add").enqueue(1)
    add = {"task": "web:add", "args": [1]}
    odd = "a\0b"
    async with served(queue) as api, api.client() as client:
        for field, value in (("key", odd), ("unique", odd), ("labels", {odd: odd}), ("queue", odd)):
            assert (await client.post("/api/v1/tasks", json=add | {field: value})).status_code < 500, field
        echo = {"task": "web:echo", "args": [{odd: odd}]}
        assert (await client.post("/api/v1/tasks", json=echo)).status_code == 202
        cancelled = await client.post(f"/api/v1/tasks/{task.id}/cancel", json={"why": odd})
        assert cancelled.status_code < 500, cancelled.text
        for query in ("queue", "function", "reason", "label"):
            assert (await client.get("/api/v1/tasks", params={query: f"{odd}=1"})).status_code == 400
