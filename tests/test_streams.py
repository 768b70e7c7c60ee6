"""Streams from the body to the follower: order, resumption, kills, slow readers, one read for all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import all_final, load_app, make_app, until, worker_process
from tidegate import ArgumentsError, Context, TaskNotFoundError, Tidegate
from tidegate.domain.states import State
from tidegate.internals import core_of
from tidegate.operations.task_watcher import (
    CACHED_CHUNKS,
    ProgressChanged,
    StateChanged,
    StreamEnded,
    StreamReset,
    TaskEvent,
    TaskWatcher,
)
from tidegate.store.protocol import Store
from tidegate.store.streams import CHUNK_BYTES, StoredChunk

pytestmark = pytest.mark.anyio

UNKNOWN = "01890000-0000-7000-8000-000000000000"


async def follow_to_end(app: Tidegate, task_id: str, after: int = 0, within: float = 20.0) -> list[TaskEvent]:
    """Follow a task to its end."""
    watch = core_of(app).task_watcher(await core_of(app).opened_store())
    async with asyncio.timeout(within):
        return [event async for event in watch.follow(task_id, after)]


def sequences(events: Sequence[TaskEvent]) -> list[int]:
    return [event.sequence for event in events if isinstance(event, StoredChunk)]


def emitting(app: Tidegate) -> Any:
    @app.task(name="tokens")
    async def tokens(ctx: Context, count: int, gap: float = 0.0) -> int:
        for number in range(1, count + 1):
            await ctx.emit({"token": number})
            await asyncio.sleep(gap)
        return count

    return tokens


class CountedStore:
    """A store that counts the calls of each method."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: dict[str, int] = {}

    def __getattr__(self, method: str) -> Any:
        self.calls[method] = self.calls.get(method, 0) + 1
        return getattr(self._store, method)


# --- from the body ---------------------------------------------------------------------------------------


async def test_emitted_chunks_are_streamed_in_order_while_the_function_runs(app: Tidegate) -> None:
    go_on = asyncio.Event()

    @app.task(name="talk")
    async def talk(ctx: Context) -> str:
        await ctx.emit("first")
        await go_on.wait()
        await ctx.emit({"then": ["second", 2.5, None]})
        return "over"

    async with app.worker(), asyncio.timeout(20):
        handle = await talk.enqueue()
        received = []
        async for chunk in handle.stream():
            received.append((chunk.sequence, chunk.run, chunk.data))
            go_on.set()
        assert received == [(1, 1, "first"), (2, 1, {"then": ["second", 2.5, None]})]
        assert await handle.result(0) == "over"


async def test_a_token_cut_inside_a_character_is_streamed_as_text_that_shows_it(app: Tidegate) -> None:
    @app.task(name="cut")
    async def cut(ctx: Context) -> int:
        ctx.progress(1, 2, "\ud83d")
        await ctx.emit("a \ud83d")
        await ctx.emit({"\ude00": ["\ude00", ("é", 1)]})
        return ctx.run

    async with app.worker(), asyncio.timeout(20):
        handle = await cut.enqueue()
        received = [chunk.data async for chunk in handle.stream()]
        assert received[0] == r"a \ud83d"
        assert list(received[1]) == [r"\ude00"]
        assert await handle.result(0) == 1, "the first run"


async def test_a_thousand_chunks_arrive_once_each_and_before_the_end(app: Tidegate) -> None:
    tokens = emitting(app)
    async with app.worker():
        handle = await tokens.enqueue(1000)
        events = await follow_to_end(app, handle.id)
    assert sequences(events) == list(range(1, 1001))
    assert events[-1] == StreamEnded(State.SUCCEEDED, 1)
    assert sum(isinstance(event, StreamEnded) for event in events) == 1


async def test_chunks_are_written_twenty_times_a_second_at_most(app: Tidegate) -> None:
    tokens = emitting(app)
    await core_of(app).opened_store()
    core_of(app).store = counted = CountedStore(core_of(app).store)  # type: ignore[assignment]
    async with app.worker():
        begun = asyncio.get_running_loop().time()
        handle = await tokens.enqueue(200, 0.005)
        assert await handle.result(20) == 200
        seconds = asyncio.get_running_loop().time() - begun
    assert 1 <= counted.calls["append_chunks"] <= seconds * 20 + 2
    assert sequences(await follow_to_end(app, handle.id)) == list(range(1, 201))


async def test_a_chunk_that_cannot_be_stored_fails_the_function_with_its_reason(app: Tidegate) -> None:
    seen: list[str] = []

    @app.task(name="odd")
    async def odd(ctx: Context) -> None:
        for data in (object(), float("nan"), "x" * CHUNK_BYTES):
            try:
                await ctx.emit(data)
            except ArgumentsError as error:
                seen.append(error.facts["path"])

    async with app.worker():
        handle = await odd.enqueue()
        await handle.result(10)
    assert seen == ["chunk"] * 3
    assert sequences(await follow_to_end(app, handle.id)) == []


async def test_threads_may_emit_and_a_plain_call_emits_nowhere(app: Tidegate) -> None:
    @app.task(name="threads", runs_in="thread")
    def threads(ctx: Context) -> None:
        def emit(thread: int) -> None:
            for number in range(50):
                ctx.emit_sync([thread, number])

        many = [threading.Thread(target=emit, args=(thread,)) for thread in range(4)]
        for thread in many:
            thread.start()
        for thread in many:
            thread.join(10)

    async with app.worker():
        handle = await threads.enqueue()
        await handle.result(20)
        received = [chunk.data async for chunk in handle.stream()]
    assert sorted(received) == [[thread, number] for thread in range(4) for number in range(50)]
    for thread in range(4):
        assert [number for one, number in received if one == thread] == list(range(50))
    threads()


async def test_functions_in_child_processes_emit_and_a_killed_run_is_followed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_app("streaming", tmp_path, monkeypatch)
    app: Tidegate = module.app
    with worker_process("streaming:app", tmp_path):
        plain = await module.lines.enqueue(300)
        coroutine = await module.lines_of_a_coroutine.enqueue(300)
        killed = await module.dies_once.enqueue(5)
        for handle in (plain, coroutine):
            assert sequences(await follow_to_end(app, handle.id)) == list(range(1, 301))
        events = await follow_to_end(app, killed.id, within=30)
    chunks = [event for event in events if isinstance(event, StoredChunk)]
    assert [(chunk.sequence, chunk.run) for chunk in chunks] == [
        (number, 1 if number <= 5 else 2) for number in range(1, 11)
    ]
    again = next(
        place for place, event in enumerate(events) if isinstance(event, StateChanged) and event.run == 2
    )
    assert again < events.index(chunks[5])
    assert events[-1] == StreamEnded(State.SUCCEEDED, 2)
    await app.aclose()


async def test_chunks_wait_while_the_store_is_unavailable_and_none_is_lost(app: Tidegate) -> None:
    tokens = emitting(app)
    store = await core_of(app).opened_store()
    away = True
    real = store.append_chunks

    async def moody(new: Any) -> Any:
        if away:
            raise OSError("the store is away")
        return await real(new)

    store.append_chunks = moody  # type: ignore[method-assign]
    async with app.worker():
        handle = await tokens.enqueue(50)
        row = await handle.status()
        for _ in range(20):
            await asyncio.sleep(0.02)
            row = await handle.status()
        assert row.state is State.RUNNING  # its end waits for what it emitted
        away = False
        events = await follow_to_end(app, handle.id)
    assert sequences(events) == list(range(1, 51))


# --- to the follower -------------------------------------------------------------------------------------


async def test_a_follower_resumes_after_any_chunk_even_after_the_end(app: Tidegate) -> None:
    tokens = emitting(app)
    async with app.worker():
        handle = await tokens.enqueue(20, 0.01)
        first = []
        async for chunk in handle.stream():
            first.append(chunk.sequence)
            if chunk.sequence == 7:
                break
        resumed = await follow_to_end(app, handle.id, 7)
        late = await follow_to_end(app, handle.id, 7)
    assert first == list(range(1, 8))
    assert sequences(resumed) == sequences(late) == list(range(8, 21))
    moves = [event for event in late if not isinstance(event, StoredChunk)]
    assert moves == [
        StateChanged(State.RUNNING, 1),
        StateChanged(State.SUCCEEDED, 1),
        StreamEnded(State.SUCCEEDED, 1),
    ]
    assert late[:1] + late[-2:] == moves
    assert late[-1] == resumed[-1] == StreamEnded(State.SUCCEEDED, 1)


async def test_a_follower_past_the_last_chunk_gets_the_whole_stream(app: Tidegate) -> None:
    tokens = emitting(app)
    async with app.worker():
        handle = await tokens.enqueue(3)
        await handle.result(10)
    events = await follow_to_end(app, handle.id, 99)
    assert events[0] == StreamReset()
    assert sequences(events) == [1, 2, 3]


async def test_an_unknown_task_cannot_be_followed_and_a_cancelled_one_ends_at_once(app: Tidegate) -> None:
    tokens = emitting(app)
    with pytest.raises(TaskNotFoundError):
        await follow_to_end(app, UNKNOWN, within=1)
    handle = await tokens.enqueue(3)
    following = asyncio.create_task(follow_to_end(app, handle.id))
    await asyncio.sleep(0.05)
    await handle.cancel()
    assert await following == [
        StateChanged(State.READY, 0),
        StateChanged(State.CANCELLED, 0),
        StreamEnded(State.CANCELLED, 0),
    ]


async def test_following_a_deleted_task_raises_not_found(app: Tidegate) -> None:
    tokens = emitting(app)
    store = await core_of(app).opened_store()
    handle = await tokens.using(delay=60).enqueue(3)
    following = asyncio.create_task(follow_to_end(app, handle.id))
    await asyncio.sleep(0.05)
    watch = core_of(app).task_watcher(store)
    real = store.read_stream_heads

    async def gone(ids: Sequence[str]) -> dict[str, Any]:
        return {}

    store.read_stream_heads = gone  # type: ignore[method-assign]
    with pytest.raises(TaskNotFoundError):
        await following
    store.read_stream_heads = real  # type: ignore[method-assign]
    assert watch._followed == {}


async def test_progress_is_sent_with_the_chunks(app: Tidegate) -> None:
    @app.task(name="steps")
    async def steps(ctx: Context) -> None:
        await ctx.emit("one")
        ctx.progress(1, 2, "half")

    async with app.worker():
        handle = await steps.enqueue()
        events = await follow_to_end(app, handle.id)
    assert ProgressChanged(1, 2, "half") in events


async def test_two_hundred_followers_share_the_reads_of_one(app: Tidegate) -> None:
    tokens = emitting(app)
    await core_of(app).opened_store()
    counted = CountedStore(core_of(app).store)
    watch = TaskWatcher(counted)  # type: ignore[arg-type]

    async def follow(task_id: str) -> list[int]:
        return sequences([event async for event in watch.follow(task_id)])

    handle = await tokens.enqueue(40, 0.01)
    following = [asyncio.create_task(follow(handle.id)) for _ in range(200)]
    await asyncio.sleep(0.2)
    counted.calls.clear()
    async with app.worker(), asyncio.timeout(20):
        received = await asyncio.gather(*following)
    assert received == [list(range(1, 41))] * 200
    assert counted.calls["read_chunks"] <= 60
    assert counted.calls["read_stream_heads"] <= 200


async def test_a_slow_follower_has_no_queue_and_misses_nothing(app: Tidegate) -> None:
    tokens = emitting(app)
    count = CACHED_CHUNKS * 4
    watch = core_of(app).task_watcher(await core_of(app).opened_store())
    async with app.worker(), asyncio.timeout(30):
        handle = await tokens.enqueue(count, 0.001)
        slow = watch.follow(handle.id)
        received = [await anext(slow)]
        quick = await follow_to_end(app, handle.id)
        assert len(watch._followed[handle.id].cached) <= CACHED_CHUNKS
        received += [event async for event in slow]
    assert sequences(received) == sequences(quick) == list(range(1, count + 1))
    assert watch._followed == {}


async def test_another_process_can_follow(tmp_path: Path, app: Tidegate) -> None:
    tokens = emitting(app)
    other = make_app(tmp_path)
    async with app.worker():
        handle = await tokens.enqueue(20, 0.01)
        assert sequences(await follow_to_end(other, handle.id)) == list(range(1, 21))
    await other.aclose()


async def test_followers_get_the_error_of_a_failing_store_and_can_reconnect(app: Tidegate) -> None:
    tokens = emitting(app)
    store = await core_of(app).opened_store()
    handle = await tokens.using(delay=60).enqueue(1)
    following = asyncio.create_task(follow_to_end(app, handle.id))
    await asyncio.sleep(0.05)
    real = store.read_stream_heads

    async def broken(ids: Sequence[str]) -> Any:
        raise OSError("gone")

    store.read_stream_heads = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="gone"):
        await following
    store.read_stream_heads = real  # type: ignore[method-assign]
    await handle.cancel()
    assert (await follow_to_end(app, handle.id))[-1] == StreamEnded(State.CANCELLED, 0)


async def test_many_tasks_are_followed_at_once(app: Tidegate) -> None:
    tokens = emitting(app)
    async with app.worker():
        handles = [await tokens.enqueue(10, 0.01) for _ in range(30)]
        received = await asyncio.gather(*(follow_to_end(app, handle.id, within=30) for handle in handles))
        await all_final(app, [handle.id for handle in handles])
    assert [sequences(events) for events in received] == [list(range(1, 11))] * 30

    async def nobody_waits() -> bool:
        return core_of(app).task_watcher(core_of(app).store)._job is None

    await until(nobody_waits)
