"""The kit in async tests: tasks run in the test's own event loop, whose other timers keep their time."""

from __future__ import annotations

import asyncio
import threading
import time

import kit_app
import pytest
from kit_app import app, ask_child, ask_child_sync, checkout, double, greet, refuse, sleep

from tidegate import UsageError
from tidegate.testing import Kit, NeverEndedError


async def test_tasks_run_in_the_loop_of_the_test() -> None:
    loops: list[object] = []
    original = greet.function

    async def observed(name: str, *, loud: bool = False) -> str:
        loops.append(asyncio.get_running_loop())
        return await original(name, loud=loud)

    async with Kit(app) as kit:
        greet.function = observed
        try:
            handle = await greet.enqueue("Ada")
            assert (await kit.drain()).succeeded == 1
        finally:
            greet.function = original
        assert await handle.result(0) == "hello Ada"
    assert loops == [asyncio.get_running_loop()]


async def test_a_plain_with_works_in_an_async_test_too() -> None:
    with Kit(app) as kit:
        await checkout("Ada")
        kit.assert_enqueued(greet, args=("Ada",), tenant="acme", key="greet-Ada")
        assert (await kit.drain()).succeeded == 1


async def test_a_kit_beside_that_of_another_asyncio_task_is_refused() -> None:
    async def enter_another() -> None:
        async with Kit(app):
            pass

    async with Kit(app), Kit(app):
        with pytest.raises(UsageError, match="another test uses this application"):
            await asyncio.create_task(enter_another())
    await asyncio.create_task(enter_another())


async def test_a_task_may_wait_for_a_child_in_a_coroutine_and_in_a_thread() -> None:
    async with Kit(app) as kit:
        handles = [await ask_child.enqueue(1), await ask_child_sync.enqueue(2)]
        assert (await kit.drain()).succeeded == 4
        assert [await handle.result(0) for handle in handles] == [3, 5]


async def test_a_sleep_of_a_task_takes_no_real_time() -> None:
    async with Kit(app) as kit:
        await sleep.enqueue(1_200)
        began = time.monotonic()
        assert (await kit.drain()).succeeded == 1
        assert time.monotonic() - began < 1


async def test_the_clock_jumps_do_not_end_timers_that_the_test_set_itself() -> None:
    async with Kit(app) as kit, asyncio.timeout(30):
        await refuse.enqueue("no")
        assert (await kit.advance(hours=2)).dead == 1


async def test_the_loop_keeps_its_own_time_after_a_drain() -> None:
    loop = asyncio.get_running_loop()
    fired = loop.create_future()
    before = loop.time()
    async with Kit(app) as kit:
        loop.call_later(0.05, fired.set_result, None)
        await sleep.enqueue(600)
        await kit.drain()
    assert loop.time() - before < 5
    assert "time" not in vars(loop)
    async with asyncio.timeout(5):
        await fired


async def test_real_work_in_a_thread_of_the_loop_is_waited_for_and_meets_no_time_limit() -> None:
    original = greet.function
    main = threading.get_ident()

    async def observed(name: str, *, loud: bool = False) -> str:
        assert await asyncio.to_thread(threading.get_ident) != main
        await asyncio.to_thread(time.sleep, 0.05)
        return name

    async with Kit(app) as kit:
        greet.function = observed
        try:
            await greet.enqueue("Ada")
            drained = await kit.drain()
        finally:
            greet.function = original
    assert drained.succeeded == 1, drained


async def test_a_real_answer_from_a_socket_is_waited_for_and_meets_no_time_limit() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.to_thread(time.sleep, 0.05)
        writer.write(b"pong\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    original = greet.function

    async def observed(name: str, *, loud: bool = False) -> str:
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"ping\n")
            line = await reader.readline()
            writer.close()
            return line.decode()

    async with server, Kit(app) as kit:
        greet.function = observed
        try:
            handle = await greet.enqueue("Ada")
            await kit.drain()
            assert await handle.result(0) == "pong\n"
        finally:
            greet.function = original


async def test_a_sync_method_in_an_async_test_is_refused() -> None:
    async with Kit(app) as kit:
        with pytest.raises(UsageError, match="without _sync"):
            kit.drain_sync()


async def test_a_drain_inside_a_drain_is_refused() -> None:
    async with Kit(app) as kit:
        await sleep.enqueue(10)
        first, second = await asyncio.gather(kit.drain(), kit.drain(), return_exceptions=True)
        assert isinstance(second, UsageError), (first, second)


async def test_a_task_that_never_ends_fails_the_test_and_is_named() -> None:
    async with Kit(app) as kit:
        await kit_app.for_ever.enqueue()
        with pytest.raises(NeverEndedError, match="kit_app:for_ever"):
            await kit.drain(limit=0.2)


async def test_a_task_that_is_cancelled_by_another_stops_at_once() -> None:
    async with Kit(app) as kit:
        handle = await sleep.enqueue(1_200)
        original = greet.function

        async def cancels(name: str, *, loud: bool = False) -> str:
            await asyncio.sleep(1)
            await handle.cancel()
            return name

        greet.function = cancels
        try:
            await greet.enqueue("Ada")
            before = kit.now()
            drained = await kit.drain()
        finally:
            greet.function = original
        assert (drained.cancelled, drained.succeeded) == (1, 1)
        assert (kit.now() - before).total_seconds() < 60
        assert await double.enqueue(1)
