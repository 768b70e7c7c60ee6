"""One task for one key, and when a unique name is free again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import all_final, until
from tidegate import Fixed, KeyConflictError, State, Tidegate

pytestmark = pytest.mark.anyio


async def test_the_same_key_names_the_first_task_whatever_became_of_it(app: Tidegate) -> None:
    @app.task(name="t", max_attempts=1)
    async def function(number: int) -> int:
        if number == 2:
            raise OSError("fails")
        return number

    first = await function.using(key="one").enqueue(1)
    assert first.created
    again = await function.using(key="one").enqueue(1)
    assert (again.id, again.created) == (first.id, False)
    failing = await function.using(key="two").enqueue(2)
    cancelled = await function.using(key="three").enqueue(3)
    await cancelled.cancel()
    async with app.worker():
        await all_final(app, [first.id, failing.id, cancelled.id])
        for key, number, handle in [("one", 1, first), ("two", 2, failing), ("three", 3, cancelled)]:
            assert (await function.using(key=key).enqueue(number)).id == handle.id
    with pytest.raises(KeyConflictError) as caught:
        await function.using(key="one").enqueue(7)
    assert caught.value.facts["task_id"] == first.id
    other = await function.using(key="one", tenant="acme").enqueue(7)
    assert other.created


async def test_twenty_at_once_with_one_key_are_one_task(app: Tidegate) -> None:
    ran: list[int] = []

    @app.task(name="t")
    async def function() -> None:
        ran.append(1)

    async with app.worker():
        handles = await asyncio.gather(*(function.using(key="k").enqueue() for _ in range(20)))
        await all_final(app, [handles[0].id])
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created is True for handle in handles) == 1
    assert ran == [1]


async def test_a_unique_task_is_free_again_at_its_final_state_and_not_before(app: Tidegate) -> None:
    go, inside = asyncio.Event(), []

    @app.task(name="t", max_attempts=2, backoff=Fixed(0.05))
    async def function(fate: str) -> None:
        inside.append((await function.using(unique="until_final").enqueue(fate)).created)
        await go.wait()
        if fate == "dies":
            raise OSError("again")

    async def enqueue(fate: str) -> Any:
        return await function.using(unique="until_final").enqueue(fate)

    async with app.worker():
        for fate in ("lives", "dies", "cancelled"):
            go.clear()
            handle = await enqueue(fate)
            assert handle.created

            async def running(handle: Any = handle) -> bool:
                return (await handle.status()).state is State.RUNNING

            await until(running)
            assert (await enqueue(fate)).id == handle.id
            if fate == "cancelled":
                await handle.cancel()
            go.set()
            await all_final(app, [handle.id])
            next_one = await enqueue(fate)
            assert next_one.created
            await all_final(app, [next_one.id])
    assert not any(inside)


async def test_unique_for_a_time_outlives_the_end_and_goes_by_arguments(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    async with app.worker():
        first = await function.using(unique="1h").enqueue(1)
        await all_final(app, [first.id])
        assert (await function.using(unique="1h").enqueue(1)).id == first.id
        assert (await function.using(unique="1h").enqueue(2)).created


async def test_two_processes_with_one_key_get_one_task(app: Tidegate, tmp_path: Path) -> None:
    code = """
import sys
from tidegate import Tidegate
app = Tidegate(sys.argv[1])
@app.task(name="t")
def body(number: int) -> None: ...
for number in range(50):
    print(body.using(key=f"k{number}").enqueue_sync(number).id)
"""
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path}/queue.db"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ids = [process.communicate(timeout=30)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(ids[0]) == 50
    assert ids[0] == ids[1]
