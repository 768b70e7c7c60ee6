"""Following over HTTP: every chunk once, from any place, to one end; nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
import websockets
from web_support import UNKNOWN, Served, Sse, events_of, follow, served

from support import until
from tidegate import Tidegate

pytestmark = pytest.mark.anyio


async def submitted(api: Served, count: int, gap: float = 0.0) -> str:
    async with api.client() as client:
        answer = await client.post("/api/v1/tasks", json={"task": "web:tokens", "args": [count, gap]})
    return str(answer.json()["task_id"])


def chunks(events: list[Sse]) -> list[str]:
    return [event.data["data"] for event in events if event.name == "chunk"]


def encode_events(first: int, last: int) -> list[str]:
    return [f"p{number}" for number in range(first, last + 1)]


async def over_socket(api: Served, task_id: str, query: str = "", **options: Any) -> list[dict[str, Any]]:
    url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task_id}/socket{query}"
    async with asyncio.timeout(20), websockets.connect(url, proxy=None, **options) as socket:
        received = [json.loads(message) async for message in socket]
        assert socket.close_code == 1000
    return received


async def test_a_task_is_followed_from_submit_to_its_one_end(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        task_id = await submitted(api, 20, 0.01)
        events = await follow(client, task_id)
    assert chunks(events) == encode_events(1, 20)
    assert [event.id for event in events if event.name == "chunk"] == [str(number) for number in range(1, 21)]
    assert events[0].name == "state"
    assert (events[-1].name, events[-1].data) == ("end", {"state": "succeeded", "run": 1})
    assert sum(event.name == "end" for event in events) == 1
    assert any(event.name == "progress" and event.data["total"] == 20 for event in events)


async def test_a_client_that_comes_back_gets_the_rest_once(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        task_id = await submitted(api, 20, 0.02)
        seen: list[Sse] = []
        async with client.stream("GET", f"/api/v1/tasks/{task_id}/events") as response:
            async for event in events_of(response):
                seen.append(event)
                if event.id == "7":
                    break
        rest = await follow(client, task_id, last_event_id="7")
        late = await follow(client, task_id, last_event_id="7")
        assert chunks(seen) == encode_events(1, 7)
        assert chunks(rest) == chunks(late) == encode_events(8, 20)
        assert [event.name for event in late][-1] == "end"
        assert chunks(await follow(client, task_id)) == encode_events(1, 20)
        nothing = await follow(client, task_id, last_event_id="20")
        assert [event.name for event in nothing if event.name != "progress"] == ["state", "end"]

        async def nobody() -> bool:
            return bool(api.context.followers.taken == 0)

        await until(nobody)


async def test_a_client_resumes_at_another_server(app: Tidegate) -> None:
    async with app.worker():
        async with served(app) as first, first.client() as client:
            task_id = await submitted(first, 20, 0.02)
            async with client.stream("GET", f"/api/v1/tasks/{task_id}/events") as response:
                async for event in events_of(response):
                    if event.id == "7":
                        break
        async with served(app) as second, second.client() as client:
            assert chunks(await follow(client, task_id, last_event_id="7")) == encode_events(8, 20)


async def test_a_position_beyond_the_end_gets_a_reset_and_garbage_is_refused(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        task_id = await submitted(api, 3)
        events = await follow(client, task_id, last_event_id="99")
        assert [event.name for event in events if event.name in ("reset", "end")] == ["reset", "end"]
        assert chunks(events) == encode_events(1, 3)
        for garbage in ("x", "-1", "1.5", "9" * 40, "0" * 5000 + "7"):
            answer = await client.get(f"/api/v1/tasks/{task_id}/events", headers={"Last-Event-ID": garbage})
            assert (answer.status_code, answer.json()["type"]) == (400, "/api/v1/problems/last-event-id")
        assert (await client.get(f"/api/v1/tasks/{task_id}/events?after=x")).status_code == 400


async def test_unknown_ids_are_not_found_at_once_everywhere(app: Tidegate) -> None:
    async with served(app) as api, api.client(prefer="wait=20") as client, asyncio.timeout(5):
        for task_id in (UNKNOWN, "x", "%00", "a" * 60):
            for part in ("", "/result", "/history", "/events"):
                answer = await client.get(f"/api/v1/tasks/{task_id}{part}")
                assert (answer.status_code, answer.json()["type"]) == (404, "/api/v1/problems/not-found")
        with pytest.raises(websockets.InvalidStatus) as caught:
            await over_socket(api, UNKNOWN)
        assert caught.value.response.status_code == 404


async def test_keep_alives_are_sent_while_idle_and_do_not_move_the_id(app: Tidegate) -> None:
    async with served(app, heartbeat=0.1) as api, api.client() as client:
        task_id = await submitted(api, 1)
        beats = 0
        async with client.stream("GET", f"/api/v1/tasks/{task_id}/events") as response, asyncio.timeout(5):
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["x-accel-buffering"] == "no"
            async for event in events_of(response):
                assert event.id == ""
                beats += event.name == ":"
                if beats == 3:
                    break


async def test_a_socket_sends_the_same_events(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        task_id = await submitted(api, 10, 0.01)
        received = await over_socket(api, task_id)
        by_sse = await follow(client, task_id)
        assert [event["data"]["data"] for event in received if event["event"] == "chunk"] == encode_events(
            1, 10
        )
        assert received[-1] == {"event": "end", "data": {"state": "succeeded", "run": 1}}
        assert [event["id"] for event in received if event["event"] == "chunk"] == [
            event.id for event in by_sse if event.name == "chunk"
        ]
        rest = await over_socket(api, task_id, "?after=7")
        assert [event["data"]["data"] for event in rest if event["event"] == "chunk"] == encode_events(8, 10)


async def test_many_clients_follow_one_task(app: Tidegate) -> None:
    async with served(app, worker=True) as api, api.client() as client:
        task_id = await submitted(api, 30, 0.02)
        received = await asyncio.gather(*(follow(client, task_id, within=40) for _ in range(90)))
        assert [chunks(events) for events in received] == [encode_events(1, 30)] * 90


async def test_more_followers_than_the_limit_are_refused_with_retry_after(app: Tidegate) -> None:
    async with served(app, followers=1) as api, api.client() as client:
        task_id = await submitted(api, 1)
        async with client.stream("GET", f"/api/v1/tasks/{task_id}/events") as response:
            assert response.status_code == 200
            refused = await client.get(f"/api/v1/tasks/{task_id}/events")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            with pytest.raises(websockets.InvalidStatus) as caught:
                await over_socket(api, task_id)
            assert caught.value.response.status_code == 503


async def test_a_client_that_does_not_read_is_dropped_and_costs_no_memory(app: Tidegate) -> None:
    async with served(app, send_limit=0.5, worker=True) as api:
        async with api.client(prefer="wait=20") as client:
            flood = await client.post("/api/v1/tasks", json={"task": "web:flood", "args": [400]})
        host, _, port = api.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as lazy:
            path = f"/api/v1/tasks/{flood.json()['task_id']}/events"
            lazy.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

            async def followers(count: int) -> bool:
                return bool(api.context.followers.taken == count)

            await until(lambda: followers(1))
            await until(lambda: followers(0))
            lazy.settimeout(5)
            taken = 0
            while part := await asyncio.to_thread(lazy.recv, 2**20):
                taken += len(part)
    assert 0 < taken < 400 * 60_000


async def test_a_cancelled_and_a_dead_task_end_their_streams(app: Tidegate) -> None:
    async with served(app) as api, api.client() as client:
        task_id = await submitted(api, 1)
        following = asyncio.create_task(follow(client, task_id))
        await asyncio.sleep(0.1)
        assert (await client.post(f"/api/v1/tasks/{task_id}/cancel")).json()["answer"] == "cancelled"
        assert (await following)[-1].data["state"] == "cancelled"
        failing = (await client.post("/api/v1/tasks", json={"task": "web:fail"})).json()["task_id"]
        async with app.worker():
            assert (await follow(client, failing))[-1].data["state"] == "dead"
