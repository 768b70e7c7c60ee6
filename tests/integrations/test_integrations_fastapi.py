"""FastAPI and Starlette: the lifespan, dependencies, the mounted API, and tasks stored before the answer."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import websockets
from fastapi import FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tidegate import ArgumentsError, ConfigError, StoreUnavailableError, Tidegate
from tidegate.integrations.fastapi import DurableTasksDep, DurableTasksMiddleware, QueueDep, lifespan
from tidegate.integrations.starlette import DurableTasks
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter
from tidegate.web import WebSettings, create_app

pytestmark = pytest.mark.anyio


def client_of(site: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=site, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost")


def a_site(queue: Tidegate) -> FastAPI:
    @queue.task(name="site:greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    site = FastAPI(lifespan=lifespan(queue))
    site.add_middleware(DurableTasksMiddleware, queue=queue)

    @site.post("/greet", status_code=202)
    async def submit(name: str, tasks: DurableTasksDep, fails: bool = False) -> dict[str, str]:
        task_id = tasks.add_task(greet, name)
        if fails:
            raise HTTPException(409, "no")
        return {"task_id": task_id}

    @site.post("/twice")
    async def twice(tasks: DurableTasksDep) -> list[str]:
        return [tasks.add_task(greet.using(delay=60), name) for name in ("Ada", "Bob")]

    @site.get("/state/{task_id}")
    async def state(task_id: str, queue: QueueDep) -> str:
        return (await queue.status(task_id)).state.value

    @site.post("/plain")
    async def plain(tasks: DurableTasksDep) -> None:
        tasks.add_task(print, "x")  # type: ignore[arg-type]

    @site.post("/unfit")
    async def unfit(tasks: DurableTasksDep) -> str:
        try:
            tasks.add_task(greet, 7)  # type: ignore[arg-type]
        except ArgumentsError as error:
            return error.code
        return "taken"

    return site


async def test_what_is_added_is_stored_when_the_answer_arrives(app: Tidegate) -> None:
    site = a_site(app)
    async with site.router.lifespan_context(site), client_of(site) as client:
        answer = await client.post("/greet?name=Ada")
        assert answer.status_code == 202
        assert (await app.status(answer.json()["task_id"])).state.value == "ready"
        assert (await client.get(f"/state/{answer.json()['task_id']}")).json() == "ready"
        ids = (await client.post("/twice")).json()
        rows = await core_of(app).store.read_tasks(ids)
        assert {row.state.value for row in rows.values()} == {"scheduled"}


async def test_nothing_is_stored_by_an_endpoint_that_refuses(app: Tidegate) -> None:
    site = a_site(app)
    async with site.router.lifespan_context(site), client_of(site) as client:
        assert (await client.post("/greet?name=Ada&fails=true")).status_code == 409
        assert (await client.post("/plain")).status_code == 500
        assert (await client.post("/unfit")).json() == "TG104"
        assert await core_of(app).store.list_tasks(TaskFilter()) == []


async def test_no_success_is_answered_when_the_store_is_unavailable(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = a_site(app)

    async def away(_: Any) -> Any:
        raise StoreUnavailableError("gone")

    async with site.router.lifespan_context(site), client_of(site) as client:
        monkeypatch.setattr(core_of(app).store, "enqueue", away)
        assert (await client.post("/greet?name=Ada")).status_code == 500


async def test_starlette_does_without_fastapi(app: Tidegate) -> None:
    @app.task(name="site:note")
    async def note(text: str) -> None: ...

    async def endpoint(request: Request) -> JSONResponse:
        return JSONResponse({"task_id": DurableTasks(request).add_task(note, "x")})

    site = Starlette(routes=[Route("/", endpoint, methods=["POST"])], lifespan=lifespan(app))
    with pytest.raises(ConfigError, match="DurableTasksMiddleware"):
        DurableTasks(Request({"type": "http"}))
    site.add_middleware(DurableTasksMiddleware, queue=app)
    async with site.router.lifespan_context(site), client_of(site) as client:
        task_id = (await client.post("/")).json()["task_id"]
        assert (await app.status(task_id)).function == "site:note"


async def test_a_mounted_api_answers_below_its_path_and_a_worker_may_run_inside(app: Tidegate) -> None:
    @app.task(name="site:add")
    async def add(a: int, b: int) -> int:
        return a + b

    api = create_app(app, settings=WebSettings(open_without_tokens=True))
    inner: list[str] = []

    import contextlib
    from collections.abc import AsyncIterator

    @contextlib.asynccontextmanager
    async def own(_: Any) -> AsyncIterator[None]:
        inner.append("up")
        yield
        inner.append("down")

    site = FastAPI(lifespan=lifespan(app, api=api, worker=True, within=own))
    site.mount("/tidegate", api)
    async with site.router.lifespan_context(site), client_of(site) as client, asyncio.timeout(20):
        body = {"task": "site:add", "args": [1, 2]}
        made = await client.post("/tidegate/api/v1/tasks", json=body)
        assert made.headers["location"].startswith("/tidegate/api/v1/tasks/")
        done = await client.get(f"{made.headers['location']}/result", headers={"Prefer": "wait=10"})
        assert done.json()["result"] == 3
        gone = await client.get("/tidegate/api/v1/tasks/x")
        assert gone.json()["type"] == "/tidegate/api/v1/problems/not-found"
        assert (await client.get(gone.json()["type"])).status_code == 200
        assert (await client.get("/tidegate/livez")).json() == {"status": "alive"}
    assert inner == ["up", "down"]
    assert [entry.action for entry in await (await core_of(app).opened_store()).list_audit_entries()] == [
        "submit"
    ]


async def test_a_request_without_a_queue_says_how_to_give_it_one() -> None:
    site = FastAPI()

    @site.get("/")
    async def state(queue: QueueDep) -> None: ...

    with pytest.raises(ConfigError, match="lifespan"):
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=site), base_url="http://x"
        ) as client:
            await client.get("/")


SITE = """
from fastapi import FastAPI
from tidegate import Tidegate
from tidegate.integrations.fastapi import lifespan
from tidegate.web import WebSettings, create_app

queue = Tidegate("sqlite:///queue.db")

@queue.task(name="site:later")
async def later() -> None: ...

api = create_app(queue, settings=WebSettings(open_without_tokens=True))
site = FastAPI(lifespan=lifespan(queue, api=api))
site.mount("/tidegate", api)
"""


async def test_a_stop_ends_streams_sockets_and_waits_of_a_mounted_api(tmp_path: Path) -> None:
    (tmp_path / "site_with_api.py").write_text(SITE)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/tidegate/api/v1/tasks"
    command = [sys.executable, "-m", "uvicorn", "site_with_api:site", "--log-level", "error"]
    process = subprocess.Popen(
        [*command, "--fd", str(listening.fileno())], cwd=tmp_path, pass_fds=[listening.fileno()]
    )
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            task_id = (await client.post(url, json={"task": "site:later"})).json()["task_id"]
            wait = {"Prefer": "wait=20"}
            waiting = asyncio.create_task(client.get(f"{url}/{task_id}/result", headers=wait))
            socket_url = f"{url.replace('http', 'ws')}/{task_id}/socket"
            async with (
                client.stream("GET", f"{url}/{task_id}/events") as stream,
                websockets.connect(socket_url, proxy=None) as followed,
            ):
                lines = stream.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                await followed.recv()
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(10):
                    last = [line async for line in lines if line.startswith(("event:", "data:"))][-2:]
                    assert (await waiting).status_code == 202
                    await followed.wait_closed()
            assert last == ["event: closed", 'data: {"reason":"stopping"}']
            assert followed.close_code == 1012
            assert await asyncio.to_thread(process.wait, 10) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        listening.close()
