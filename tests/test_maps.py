"""Maps as users meet them: `f.map(…)`, its handle, its results and its callback."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import FAST, make_app, until
from tidegate import (
    ArgumentsError,
    DataRemovedError,
    KeyConflictError,
    MapEnd,
    MapHandle,
    MapNotFoundError,
    NotAcceptedError,
    OptionError,
    Permanent,
    Pool,
    ResultTimeoutError,
    State,
    TaskCancelledError,
    TaskFailedError,
    Tidegate,
    UsageError,
)
from tidegate.domain.retention import Data
from tidegate.internals import core_of
from tidegate.store.connect import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def queue(store_url: str) -> AsyncIterator[Tidegate]:
    """An application on either store."""
    app = Tidegate(store_url, timings=FAST, pools=[Pool(concurrency=20, poll_interval=0.02)])
    await app._core.store.migrate()
    yield app
    await app.aclose()


def declare(app: Tidegate, ends: list[MapEnd] | None = None) -> tuple[Any, Any]:
    """Declare a function that doubles numbers and refuses 13, and a callback."""

    @app.task(name="double")
    async def double(number: int) -> int:
        if number == 13:
            message = "unlucky"
            raise Permanent(message)
        return 2 * number

    @app.task(name="report")
    async def report(end: MapEnd) -> None:
        if ends is not None:
            ends.append(end)

    return double, report


async def test_results_come_in_order_or_as_items_end_and_the_callback_gets_the_counts(
    queue: Tidegate,
) -> None:
    ends: list[MapEnd] = []
    double, report = declare(queue, ends)
    handle = await double.map(range(10, 20), name="nightly", on_complete=report)
    assert handle.created is True

    async with queue.worker():
        ordered = [result async for result in handle.results(ordered=True)]
        loose = [result async for result in handle.results()]
        await until(lambda: _is_true(ends), within=10, what="the callback ran")

    assert [result.index for result in ordered] == list(range(10))
    assert sorted(result.index for result in loose) == list(range(10))
    assert [result.value for result in ordered if result.index != 3] == [
        2 * n for n in range(10, 20) if n != 13
    ]
    with pytest.raises(TaskFailedError, match="unlucky"):
        _ = ordered[3].value
    assert [dataclasses.asdict(end) for end in ends] == [
        {"map_id": handle.id, "name": "nightly", "function": "double", "tenant": None, "items": 10}
        | {"succeeded": 9, "dead": 1, "cancelled": 0}
    ]
    assert (await handle.wait(5)).final == 10


async def test_an_early_item_that_is_slow_delays_only_ordered_results(queue: Tidegate) -> None:
    released = asyncio.Event()

    @queue.task(name="slow")
    async def slow(number: int) -> int:
        if number == 0:
            await released.wait()
        return number

    handle = await slow.map(range(4))
    async with queue.worker():
        loose = handle.results()
        first = [await anext(loose) for _ in range(3)]
        assert sorted(result.index for result in first) == [1, 2, 3]
        ordered = asyncio.create_task(anext(handle.results(ordered=True)))
        done, _ = await asyncio.wait([ordered], timeout=0.3)
        assert not done
        with pytest.raises(ResultTimeoutError):
            await handle.wait(0)
        released.set()
        assert (await ordered).index == 0
        assert (await anext(loose)).index == 0
        with pytest.raises(StopAsyncIteration):
            await anext(loose)


async def test_dead_items_are_retried_alone_and_results_follow(queue: Tidegate) -> None:
    failing = {2, 3}

    @queue.task(name="flaky")
    async def flaky(number: int) -> int:
        if number in failing:
            message = "not yet"
            raise Permanent(message)
        return number

    handle = await flaky.map(range(5))
    async with queue.worker():
        assert (await handle.wait(10)).dead == 2
        failing.clear()
        assert await handle.retry_failed() == 2
        progress = await handle.wait(10)
    assert (progress.succeeded, progress.dead) == (5, 0)
    assert [result.value async for result in handle.results(ordered=True)] == list(range(5))
    rows = await queue.admin.maps.items(handle.id)
    runs = [(await queue.status(row.task_id)).redrives for row in rows]
    assert runs == [0, 0, 1, 1, 0]


async def test_a_cancelled_map_stops_and_keeps_what_is_done(queue: Tidegate) -> None:
    @queue.task(name="nap")
    async def nap(number: int) -> int:
        await asyncio.sleep(0 if number == 0 else 60)
        return number

    handle = await nap.map(range(50))
    async with queue.worker():
        await until(lambda: _has_ended_items(handle), within=10, what="the first item ended")
        assert await handle.cancel("enough")
        assert not await handle.cancel()
        progress = await handle.wait(20)
        await until(lambda: _is_ended(queue, handle), within=10, what="the map ended")
    assert (progress.succeeded, progress.cancelled) == (1, 49)
    results = [result async for result in handle.results(ordered=True)]
    assert results[0].value == 0
    with pytest.raises(TaskCancelledError):
        _ = results[1].value
    with pytest.raises(MapNotFoundError):
        await queue.map_handle("0191ffff").progress()


async def _is_true(value: object) -> bool:
    return bool(value)


async def _has_ended_items(handle: MapHandle[Any]) -> bool:
    return (await handle.progress()).final > 0


async def _is_ended(app: Tidegate, handle: MapHandle[Any]) -> bool:
    return (await app.admin.maps.get(handle.id)).ended_at is not None


async def test_too_many_failures_cancel_the_rest(queue: Tidegate) -> None:
    ends: list[MapEnd] = []
    _, report = declare(queue, ends)

    @queue.task(name="fail")
    async def fail(number: int) -> None:
        if number > 3:
            await asyncio.sleep(60)
        message = "no"
        raise Permanent(message)

    handle = await fail.map(range(40), max_failures=3, on_complete=report)
    async with queue.worker():
        await until(lambda: _is_true(ends), within=20, what="the callback ran")
    assert (ends[0].dead, ends[0].cancelled) == (4, 36)
    status = await queue.admin.maps.get(handle.id)
    assert status.cancel_why == "more than 3 items of the map died"


async def test_an_item_may_enqueue_a_map_of_its_own(queue: Tidegate) -> None:
    double, _ = declare(queue)

    @queue.task(name="outer")
    async def outer(number: int) -> str:
        inner = await double.map(range(number), key=f"pages of {number}")
        return str(inner.id)

    handle = await outer.map([1, 2, 3])
    async with queue.worker():
        inner = [result.value async for result in handle.results(ordered=True)]
        totals = [(await queue.map_handle(map_id).wait(10)).succeeded for map_id in inner]
    assert totals == [1, 2, 3]


async def test_the_same_map_enqueued_twice_is_one_map(queue: Tidegate) -> None:
    double, _ = declare(queue)
    one = await double.map(range(5), key="nightly")
    two = await double.map((number for number in range(5)), key="nightly")
    assert (one.created, two.created, two.id) == (True, False, one.id)
    with pytest.raises(KeyConflictError, match="other arguments"):
        await double.map(range(6), key="nightly")
    assert (await double.using(tenant="acme").map(range(6), key="nightly")).created
    assert len(await queue.admin.tasks.list(limit=100)) == 11


async def test_an_empty_map_and_prepared_items(queue: Tidegate) -> None:
    @queue.task(name="add")
    async def add(one: int, two: int = 0) -> int:
        return one + two

    empty = await add.map([])
    handle = await add.map([1, add.prepare(1, two=2)])
    async with queue.worker():
        assert (await empty.wait(5)).items == 0
        assert [result.value async for result in handle.results(ordered=True)] == [1, 3]
    assert [result async for result in empty.results()] == []


async def test_an_item_that_does_not_fit_is_named_and_nothing_is_stored(queue: Tidegate) -> None:
    double, _ = declare(queue)

    def numbers() -> Iterator[Any]:
        yield from range(6_000)
        yield "no number"

    with pytest.raises(ArgumentsError, match="item 6000 of map"):
        await double.map(numbers())
    assert await queue.admin.maps.list() == []
    assert await queue.admin.tasks.list() == []


@pytest.mark.parametrize(
    ("options", "settings", "error"),
    [
        ({"key": "k"}, {}, OptionError),
        ({"unique": "until_final"}, {}, OptionError),
        ({}, {"max_failures": -1}, OptionError),
        ({}, {"on_complete": print}, OptionError),
        ({}, {"key": ""}, OptionError),
        ({}, {"surprise": 1}, OptionError),
    ],
)
async def test_a_setting_that_a_map_cannot_have_is_refused(
    app: Tidegate, options: dict[str, Any], settings: dict[str, Any], error: type[Exception]
) -> None:
    double, _ = declare(app)
    with pytest.raises(error):
        await double.using(**options).map([1], **settings)


@pytest.mark.parametrize("items", ["text", b"bytes", {"a": 1}, 7])
async def test_what_is_no_list_of_items_is_refused(app: Tidegate, items: Any) -> None:
    double, _ = declare(app)
    with pytest.raises(UsageError):
        await double.map(items)


async def test_a_removed_result_is_an_error_of_its_item_only(app: Tidegate) -> None:
    double, _ = declare(app)
    handle = await double.map([1, 2])
    async with app.worker():
        await handle.wait(10)
    store = await core_of(app).opened_store()
    [first, _] = await app.admin.maps.items(handle.id)
    await store.delete_task_parts([first.task_id], [Data.RESULTS])
    results = [result async for result in handle.results(ordered=True)]
    with pytest.raises(DataRemovedError):
        _ = results[0].value
    assert results[1].value == 4


async def test_a_map_that_is_being_cancelled_is_not_retried(app: Tidegate) -> None:
    double, _ = declare(app)
    handle = await double.map([1])
    await handle.cancel()
    with pytest.raises(NotAcceptedError):
        await handle.retry_failed()


def test_the_sync_twins_do_the_same(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    double, _ = declare(app)
    handle = double.map_sync(range(3), name="n")
    assert handle.progress_sync().waiting == 3
    assert handle.eta_sync() is None

    async def work() -> None:
        async with app.worker():
            await handle.wait(10)

    asyncio.run(work())
    assert [result.value for result in handle.results_sync(ordered=True)] == [0, 2, 4]
    assert handle.wait_sync(timeout=1).succeeded == 3
    assert handle.retry_failed_sync() == 0
    assert [status.map_id for status in app.admin.maps.list_sync()] == [handle.id]
    assert app.admin.maps.get_sync(handle.id[:13]).name == "n"
    assert app.admin.maps.progress_sync(handle.id).succeeded == 3
    assert [item.state for item in app.admin.maps.items_sync(handle.id, after=1)] == [State.SUCCEEDED]
    assert app.admin.maps.retry_failed_sync(handle.id) == 0
    other = double.map_handle(double.map_sync([1]).id)
    assert app.admin.maps.cancel_sync(other.id, why="x")
    assert not other.cancel_sync()


async def test_the_items_of_a_generator_are_not_held_in_memory(app: Tidegate) -> None:
    double, _ = declare(app)
    await double.map(range(10))

    async def numbers() -> AsyncIterator[int]:
        for number in range(40_000):
            yield number

    tracemalloc.start()
    try:
        await double.map(numbers(), key="k")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24_000_000  # one part of 5,000; all items take more than 40 MB


KILLED = """
import asyncio, os, signal, sys
from tidegate import Tidegate

app = Tidegate(sys.argv[1])

@app.task(name="double")
async def double(number: int) -> int:
    return 2 * number

def numbers():
    for number in range(20_000):
        if number == 11_000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield number

asyncio.run(double.map(numbers()))
"""


async def test_a_client_that_is_killed_while_it_maps_leaves_no_map_and_no_task(
    queue: Tidegate, store_url: str, tmp_path: Path
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(textwrap.dedent(KILLED))
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(script), store_url],
        check=False,
        capture_output=True,
        cwd=tmp_path,
    )
    assert ended.returncode == -9, ended.stderr
    assert await queue.admin.maps.list() == []
    assert await queue.admin.tasks.list() == []
    store = open_store(store_url)
    try:
        assert await store.list_open_maps() == []
        assert await store.check_integrity() == []
    finally:
        await store.close()
