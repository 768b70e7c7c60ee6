"""Misbehaving clients: half enqueues, forks, interrupts, sync calls in odd places."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attack_support import OddStore

from support import FAST, app_on, make_app
from tidegate import ConfigError, Pool, State, StoreUnavailableError, Tidegate, UsageError
from tidegate.internals import core_of
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.store.rows import NewTask

pytestmark = pytest.mark.anyio


def odd_app(directory: Path) -> tuple[Tidegate, OddStore]:
    store = OddStore(directory / "queue.db")
    return app_on(store, pools=[Pool(concurrency=10, poll_interval=0.05)], timings=FAST), store


async def test_a_task_of_a_failed_enqueue_batch_can_be_enqueued_alone(tmp_path: Path) -> None:
    app, store = odd_app(tmp_path)

    @app.task(name="t")
    async def body(number: int) -> None: ...

    tasks = [body.prepare(number) for number in range(5_100)]
    store.fail_once("commit_batch", StoreUnavailableError("away"))
    store.fail_once("drop_batch", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        await app.enqueue_many(tasks)
    answers = [await core_of(app).enqueue_prepared(task.new_task) for task in tasks[:3]]
    rows = await core_of(app).store.read_tasks([answer.task_id for answer in answers])
    assert [answer.created for answer in answers] == [True, True, True]
    assert {rows[answer.task_id].state for answer in answers} == {State.READY}
    assert await core_of(app).store.check_integrity() == []
    await app.aclose()


async def test_a_failed_bulk_enqueue_names_the_reason_and_stores_nothing(tmp_path: Path) -> None:
    app, store = odd_app(tmp_path)

    @app.task(name="t")
    async def body(number: int) -> None: ...

    def broken() -> Iterator[NewTask]:
        for number in range(5_050):
            yield body.prepare(number)
        raise LookupError("no more input")

    with pytest.raises(LookupError):
        await app.enqueue_many(broken())
    store.fail_once("enqueue_part", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError, match="away"):
        await app.enqueue_many(body.prepare(number) for number in range(5_050))
    store.fail_once("drop_batch", StoreUnavailableError("away as well"))
    with pytest.raises(LookupError):
        await app.enqueue_many(broken())
    assert await core_of(app).store.get_queue_stats() == []
    await app.aclose()


async def test_a_wait_for_a_result_continues_if_the_dead_task_is_redriven_meanwhile(tmp_path: Path) -> None:
    app, store = odd_app(tmp_path)
    ran: list[int] = []
    looked_once = asyncio.Event()

    @app.task(name="t", max_attempts=1)
    async def body() -> str:
        ran.append(1)
        if len(ran) == 1:
            await looked_once.wait()  # the first look must find it running
            raise ValueError("the first time")
        return "done"

    async def redrive_first(method: Any, task_id: str) -> Any:
        is_dead = (await store.read_tasks([task_id]))[task_id].state is State.DEAD
        if is_dead and "redrive" not in store.calls:
            assert (await store.redrive([task_id]))[task_id] == "done"
        found = await method(task_id)
        looked_once.set()
        return found

    async with app.worker():
        store.around["get_result"] = redrive_first
        handle = await body.enqueue()
        async with asyncio.timeout(10):
            assert await handle.result() == "done"
    assert ran == [1, 1]
    await app.aclose()


class Impatient(Exception):
    pass


def _interrupt(*_: Any) -> None:
    raise Impatient


def test_an_interrupted_sync_call_does_nothing_more(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    yielded = []

    @app.task(name="t")
    async def body(number: int) -> None: ...

    def slow() -> Iterator[NewTask]:
        for number in range(200):
            yielded.append(number)
            yield body.prepare(number)
            time.sleep(0.01)

    before = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Impatient):
            app.enqueue_many_sync(slow())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    count = len(yielded)
    time.sleep(0.3)
    assert len(yielded) <= count + 1 < 200

    async def stats() -> Any:
        return await core_of(app).store.get_queue_stats()

    assert asyncio.run(stats()) == []
    app.close()


def test_the_input_of_a_sync_enqueue_is_read_in_its_callers_thread_and_may_use_sync_calls(
    tmp_path: Path,
) -> None:
    app = make_app(tmp_path)
    threads = set()

    @app.task(name="t")
    async def body(number: int) -> None: ...

    first = body.enqueue_sync(0)

    def tasks() -> Iterator[NewTask]:
        for number in range(5_003):
            threads.add(threading.get_ident())
            if number % 2_500 == 0:
                first.status_sync()
            yield body.prepare(number)

    ids = app.enqueue_many_sync(tasks())
    assert len(ids) == len(set(ids)) == 5_003
    assert threads == {threading.get_ident()}
    app.close()


def test_a_slow_input_blocks_no_other_thread(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    go_on, reading = threading.Event(), threading.Event()

    @app.task(name="t")
    async def body(number: int) -> None: ...

    def slow() -> Iterator[NewTask]:
        yield body.prepare(1)
        reading.set()
        go_on.wait(10)
        yield body.prepare(2)

    body.enqueue_sync(0)
    other = threading.Thread(target=lambda: app.enqueue_many_sync(slow()))
    other.start()
    assert reading.wait(10)
    begin = time.monotonic()
    body.enqueue_sync(3)
    took = time.monotonic() - begin
    go_on.set()
    other.join(10)
    assert took < 5
    app.close()


async def test_a_sync_call_inside_a_loop_is_refused_at_once_and_changes_nothing(app: Tidegate) -> None:
    @app.task(name="t")
    async def body() -> None: ...

    with pytest.raises(UsageError):
        body.enqueue_sync()
    with pytest.raises(UsageError):
        app.enqueue_many_sync([body.prepare()])
    assert await (await core_of(app).opened_store()).get_queue_stats() == []


def test_a_forked_child_of_an_application_in_use_enqueues_and_waits_on_its_own(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task(name="t")
    async def body(number: int) -> int:
        return number

    async def serve() -> None:
        async with app.worker():
            await asyncio.to_thread(over.wait)

    over = threading.Event()
    server = threading.Thread(target=lambda: asyncio.run(serve()))
    server.start()
    busy = threading.Event()

    def enqueue_all_the_time() -> None:
        while not busy.is_set():
            body.enqueue_sync(1)

    threads = [threading.Thread(target=enqueue_all_the_time) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        context = multiprocessing.get_context("fork")
        for _ in range(10):
            child = context.Process(target=_enqueue_and_wait, args=(body,))
            child.start()
            child.join(20)
            if child.exitcode is None:
                child.kill()
            assert child.exitcode == 0
    finally:
        busy.set()
        for thread in threads:
            thread.join()
        assert body.enqueue_sync(7).result_sync(20) == 7
        over.set()
        server.join(20)
    app.close()


def _enqueue_and_wait(body: Any) -> None:
    assert body.enqueue_sync(5).result_sync(15) == 5
    assert asyncio.run(_async_too(body)) == 6
    os._exit(0)


async def _async_too(body: Any) -> Any:
    return await (await body.enqueue(6)).result(15)


async def test_two_functions_of_one_name_are_refused_also_in_one_file(app: Tidegate) -> None:
    @app.task(name="mail")
    async def one() -> None: ...

    with pytest.raises(ConfigError, match="two task functions are named mail"):

        @app.task(name="mail")
        async def other() -> None: ...


async def test_waiting_for_many_results_leaks_nothing(app: Tidegate) -> None:
    @app.task(name="t")
    async def body() -> None: ...

    async with app.worker():
        handles = [await body.enqueue() for _ in range(50)]
        await asyncio.gather(*(handle.result(10) for handle in handles))
        late = await body.using(delay=60).enqueue()
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await late.result(0.01)
    watch: TaskWatcher = core_of(app).task_watcher(core_of(app).store)
    assert watch._waiting == {}
