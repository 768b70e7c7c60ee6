"""Streams: chunks are stored in order, fenced, read from any number on, and deleted with their task."""

from __future__ import annotations

import pytest
from store_build import Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.outcome import Fence
from tidegate.domain.states import State
from tidegate.store.protocol import Store
from tidegate.store.rows import ProgressUpdate
from tidegate.store.streams import NewChunk

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def pieces(fence: Fence, *places: int) -> list[NewChunk]:
    return [NewChunk(fence, place, b"%d" % (fence.run * 100 + place)) for place in places]


async def reported(
    store: Store, task_id: str, after: int = 0, limit: int = 100
) -> list[tuple[int, int, bytes]]:
    found = await store.read_chunks({task_id: after}, limit=limit)
    return [(chunk.sequence, chunk.run, chunk.data) for chunk in found.get(task_id, [])]


async def again(build: Build, fence: Fence) -> Fence:
    """End the run as one to be retried at once, and claim its next run."""
    await build.done(retrying(fence, delay=0.0))
    await build.store.promote()
    return (await build.claim(await build.worker()))[0].fence


async def test_chunks_are_read_in_the_order_they_were_emitted(build: Build, clock: SettableClock) -> None:
    fence = (await build.run()).fence
    assert await build.store.append_chunks(pieces(fence, 1, 2)) == []
    clock.advance(1)
    assert await build.store.append_chunks(pieces(fence, 3)) == []
    assert await reported(build.store, fence.task_id) == [(1, 1, b"101"), (2, 1, b"102"), (3, 1, b"103")]
    found = (await build.store.read_chunks({fence.task_id: 0}))[fence.task_id]
    assert found[2].at - found[1].at == 1


async def test_a_stream_can_be_read_from_any_number_and_in_parts(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.append_chunks(pieces(fence, *range(1, 21)))
    assert [chunk[0] for chunk in await reported(build.store, fence.task_id, 7)] == list(range(8, 21))
    assert [chunk[0] for chunk in await reported(build.store, fence.task_id, 7, limit=3)] == [8, 9, 10]
    assert await reported(build.store, fence.task_id, 20) == []
    assert await reported(build.store, fence.task_id, 10_000) == []


async def test_many_streams_are_read_at_once(build: Build) -> None:
    one, other, silent = [task.fence for task in await build.running(3)]
    await build.store.append_chunks(pieces(one, 1, 2) + pieces(other, 1, 2, 3))
    found = await build.store.read_chunks({one.task_id: 1, other.task_id: 0, silent.task_id: 0, UNKNOWN: 0})
    assert {task: [chunk.sequence for chunk in part] for task, part in found.items()} == {
        one.task_id: [2],
        other.task_id: [1, 2, 3],
    }
    assert await build.store.read_chunks({}) == {}


async def test_a_resend_changes_nothing(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.append_chunks(pieces(fence, 1, 2))
    assert await build.store.append_chunks(pieces(fence, 1, 2)) == []
    assert await build.store.append_chunks(pieces(fence, 2, 3)) == []
    assert [chunk[0] for chunk in await reported(build.store, fence.task_id)] == [1, 2, 3]
    assert (await build.store.read_stream_heads([fence.task_id]))[fence.task_id].last_sequence == 3


async def test_chunk_numbers_continue_with_the_next_run(build: Build) -> None:
    first = (await build.run(queue="main")).fence
    await build.store.append_chunks(pieces(first, 1, 2))
    second = await again(build, first)
    await build.store.append_chunks(pieces(second, 1))
    await build.store.append_chunks(pieces(second, 1, 2))
    assert await reported(build.store, first.task_id) == [
        (1, 1, b"101"),
        (2, 1, b"102"),
        (3, 2, b"201"),
        (4, 2, b"202"),
    ]


async def test_only_the_current_run_adds_to_a_stream(build: Build) -> None:
    first = (await build.run(queue="main")).fence
    second = await again(build, first)
    good = (await build.run()).fence
    ghost = Fence(UNKNOWN, 1)
    gone = await build.store.append_chunks(pieces(first, 1) + pieces(good, 1) + pieces(ghost, 1))
    assert set(gone) == {first, ghost}
    assert await reported(build.store, second.task_id) == []
    assert [chunk[0] for chunk in await reported(build.store, good.task_id)] == [1]


@pytest.mark.parametrize("end", [succeeded, dead])
async def test_the_final_state_closes_a_stream_and_it_stays_readable(build: Build, end) -> None:
    fence = (await build.run()).fence
    await build.store.append_chunks(pieces(fence, 1))
    await build.done(end(fence))
    assert await build.store.append_chunks(pieces(fence, 2)) == [fence]
    head = (await build.store.read_stream_heads([fence.task_id]))[fence.task_id]
    assert (head.last_sequence, head.state.value in {"succeeded", "dead"}) == (1, True)
    assert [chunk[0] for chunk in await reported(build.store, fence.task_id)] == [1]


async def test_a_redriven_task_continues_its_stream(build: Build) -> None:
    fence = (await build.run(queue="main")).fence
    await build.store.append_chunks(pieces(fence, 1))
    await build.done(dead(fence))
    await build.store.redrive([fence.task_id])
    second = (await build.claim(await build.worker()))[0].fence
    await build.store.append_chunks(pieces(second, 1))
    assert [chunk[:2] for chunk in await reported(build.store, fence.task_id)] == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    "state",
    [State.SCHEDULED, State.READY, State.RETRYING, State.SUCCEEDED, State.CANCELLED, State.DEAD],
)
async def test_a_head_has_the_state_of_the_task(build: Build, state: State) -> None:
    task_id = await build.in_state(state, tenant="acme")
    head = (await build.store.read_stream_heads([task_id, UNKNOWN, "no id"]))[task_id]
    assert (head.state, head.tenant, head.last_sequence, head.progress_done) == (state, "acme", 0, None)


async def test_a_head_has_the_run_and_the_progress(build: Build) -> None:
    fence = (await build.run()).fence
    await build.store.save_progress([ProgressUpdate(fence, 3, 10, "pages")])
    heads = await build.store.read_stream_heads([fence.task_id, UNKNOWN])
    assert set(heads) == {fence.task_id}
    head = heads[fence.task_id]
    assert (head.state, head.run) == (State.RUNNING, 1)
    assert (head.progress_done, head.progress_total, head.progress_note) == (3, 10, "pages")
    assert await build.store.read_stream_heads([]) == {}


async def test_another_process_reads_the_stream(build: Build, twin: Store) -> None:
    fence = (await build.run()).fence
    await build.store.append_chunks(pieces(fence, 1))
    assert [chunk[0] for chunk in await reported(twin, fence.task_id)] == [1]


async def test_a_stream_is_deleted_with_its_task(build: Build, clock: SettableClock) -> None:
    kept, purged = [task.fence for task in await build.running(2)]
    await build.store.append_chunks(pieces(kept, 1) + pieces(purged, 1))
    await build.done(succeeded(kept), dead(purged))
    await build.store.purge([purged.task_id])
    assert await reported(build.store, purged.task_id) == []
    clock.advance(100)
    await expire(build.store, finished_seconds=50, dead_seconds=50)
    assert await reported(build.store, kept.task_id) == []
    assert await build.store.read_stream_heads([kept.task_id, purged.task_id]) == {}
    await build.sound()


async def test_a_read_is_limited_in_total_bytes_but_returns_at_least_one_chunk(build: Build) -> None:
    one, other = [task.fence for task in await build.running(2)]
    large = [NewChunk(fence, place, b"1" * 1_000) for fence in (one, other) for place in (1, 2, 3)]
    await build.store.append_chunks(large)

    async def read(max_bytes: int) -> list[int]:
        asked = {one.task_id: 0, other.task_id: 0}
        found = await build.store.read_chunks(asked, max_bytes=max_bytes)
        return [len(found.get(task_id, [])) for task_id in asked]

    assert await read(1) == [1, 0]
    assert await read(2_000) == [2, 0]
    assert await read(2_001) == [3, 0]
    assert await read(4_500) == [3, 2]
    assert await read(1_000_000) == [3, 3]
