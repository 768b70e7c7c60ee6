"""Hostile requests: whatever is sent, the answer is no fault of the server, and nothing but it is harmed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
import websockets
from web_support import NO_AUTHORITIES, Served, declare, make, serve, served

from support import make_app
from tidegate import State, Tidegate
from tidegate.errors import StoreUnavailableError
from tidegate.internals import core_of
from tidegate.web import Principal, Role, create_app
from tidegate.web.offload import Offload
from tidegate.web.submit import Submitter

pytestmark = pytest.mark.anyio

DIGITS = "9" * 5000
ODD_TEXTS = [
    "\x00", "\ud800", "\u202e", "\u2028", "<img src=x onerror=alert(1)>", "'; DROP TABLE task; --", "../../etc/passwd",
    "%2f..%2f", "${7*7}", "{{7*7}}", "x" * 100_000, "", " ", "\r\nX-Injected: 1", "🌊" * 50,
]  # fmt: skip


@pytest.fixture(scope="module")
async def shared_api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """An API on a port with a worker, for the odd requests; a task of another tenant waits in it."""
    app = make_app(tmp_path_factory.mktemp("shared"))
    declare(app)
    await app.function("web:add").using(tenant="other", delay=3600).enqueue(1)
    async with served(app, worker=True) as api:
        yield api
    await app.aclose()


async def answered(client: httpx2.AsyncClient, method: str, path: str, **asked: Any) -> httpx2.Response:
    answer = await client.request(method, path, **asked)
    assert answer.status_code < 500, (method, path, asked, answer.text)
    assert "x-injected" not in answer.headers
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers.get("x-content-type-options") == "nosniff"
    return answer


@pytest.mark.parametrize(
    "raw",
    [
        f'{{"task":"web:echo","args":{{"value":{DIGITS}}}}}',
        f'{{"task":"web:add","args":{{"a":{DIGITS}}}}}',
        f'{{"task":"web:add","args":{{"a":1}},"delay_seconds":{DIGITS}}}',
        '{"task":"web:echo","args":{"value":1e999}}',
        '{"task":"web:echo","args":{"value":"\\ud800"}}',
        '{"task":"\\ud800","args":{}}',
        '{"task":"web:echo","args":{},"key":"\\ud800"}',
        '{"task":"web:echo","args":{},"labels":{"\\ud800":"x"}}',
        '{"task":"web:echo","task":"web:add","args":{"a":1}}',
        '{"task":"web:echo","args":{"value":{"$tg":"datetime","v":"not one"}}}',
        '{"task":"web:echo","args":{"value":{"$tg":"unstorable","v":[1]}}}',
        '{"task":"web:echo","args":{"value":{"$tg":{"$tg":1}}}}',
        '{"task":"web:echo","args":{"__proto__":1}}',
        '{"task":"web:echo","args":[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]}',
        '{"task":"web:echo","args":{' + ",".join(f'"k{n}":1' for n in range(20_000)) + "}}",
        '{"task":"web:echo","args":{"value":' + '"\\u0000"' + "}}",
        '{"a":' * 3000,
        "[" * 60 + "]" * 60,
        '"' + "\\" * 5000 + '"',
        "\ufeff{}",
    ],
    ids=range(20),
)
async def test_odd_json_is_accepted_or_refused(shared_api: Served, raw: str) -> None:
    async with shared_api.client(prefer="wait=5") as client:
        body = raw.encode("utf-8", "surrogatepass")
        answer = await answered(client, "POST", "/api/v1/tasks", content=body)
        batch = f'{{"tasks":[{raw}]}}'.encode("utf-8", "surrogatepass")
        await answered(client, "POST", "/api/v1/tasks/batch", content=batch)
        if answer.status_code == 200:
            json.loads(answer.text, parse_constant=lambda text: pytest.fail(text))


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_odd_texts_in_any_field_reach_no_other_tasks(shared_api: Served, text: str) -> None:
    from urllib.parse import quote

    token = await make(shared_api.app, Role.OPERATOR, "mine")
    quoted = quote(text, safe="", errors="surrogatepass")[:30_000]
    async with shared_api.client(token) as client:
        for field in ("task", "key", "unique", "run_at", "queue", "priority"):
            asked = {"task": "web:add", "args": {"a": 1}, field: text}
            await answered(client, "POST", "/api/v1/tasks", content=json.dumps(asked))
        for query in ("queue", "function", "reason", "label", "after", "state", "limit"):
            answer = await answered(client, "GET", f"/api/v1/tasks?{query}={quoted}")
            if answer.status_code == 200:
                assert {task["tenant"] for task in answer.json()["tasks"]} <= {"mine"}
            await answered(client, "GET", f"/api/v1/dead-letters?{query}={quoted}")
        for part in ("", "/result", "/history", "/events", "/nothing"):
            await answered(client, "GET", f"/api/v1/tasks/{quoted}{part}")
        await answered(
            client, "POST", "/api/v1/dead-letters/redrive", content=json.dumps({"task_ids": [text]})
        )


async def test_paths_that_look_like_public_ones_are_not(app: Tidegate) -> None:
    await make(app, Role.ADMIN)
    async with served(app) as api, api.client() as client:
        base = str(client.base_url).rstrip("/")  # a path of "//livez" alone would name a host
        for path in (
            "/api/v1/tasks/livez", "/livez/", f"{base}//livez", "/api/v1/tasks?x=/livez", "/livez/../api/v1/tasks",
            "/api/v1/problems/../tasks", "/api/v1/problems/%2e%2e/tasks", "/readyz%2f..%2fapi%2fv1%2ftasks",
            "/LIVEZ", "/api/v1/tidegate.js/", "/api/v1/queues#/livez",
        ):  # fmt: skip
            answer = await answered(client, "GET", path)
            assert answer.status_code in (401, 404), path
            assert "tasks" not in answer.text or answer.status_code != 200


@pytest.mark.parametrize(
    "header", ["Bearer", "Basic eDp5", "Bearer a b", "bearer \xff\xfe", "Bearer " + "t" * 20_000]
)
async def test_malformed_authorizations_are_refused(app: Tidegate, header: str) -> None:
    await make(app, Role.ADMIN)
    async with served(app) as api, api.client() as client:
        answer = await answered(
            client, "GET", "/api/v1/tasks", headers={"Authorization": header.encode("latin-1")}
        )  # type: ignore[dict-item]
        assert answer.status_code == 401


async def test_a_client_that_sends_its_body_never_is_refused_in_time(app: Tidegate) -> None:
    async with served(app, read_limit=0.3) as api:
        host, _, port = api.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\nContent-Type: application/json\r\n\r\n{{"
        writer.write(head.encode())
        async with asyncio.timeout(5):
            assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(app: Tidegate) -> None:
    async with served(app, wait_limit=1.0) as api, api.client(prefer="wait=1") as client:
        with pytest.raises(httpx2.TimeoutException):
            await client.post("/api/v1/tasks", json={"task": "web:add", "args": [1]}, timeout=0.2)
        async with asyncio.timeout(5):
            while api.context.waiters.taken:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "://", "x", "http://127.0.0.1:99999999", "\xff"]
)
async def test_an_origin_that_is_none_is_refused(app: Tidegate, origin: str) -> None:
    async with served(app) as api, api.client() as client:
        answer = await answered(client, "GET", "/livez", headers={"Origin": origin.encode("latin-1")})  # type: ignore[dict-item]
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        b'"' + b'\\"' * 400_000 + b"[{" * 100,
        b'"' + b'\\\n"' * 300_000 + b"[{" * 100,
        b'{"task":"' + b'\\"' * 500_000 + b"\\",
        b"[" + b"[]," * 400_000 + b"0]",
        b"[{" * 600_000,
        b'{"tasks":[' + b"0," * 600_000 + b"0]}",
        b'{"a":' + b'"' * 1_200_000,
    ],
    ids=range(7),
)
async def test_bodies_that_are_slow_to_check_are_read_quickly(app: Tidegate, body: bytes) -> None:
    async with served(app) as api, api.client() as client:
        begun = time.monotonic()
        for path in ("/api/v1/tasks", "/api/v1/tasks/batch"):
            assert (await answered(client, "POST", path, content=body)).status_code in (400, 413)
        assert time.monotonic() - begun < 5


async def test_a_batch_is_counted_before_it_is_parsed(app: Tidegate) -> None:
    async with served(app, batch_limit=3) as api, api.client() as client:
        tricky = {"task": "web:echo", "args": {"value": [[1, 2], {"a": 1, "b": 2}, "],,,,[", 4]}}
        assert (await client.post("/api/v1/tasks/batch", json={"tasks": [tricky] * 3})).status_code == 202
        for many in ({"tasks": [tricky] * 4}, {"tasks": [0] * 4}):
            assert (await client.post("/api/v1/tasks/batch", json=many)).status_code == 413
        ids = {"task_ids": ["x"] * 4}
        assert (await client.post("/api/v1/dead-letters/purge", json=ids)).status_code == 413


async def test_a_socket_that_gets_bytes_still_sends_events(app: Tidegate) -> None:
    task = await app.function("web:tokens").enqueue(20, 0.01)
    async with served(app, worker=True) as api:
        url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task.id}/socket"
        async with asyncio.timeout(20), websockets.connect(url, proxy=None) as socket:
            await socket.send(b"\x00\xff")
            reported = [str(message) async for message in socket]
        assert socket.close_code == 1000
    assert '"end"' in reported[-1]


async def test_an_outage_during_the_wait_does_not_fail_a_stored_submit(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(app) as api, api.client(prefer="wait=5") as client:

        async def gone(*_: object) -> None:
            raise StoreUnavailableError("gone", fix="wait")

        monkeypatch.setattr(await core_of(app).opened_store(), "read_stream_heads", gone)
        answer = await client.post("/api/v1/tasks", json={"task": "web:add", "args": [1]})
    assert answer.status_code == 202
    assert (await app.status(answer.json()["task_id"])).state is State.READY


async def test_a_host_that_names_an_empty_tenant_lets_nobody_see_tasks_without_one(app: Tidegate) -> None:
    await app.function("web:add").enqueue(1)

    async def of_no_tenant(_: object) -> Principal:
        return Principal("somebody", Role.VIEWER, "")

    async with (
        serve(create_app(app, authenticate=of_no_tenant)) as url,
        httpx2.AsyncClient(base_url=url, trust_env=False, verify=NO_AUTHORITIES) as client,
    ):
        assert (await answered(client, "GET", "/api/v1/tasks")).status_code == 401


async def test_other_requests_get_their_turn_while_a_large_batch_is_checked(app: Tidegate) -> None:
    one = json.dumps({"task": "web:echo", "args": {"value": [[]] * 2_000}}).encode()
    asked = [msgspec.Raw(one)] * 200
    offload = Offload()
    checking = asyncio.ensure_future(
        Submitter(core_of(app)).prepare_many(asked, Principal("somebody", Role.SUBMITTER, None), offload, {})
    )
    turns = 0
    while not checking.done():
        turns += 1
        await asyncio.sleep(0)
    offload.close()
    assert len(checking.result()) == 200
    assert turns > 3


async def test_a_path_with_a_slash_too_many_is_no_other_path(app: Tidegate) -> None:
    async with served(app) as api, api.client(await make(app, Role.ADMIN)) as client:
        assert (await answered(client, "GET", "/api/v1/tasks/")).status_code == 404
