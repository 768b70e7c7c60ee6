"""No token and no tenant takes all places of a process: streams, waits, bodies in flight."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx2
import pytest
import websockets
from web_support import Served, bearer, make, served

from tidegate import Tidegate
from tidegate.domain.access import Principal, Role
from tidegate.web.capacity import NoCapacityError, SharedCapacity

pytestmark = pytest.mark.anyio


def token(name: str, tenant: str | None = None) -> Principal:
    return Principal(name, Role.SUBMITTER, tenant)


def fill(capacity: SharedCapacity, stack: contextlib.ExitStack, principal: Principal) -> int:
    """Take places one by one until no more are given; return how many."""
    for count in range(10_000):
        try:
            stack.enter_context(capacity.take(principal))
        except NoCapacityError:
            return count
    raise AssertionError("without a limit")


def test_one_token_gets_half_and_all_of_a_tenant_two_thirds() -> None:
    capacity = SharedCapacity(900)
    with contextlib.ExitStack() as stack:
        assert fill(capacity, stack, token("a", "acme")) == 450
        assert sum(fill(capacity, stack, token(f"b{n}", "acme")) for n in range(50)) == 150
        assert fill(capacity, stack, token("other", "globex")) == 150
        assert fill(capacity, stack, token("all tenants")) == 75
    assert capacity.taken == 0


def test_a_new_token_gets_capacity_while_fewer_tokens_than_the_total_are_greedy() -> None:
    capacity = SharedCapacity(1_000)
    with contextlib.ExitStack() as stack:
        for number in range(9):
            assert fill(capacity, stack, token(f"greedy {number}")) > 0
        assert fill(capacity, stack, token("newcomer")) > 0


def test_capacity_is_released_and_a_large_amount_counts_against_the_share() -> None:
    capacity = SharedCapacity(100)
    for _ in range(3):
        with capacity.take(token("a"), 50), pytest.raises(NoCapacityError), capacity.take(token("a"), 1):
            pass
        with pytest.raises(NoCapacityError), capacity.take(token("a"), 101):
            pass
    assert capacity.taken == 0


async def store_task(api: Served, tenant: str) -> str:
    """Store a task of a tenant; return its path."""
    return f"/api/v1/tasks/{(await api.app.function('web:add').using(tenant=tenant).enqueue(1)).id}"


async def test_one_token_leaves_streams_to_others_by_events_and_by_socket(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.SUBMITTER, "acme"), await make(app, Role.SUBMITTER, "globex")
    async with (
        served(app, followers=4) as api,
        api.client(mine) as me,
        api.client(theirs) as them,
        contextlib.AsyncExitStack() as stack,
    ):
        path, their_path = await store_task(api, "acme"), await store_task(api, "globex")
        for _ in range(2):
            stream = await stack.enter_async_context(me.stream("GET", f"{path}/events"))
            assert stream.status_code == 200
        refused = await me.get(f"{path}/events")
        assert refused.status_code == 503
        assert refused.json()["type"].endswith("too-many-followers")
        with pytest.raises(websockets.InvalidStatus):
            await stack.enter_async_context(
                websockets.connect(
                    f"{api.url.replace('http', 'ws')}{path}/socket",
                    additional_headers=bearer(mine),
                    proxy=None,
                )
            )
        stream = await stack.enter_async_context(them.stream("GET", f"{their_path}/events"))
        assert stream.status_code == 200


async def test_one_token_leaves_waits_to_others(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.SUBMITTER, "acme"), await make(app, Role.SUBMITTER, "globex")
    async with served(app, waiters=4) as api, api.client(mine) as me, api.client(theirs) as them:
        path, their_path = await store_task(api, "acme"), await store_task(api, "globex")
        wait = {"Prefer": "wait=20"}
        waiting = [asyncio.create_task(me.get(f"{path}/result", headers=wait)) for _ in range(2)]
        async with asyncio.timeout(10):
            while api.context.waiters.taken < 2:
                await asyncio.sleep(0.01)
            assert (await me.get(f"{path}/result", headers=wait)).status_code == 202
        theirs_waits = asyncio.create_task(them.get(f"{their_path}/result", headers=wait))
        async with asyncio.timeout(10):
            while api.context.waiters.taken < 3:
                await asyncio.sleep(0.01)
        for one in (*waiting, theirs_waits):
            one.cancel()


async def test_one_token_leaves_capacity_for_the_submits_of_others(app: Tidegate) -> None:
    mine, theirs = await make(app, Role.SUBMITTER, "acme"), await make(app, Role.SUBMITTER, "globex")
    async with (
        served(app, bodies_in_flight=100_000, read_limit=20) as api,
        api.client(mine) as me,
        api.client(theirs) as them,
    ):
        host, _, port = api.url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = (
            f"POST /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {mine}\r\n"
            "Content-Type: application/json\r\nContent-Length: 50000\r\n\r\n{"
        )
        writer.write(head.encode())
        submit = {"task": "web:add", "args": [1]}

        async def refused() -> httpx2.Response:
            async with asyncio.timeout(10):
                while (answer := await me.post("/api/v1/tasks", json=submit)).status_code == 202:
                    await asyncio.sleep(0.01)
                return answer

        answer = await refused()
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert (await them.post("/api/v1/tasks", json=submit)).status_code == 202
        writer.write(json.dumps(submit).encode())
        writer.close()
        async with asyncio.timeout(10):
            while (await me.post("/api/v1/tasks", json=submit)).status_code == 429:
                await asyncio.sleep(0.01)
