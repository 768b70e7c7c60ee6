"""Handles, and enqueuing many tasks of one function."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support import make_app
from tidegate import (
    ArgumentsError,
    Context,
    Handle,
    OptionError,
    ResultTimeoutError,
    TaskFunction,
    Tidegate,
    UsageError,
)
from tidegate.internals import core_of
from tidegate.store.rows import TaskFilter

DAY = date(2026, 3, 1)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidegate]:
    application = make_app(tmp_path)

    @application.task(name="t")
    async def after(start: date, days: int = 1) -> date:
        return start + timedelta(days=days)

    @application.task(name="emits")
    async def emits(ctx: Context, count: int) -> None:
        for number in range(count):
            await ctx.emit(number)

    yield application
    await application.aclose()


async def stored(app: Tidegate) -> int:
    return len(await (await core_of(app).opened_store()).list_tasks(TaskFilter(), limit=100))


async def test_each_form_of_a_call_becomes_a_task_in_the_order_given(app: Tidegate) -> None:
    after: TaskFunction[Any, Any, date] = app.function("t")
    async with app.worker():
        handles = await after.enqueue_many([(DAY,), {"start": DAY, "days": 2}, after.prepare(DAY, 3)])
        results = [await handle.result("10s") for handle in handles]
    assert results == [DAY + timedelta(days=days) for days in (1, 2, 3)]
    assert [handle.created for handle in handles] == [True, True, True]


async def test_an_async_iterable_of_calls_is_read_as_it_goes(app: Tidegate) -> None:
    async def calls() -> AsyncIterator[tuple[date, int]]:
        for days in range(3):
            yield DAY, days

    assert len(await app.function("t").enqueue_many(calls())) == 3
    assert await stored(app) == 3


async def test_options_hold_for_every_task_of_an_enqueue_of_many(app: Tidegate) -> None:
    handles = await app.function("t").using(queue="other", labels={"a": "b"}).enqueue_many([(DAY,), (DAY,)])
    rows = [await handle.status() for handle in handles]
    assert [(row.queue, row.labels) for row in rows] == [("other", {"a": "b"})] * 2


@pytest.mark.parametrize("more", [0, 5_001])
async def test_created_is_false_for_items_whose_unique_name_another_task_holds(
    app: Tidegate, more: int
) -> None:
    unique = app.function("t").using(unique="until_final")
    first = await unique.enqueue(DAY, 1)
    handles = await unique.enqueue_many([(DAY, days) for days in (1, 2, 2, *range(3, 3 + more))])
    assert [handle.created for handle in handles[:3]] == [False, True, False]
    assert handles[0].id == first.id
    assert handles[1].id == handles[2].id
    assert all(handle.created for handle in handles[3:])


async def test_prepared_tasks_keep_keys_of_their_own(app: Tidegate) -> None:
    after = app.function("t")
    first = await after.using(key="a").enqueue(DAY)
    handles = await after.enqueue_many([after.using(key="a").prepare(DAY), after.using(key="b").prepare(DAY)])
    assert [(handle.created, handle.id == first.id) for handle in handles] == [(False, True), (True, False)]


async def test_a_key_with_enqueue_many_is_refused(app: Tidegate) -> None:
    keyed = app.function("t").using(key="a")
    with pytest.raises(OptionError, match="one key names one task") as caught:
        await keyed.enqueue_many([(DAY,)])
    assert "unique=" in caught.value.fix
    with pytest.raises(OptionError, match="one key names one task"):
        await asyncio.to_thread(keyed.enqueue_many_sync, [(DAY,)])
    assert await stored(app) == 0


@pytest.mark.parametrize(
    ("calls", "error", "message"),
    [
        ([(DAY,), ("soon",)], ArgumentsError, "item 1"),
        ([(DAY,), "text"], UsageError, "item 1.*'text'"),
        ([(DAY,), [DAY]], UsageError, "item 1"),
        ([{1: DAY}], UsageError, "item 0"),
        ({"start": DAY}, UsageError, "enqueue_many was given"),
        (7, UsageError, "enqueue_many was given 7"),
    ],
)
async def test_a_call_that_does_not_fit_is_named_by_its_place_and_nothing_is_stored(
    app: Tidegate, calls: Any, error: type[Exception], message: str
) -> None:
    after = app.function("t")
    with pytest.raises(error, match=message):
        await after.enqueue_many(calls)
    with pytest.raises(error, match=message):
        await asyncio.to_thread(after.enqueue_many_sync, calls)
    assert await stored(app) == 0


async def test_a_task_prepared_by_another_function_is_refused(app: Tidegate) -> None:
    with pytest.raises(UsageError, match="a task of emits, not of t"):
        await app.function("t").enqueue_many([app.function("emits").prepare(1)])


async def test_the_application_stores_prepared_tasks_only(app: Tidegate) -> None:
    for wrong in ((DAY,), "text"):
        with pytest.raises(UsageError, match="not a prepared task"):
            await app.enqueue_many([wrong])  # type: ignore[list-item]
    assert await stored(app) == 0


async def test_sync_code_enqueues_many(app: Tidegate) -> None:
    def calls() -> Iterator[tuple[date, int]]:
        yield DAY, 1
        yield DAY, 2

    handles = await asyncio.to_thread(app.function("t").enqueue_many_sync, calls())
    async with app.worker():
        assert [await handle.result(10) for handle in handles] == [
            DAY + timedelta(days=1),
            DAY + timedelta(days=2),
        ]


async def test_a_handle_made_by_the_function_decodes_by_its_annotation(app: Tidegate) -> None:
    after = app.function("t")
    made = await after.enqueue(DAY)
    async with app.worker():
        assert await after.handle(made.id).result(timedelta(seconds=10)) == DAY + timedelta(days=1)
        assert await app.handle(made.id).result(10) == "2026-03-02"
    assert after.handle(made.id).created is None


async def test_sync_code_follows_a_stream(app: Tidegate) -> None:
    handle = await app.function("emits").enqueue(5)

    def follow(after: int) -> list[tuple[int, object]]:
        return [(chunk.sequence, chunk.data) for chunk in handle.stream_sync(after)]

    async with app.worker():
        assert await asyncio.to_thread(follow, 0) == [(number + 1, number) for number in range(5)]
    assert await asyncio.to_thread(follow, 3) == [(4, 3), (5, 4)]


async def test_a_stream_that_sync_code_leaves_early_is_closed(app: Tidegate) -> None:
    @app.task(name="endless")
    async def endless(ctx: Context) -> None:
        await ctx.emit("first")
        await asyncio.Event().wait()

    handle = await endless.enqueue()

    def first() -> object:
        for chunk in handle.stream_sync():
            return chunk.data
        return None

    async with app.worker():
        assert await asyncio.to_thread(first) == "first"
        assert await asyncio.to_thread(functools.partial(_followers, app, handle)) == 0
        await handle.cancel(force=True)


def _followers(app: Tidegate, handle: Handle[Any]) -> int:
    """Return how many follow a task on the loops of sync callers."""
    return sum(len(watch._followed) for watch in core_of(app)._task_watchers.values())


@pytest.mark.parametrize("timeout", ["0s", 0, timedelta(0)])
async def test_a_timeout_is_given_in_any_form_of_a_duration(app: Tidegate, timeout: Any) -> None:
    handle = await app.function("t").enqueue(DAY)
    with pytest.raises(ResultTimeoutError):
        await handle.result(timeout)
    with pytest.raises(ResultTimeoutError) as late:
        await app.result(handle.id, timeout)
    assert f"tidegate tasks why {handle.id}" in late.value.fix


@pytest.mark.parametrize("timeout", ["soon", -1, True])
async def test_a_timeout_that_is_no_duration_is_refused(app: Tidegate, timeout: Any) -> None:
    with pytest.raises(OptionError, match="timeout="):
        await app.result("00000000-0000-7000-8000-000000000000", timeout)


async def test_a_sync_result_without_a_timeout_is_refused(app: Tidegate) -> None:
    handle = await app.function("t").enqueue(DAY)
    for call in (
        lambda: handle.result_sync(),  # type: ignore[call-arg]
        lambda: handle.result_sync(None),  # type: ignore[arg-type]
        lambda: handle.result_sync(timeout=None),  # type: ignore[arg-type]
        lambda: app.result_sync(handle.id),  # type: ignore[call-arg]
        lambda: app.result_sync(task_id=handle.id, timeout=None),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match="needs a timeout"):
            await asyncio.to_thread(call)
    async with app.worker():
        assert await asyncio.to_thread(app.result_sync, handle.id, "10s") == "2026-03-02"
        assert await asyncio.to_thread(handle.result_sync, 10) == DAY + timedelta(days=1)


async def test_moments_are_datetimes_in_utc(app: Tidegate) -> None:
    begin = datetime.now(UTC)
    handle = await app.function("emits").using(deadline="1h", delay="20ms").enqueue(1)
    async with app.worker():
        await handle.result("10s")
        chunks = [chunk async for chunk in handle.stream()]
    status = await handle.status()
    history = await handle.history()
    moments = [status.enqueued_at, status.due_at, status.started_at, status.finished_at]
    moments += [chunks[0].stored_at, history[-1].happened_at, history[-1].ended_at]
    for moment in moments:
        assert moment is not None
        assert moment.tzinfo is UTC
        assert begin - timedelta(seconds=1) <= moment <= datetime.now(UTC) + timedelta(seconds=1)
    assert status.deadline_at == status.enqueued_at + timedelta(hours=1)
    assert (status.task_id, status.tenant, status.upstream, status.progress) == (handle.id, None, None, None)
