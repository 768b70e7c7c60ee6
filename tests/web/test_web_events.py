"""What a stream says at its end, in which order, and how little a slow reader holds."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from web_support import declare, served

from support import until
from tidegate import Tidegate
from tidegate.domain.states import State
from tidegate.store.streams import StoredChunk, StreamHead
from tidegate.watch import PART_BYTES, Ended, Event, Moved, TaskWatch
from tidegate.web import Principal, Role, WebSettings, create_app
from tidegate.web.live import PIECE_BYTES
from tidegate.web.room import Room
from tidegate.web.routes.live import EventStream

pytestmark = pytest.mark.anyio

SUCCEEDED, RUNNING, RETRYING = State.SUCCEEDED, State.RUNNING, State.RETRYING


class ScriptedStore:
    """A store whose task is at the next step of a script at each look.

    Args:
        steps: State, run and number of the last chunk, one by one; the last one stays.
        runs: The run of each chunk, from the first on.
    """

    def __init__(self, steps: list[tuple[State, int, int]], runs: list[int]) -> None:
        self._steps = steps
        self._chunks = [StoredChunk(number, run, 0.0, b"1") for number, run in enumerate(runs, 1)]

    async def stream_heads(self, ids: list[str]) -> dict[str, StreamHead]:
        state, run, last = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return {task_id: StreamHead(state, run, "", last, None, None, "") for task_id in ids}

    async def chunks(self, after: Mapping[str, int], **_: int) -> dict[str, list[StoredChunk]]:
        return {task_id: self._chunks[known:] for task_id, known in after.items()}

    async def changed(self, _: float) -> None: ...


async def story(steps: list[tuple[State, int, int]], runs: list[int]) -> list[Any]:
    """Follow a scripted task; return its moves, and the numbers of its chunks."""
    watch = TaskWatch(ScriptedStore(steps, runs))  # type: ignore[arg-type]
    events: list[Event] = [event async for event in watch.follow("x")]
    assert isinstance(events[-1], Ended)
    return [event.sequence if isinstance(event, StoredChunk) else event for event in events[:-1]]


async def test_a_run_is_told_as_ended_after_its_last_chunk() -> None:
    told = await story([(RUNNING, 1, 2), (SUCCEEDED, 1, 4)], [1, 1, 1, 1])
    assert told == [Moved(RUNNING, 1), 1, 2, 3, 4, Moved(SUCCEEDED, 1)]


async def test_who_comes_after_the_end_is_told_of_it_after_the_last_chunk() -> None:
    assert await story([(SUCCEEDED, 2, 3)], [1, 1, 2]) == [
        Moved(RUNNING, 1), 1, 2, Moved(RUNNING, 2), 3, Moved(SUCCEEDED, 2),
    ]  # fmt: skip


async def test_a_failed_run_is_told_as_retrying_after_its_last_chunk_and_the_next_before_its_first() -> None:
    told = await story([(RUNNING, 1, 1), (RETRYING, 1, 2), (SUCCEEDED, 3, 4)], [1, 1, 2, 3])
    assert told == [
        Moved(RUNNING, 1), 1, 2, Moved(RETRYING, 1), Moved(RUNNING, 2), 3, Moved(RUNNING, 3), 4, Moved(SUCCEEDED, 3),
    ]  # fmt: skip


async def test_chunks_of_a_run_that_began_after_the_look_are_not_told_before_it() -> None:
    told = await story([(RETRYING, 1, 1), (RUNNING, 2, 2), (SUCCEEDED, 2, 2)], [1, 2])
    assert told == [Moved(RETRYING, 1), 1, Moved(RUNNING, 2), 2, Moved(SUCCEEDED, 2)]


async def test_success_comes_after_the_last_chunk_on_both_stores_by_events_and_by_socket(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import websockets
    from web_support import follow

    monkeypatch.setenv("TIDEGATE_SCRATCH", str(tmp_path / "scratch"))
    app = Tidegate(store_url)
    declare(app)
    try:
        async with served(app, worker=True) as api, api.client() as client:
            task = await app.function("web:tokens").enqueue(5)
            url = f"{api.url.replace('http', 'ws')}/api/v1/tasks/{task.id}/socket"
            for _ in ("while it runs", "when it is over"):
                by_events = [(event.name, event.data.get("state")) for event in await follow(client, task.id)]
                async with websockets.connect(url, proxy=None) as socket:
                    messages = [json.loads(str(message)) async for message in socket]
                by_socket = [(one["event"], one["data"].get("state")) for one in messages]
                for told in (by_events, by_socket):
                    last_chunk = max(place for place, (name, _) in enumerate(told) if name == "chunk")
                    assert told.index(("state", "succeeded")) > last_chunk
    finally:
        await app.aclose()


async def stuck_stream(room: Room, task_id: str, sizes: list[int]) -> None:
    """Follow a task as a client that takes in the first bytes and then nothing."""

    async def send(message: Any) -> None:
        if data := message.get("body"):
            sizes.append(len(data))
        if len(sizes) > 1:
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"type": "http", "headers": [], "tidegate": Principal("somebody", Role.ADMIN, None)}
    await EventStream(room, Request(scope), task_id, 0)(scope, receive, send)


async def test_a_follower_that_takes_nothing_in_holds_less_than_a_mebibyte(app: Tidegate) -> None:
    count = 20
    async with app.worker():
        task = await app.function("web:flood").enqueue(60)
        await task.result(30)
    room: Room = create_app(app, settings=WebSettings()).state.room
    sizes: list[list[int]] = [[] for _ in range(count)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    streams = [asyncio.create_task(stuck_stream(room, task.id, each)) for each in sizes]
    try:

        async def all_stuck() -> bool:
            return all(len(each) == 2 for each in sizes)

        await until(all_stuck)
        held, most = (amount - before for amount in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    assert held < count * 2**20
    assert most < count * 2**20
    assert max(max(each) for each in sizes) < PIECE_BYTES + 70_000


async def test_what_is_kept_for_all_followers_of_a_task_is_bounded_in_bytes(app: Tidegate) -> None:
    watch = app.task_watch(await app.opened_store())
    async with app.worker():
        task = await app.function("web:flood").enqueue(40)
        slow = watch.follow_in_parts(task.id)
        largest = 0
        async for part in slow:
            followed = watch._followed[task.id]
            assert sum(len(chunk.data) for chunk in followed.recent) <= 262_144
            largest = max(largest, sum(len(event.data) for event in part if isinstance(event, StoredChunk)))
    assert largest <= PART_BYTES + 65_536


async def test_a_slow_client_of_a_socket_is_told_that_it_was_slow(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.websockets import WebSocket

    from tidegate.web.routes.live import _serve_socket

    task = await app.function("web:add").enqueue(1)
    said: list[Any] = []
    is_stuck = True

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send" and is_stuck:
            await asyncio.Event().wait()
        said.append(message)

    connect = [{"type": "websocket.connect"}]

    async def receive() -> Any:
        if connect:
            return connect.pop()
        return await asyncio.Event().wait()

    scope = {"type": "websocket", "headers": [], "tidegate": Principal("somebody", Role.ADMIN, None)}
    socket = WebSocket(scope, receive, send)
    await socket.accept()
    room: Room = create_app(app, settings=WebSettings(send_limit=0.05)).state.room
    async with asyncio.timeout(5):
        await _serve_socket(room, socket, task.id, 0)
    assert said[-1] == {"type": "websocket.close", "code": 1013, "reason": "slow"}


async def test_a_deleted_task_and_a_store_that_is_away_are_told_as_why_the_stream_ends(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from web_support import events_of

    from tidegate import StoreUnavailableError

    async def gone(ids: Any) -> dict[str, Any]:
        return {}

    async def away(ids: Any) -> dict[str, Any]:
        raise StoreUnavailableError("gone")

    store = await app.opened_store()
    async with served(app) as api, api.client() as client:
        for heads, reason in ((gone, "deleted"), (away, "store")):
            task = await app.function("web:add").enqueue(1)
            path = f"/api/v1/tasks/{task.id}/events"
            async with client.stream("GET", path) as response, asyncio.timeout(10):
                events = events_of(response)
                await anext(events)
                with monkeypatch.context() as patch:
                    patch.setattr(store, "stream_heads", heads)
                    last = [event async for event in events][-1]
                assert (last.name, last.data) == ("closed", {"reason": reason})


async def test_streams_and_waits_end_with_the_lifespan_and_begin_again_with_the_next(app: Tidegate) -> None:
    api = create_app(app, settings=WebSettings())
    room: Room = api.state.room
    for _ in range(2):
        async with api.router.lifespan_context(api):
            waiting = asyncio.create_task(room.closing.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
        async with asyncio.timeout(5):
            await waiting
