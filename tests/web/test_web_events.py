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
from tidegate.internals import core_of
from tidegate.operations.task_watcher import PART_BYTES, StateChanged, StreamEnded, TaskEvent, TaskWatcher
from tidegate.store.streams import StoredChunk, StreamHead
from tidegate.web import Principal, Role, WebSettings, create_app
from tidegate.web.api_context import ApiContext
from tidegate.web.events import SEND_BYTES
from tidegate.web.routes.events import EventStream

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

    async def read_stream_heads(self, ids: list[str]) -> dict[str, StreamHead]:
        state, run, last = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return {task_id: StreamHead(state, run, "", last, None, None, "") for task_id in ids}

    async def read_chunks(self, after: Mapping[str, int], **_: int) -> dict[str, list[StoredChunk]]:
        return {task_id: self._chunks[known:] for task_id, known in after.items()}

    async def wait_for_change(self, _: float) -> None: ...


async def follow_script(steps: list[tuple[State, int, int]], runs: list[int]) -> list[Any]:
    """Follow a scripted task; return its moves, and the numbers of its chunks."""
    watch = TaskWatcher(ScriptedStore(steps, runs))  # type: ignore[arg-type]
    events: list[TaskEvent] = [event async for event in watch.follow("x")]
    assert isinstance(events[-1], StreamEnded)
    return [event.sequence if isinstance(event, StoredChunk) else event for event in events[:-1]]


async def test_the_end_of_a_run_is_sent_after_its_last_chunk() -> None:
    received = await follow_script([(RUNNING, 1, 2), (SUCCEEDED, 1, 4)], [1, 1, 1, 1])
    assert received == [StateChanged(RUNNING, 1), 1, 2, 3, 4, StateChanged(SUCCEEDED, 1)]


async def test_a_late_follower_gets_the_end_after_the_last_chunk() -> None:
    assert await follow_script([(SUCCEEDED, 2, 3)], [1, 1, 2]) == [
        StateChanged(RUNNING, 1), 1, 2, StateChanged(RUNNING, 2), 3, StateChanged(SUCCEEDED, 2),
    ]  # fmt: skip


async def test_retrying_is_sent_after_the_last_chunk_and_the_next_run_before_its_first() -> None:
    received = await follow_script([(RUNNING, 1, 1), (RETRYING, 1, 2), (SUCCEEDED, 3, 4)], [1, 1, 2, 3])
    assert received == [
        StateChanged(RUNNING, 1), 1, 2, StateChanged(RETRYING, 1), StateChanged(RUNNING, 2), 3, StateChanged(RUNNING, 3), 4, StateChanged(SUCCEEDED, 3),
    ]  # fmt: skip


async def test_chunks_of_a_run_that_began_after_the_poll_are_not_sent_before_it() -> None:
    received = await follow_script([(RETRYING, 1, 1), (RUNNING, 2, 2), (SUCCEEDED, 2, 2)], [1, 2])
    assert received == [StateChanged(RETRYING, 1), 1, StateChanged(RUNNING, 2), 2, StateChanged(SUCCEEDED, 2)]


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
                for received in (by_events, by_socket):
                    last_chunk = max(place for place, (name, _) in enumerate(received) if name == "chunk")
                    assert received.index(("state", "succeeded")) > last_chunk
    finally:
        await app.aclose()


async def stuck_stream(context: ApiContext, task_id: str, sizes: list[int]) -> None:
    """Follow a task as a client that takes in the first bytes and then nothing."""

    async def send(message: Any) -> None:
        if data := message.get("body"):
            sizes.append(len(data))
        if len(sizes) > 1:
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {"type": "http", "headers": [], "tidegate": Principal("somebody", Role.ADMIN, None)}
    await EventStream(context, Request(scope), task_id, 0)(scope, receive, send)


async def test_a_follower_that_does_not_read_uses_less_than_a_mebibyte(app: Tidegate) -> None:
    count = 20
    async with app.worker():
        task = await app.function("web:flood").enqueue(60)
        await task.result(30)
    context: ApiContext = create_app(app, settings=WebSettings()).state.context
    sizes: list[list[int]] = [[] for _ in range(count)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    streams = [asyncio.create_task(stuck_stream(context, task.id, each)) for each in sizes]
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
    assert max(max(each) for each in sizes) < SEND_BYTES + 70_000


async def test_what_is_kept_for_all_followers_of_a_task_is_bounded_in_bytes(app: Tidegate) -> None:
    watch = core_of(app).task_watcher(await core_of(app).opened_store())
    async with app.worker():
        task = await app.function("web:flood").enqueue(40)
        slow = watch.follow_in_batches(task.id)
        largest = 0
        async for part in slow:
            followed = watch._followed[task.id]
            assert sum(len(chunk.data) for chunk in followed.cached) <= 262_144
            largest = max(largest, sum(len(event.data) for event in part if isinstance(event, StoredChunk)))
    assert largest <= PART_BYTES + 65_536


async def test_a_slow_socket_client_is_closed_as_slow(app: Tidegate, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.websockets import WebSocket

    from tidegate.web.routes.events import _serve_socket

    task = await app.function("web:add").enqueue(1)
    printed: list[Any] = []
    is_stuck = True

    async def send(message: Any) -> None:
        if message["type"] == "websocket.send" and is_stuck:
            await asyncio.Event().wait()
        printed.append(message)

    connect = [{"type": "websocket.connect"}]

    async def receive() -> Any:
        if connect:
            return connect.pop()
        return await asyncio.Event().wait()

    scope = {"type": "websocket", "headers": [], "tidegate": Principal("somebody", Role.ADMIN, None)}
    socket = WebSocket(scope, receive, send)
    await socket.accept()
    context: ApiContext = create_app(app, settings=WebSettings(send_limit=0.05)).state.context
    async with asyncio.timeout(5):
        await _serve_socket(context, socket, task.id, 0)
    assert printed[-1] == {"type": "websocket.close", "code": 1013, "reason": "slow"}


async def test_a_stream_names_a_deleted_task_or_an_unavailable_store_as_its_end(
    app: Tidegate, monkeypatch: pytest.MonkeyPatch
) -> None:
    from web_support import events_of

    from tidegate import StoreUnavailableError

    async def gone(ids: Any) -> dict[str, Any]:
        return {}

    async def away(ids: Any) -> dict[str, Any]:
        raise StoreUnavailableError("gone")

    store = await core_of(app).opened_store()
    async with served(app) as api, api.client() as client:
        for heads, reason in ((gone, "deleted"), (away, "store")):
            task = await app.function("web:add").enqueue(1)
            path = f"/api/v1/tasks/{task.id}/events"
            async with client.stream("GET", path) as response, asyncio.timeout(10):
                events = events_of(response)
                await anext(events)
                with monkeypatch.context() as patch:
                    patch.setattr(store, "read_stream_heads", heads)
                    last = [event async for event in events][-1]
                assert (last.name, last.data) == ("closed", {"reason": reason})


async def test_streams_and_waits_end_with_the_lifespan_and_begin_again_with_the_next(app: Tidegate) -> None:
    api = create_app(app, settings=WebSettings())
    context: ApiContext = api.state.context
    for _ in range(2):
        async with api.router.lifespan_context(api):
            waiting = asyncio.create_task(context.shutdown.wait())
            await asyncio.sleep(0)
            assert not waiting.done()
        async with asyncio.timeout(5):
            await waiting
