"""The content cache in real workers: one task works, the others hold no slot, and a kill strands nobody."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counting_provider import CountingProvider
from support import EVERYDAY_ON_SQLITE, all_final, ledger, load_app, until, worker_process
from tidegate import State
from tidegate.internals import core_of
from tidegate.store.protocol import Store

pytestmark = [pytest.mark.anyio, EVERYDAY_ON_SQLITE]

FORMS = [
    "in_loop",
    *(pytest.param(form, marks=pytest.mark.slow) for form in ("in_child", "in_thread", "in_child_loop")),
]


@pytest.fixture
def caching(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests, on both stores. Its workers have one slot each."""
    return load_app("caching", tmp_path, monkeypatch, url=store_url)


@contextmanager
def two_workers(directory: Path, url: str, **environment: str) -> Iterator[None]:
    """Run two workers of the application inside the block."""
    environment["TIDEGATE_DATABASE_URL"] = url
    with (
        worker_process("caching:app", directory, **environment),
        worker_process("caching:app", directory, **environment),
    ):
        yield


def calls(directory: Path) -> Counter[str]:
    """Return how often the work on each item was begun."""
    return Counter(entry["item"] for entry in ledger(directory) if entry["what"] == "call")


def release(directory: Path, *items: str) -> None:
    """Let the work on these items end."""
    for item in items:
        (directory / f"go-{item}").touch()


async def the_store(caching: Any) -> Store:
    return await core_of(caching.app).opened_store()


async def called(directory: Path, item: str, times: int = 1) -> None:
    """Wait until the work on an item was begun this often."""

    async def has_begun() -> bool:
        return calls(directory)[item] >= times

    await until(has_begun, within=60, what=f"work on {item} was begun {times} times")


async def in_state(caching: Any, task_id: str, state: State) -> None:
    store = await the_store(caching)

    async def is_in_state() -> bool:
        return (await store.read_tasks([task_id]))[task_id].state is state

    await until(is_in_state, within=60, what=f"it is {state}")


async def results(caching: Any, *handles: Any) -> list[Any]:
    """Return the results of these tasks when all are final."""
    await all_final(caching.app, [handle.id for handle in handles], within=60)
    return [await handle.result(5) for handle in handles]


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_that_waits_for_the_same_work_holds_no_slot_and_gets_its_result(
    form: str, caching: Any, store_url: str, tmp_path: Path
) -> None:
    with two_workers(tmp_path, store_url):
        first = await getattr(caching, form).enqueue("cat")
        await called(tmp_path, "cat")
        second = await getattr(caching, form).enqueue("cat")
        await in_state(caching, second.id, State.SUSPENDED)
        assert await results(caching, await caching.quick.enqueue()) == ["quick"]  # the other slot is free
        assert first.id in (await (await the_store(caching)).read_tasks([second.id]))[second.id].message
        release(tmp_path, "cat")
        assert await results(caching, first, second) == ["CAT", "CAT"]
        third = await getattr(caching, form).enqueue("cat")
        assert await results(caching, third) == ["CAT"]
    assert calls(tmp_path) == Counter(cat=1)
    for handle in (second, third):
        [step] = await (await the_store(caching)).read_steps(handle.id)
        assert step.cached_from == first.id


async def test_a_kill_of_the_task_that_works_strands_nobody_and_one_task_works_on(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    env = {"TIDEGATE_DATABASE_URL": store_url}
    with worker_process("caching:app", tmp_path, **env) as worker:
        first = await caching.in_loop.enqueue("cat")
        await called(tmp_path, "cat")
        with worker_process("caching:app", tmp_path, **env):
            others = [await caching.in_loop.enqueue("cat") for _ in range(3)]
            for handle in others:
                await in_state(caching, handle.id, State.SUSPENDED)
            for pid in [worker.pid, *worker.children()]:
                os.kill(pid, signal.SIGKILL)
            await called(tmp_path, "cat", 2)
            release(tmp_path, "cat")
            assert await results(caching, first, *others) == ["CAT"] * 4
    assert calls(tmp_path) == Counter(cat=2)


async def test_a_kill_at_one_call_at_a_time_strands_nobody(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    async with CountingProvider(seconds=30) as provider:
        env = {"TIDEGATE_DATABASE_URL": store_url, "PROVIDER": provider.url}
        with worker_process("caching:app", tmp_path, **env) as worker:
            first = await caching.asked.enqueue("cat")
            await provider.has_begun(1, within=60)  # its call holds the one permit of the upstream
            with worker_process("caching:app", tmp_path, **env):
                others = [await caching.asked.enqueue("cat") for _ in range(2)]
                for handle in others:
                    await in_state(caching, handle.id, State.SUSPENDED)
                provider.seconds = 0.05
                for pid in [worker.pid, *worker.children()]:
                    os.kill(pid, signal.SIGKILL)
                assert await results(caching, first, *others) == ["cat 200"] * 3
    assert provider.calls == 2


async def test_a_task_that_waits_holds_no_permit(caching: Any, store_url: str, tmp_path: Path) -> None:
    async with CountingProvider(seconds=0.05) as provider:
        with two_workers(tmp_path, store_url, PROVIDER=provider.url):
            first = await caching.in_loop.enqueue("cat")
            await called(tmp_path, "cat")
            second = await caching.in_loop.enqueue("cat")
            await in_state(caching, second.id, State.SUSPENDED)
            assert await results(caching, await caching.asked_alone.enqueue("dog")) == ["dog 200"]
            release(tmp_path, "cat")
            assert await results(caching, first, second) == ["CAT", "CAT"]


async def test_a_cancel_of_the_task_that_works_lets_another_one_work(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    with two_workers(tmp_path, store_url):
        first = await caching.in_loop.enqueue("cat")
        await called(tmp_path, "cat")
        second = await caching.in_loop.enqueue("cat")
        await in_state(caching, second.id, State.SUSPENDED)
        await first.cancel()
        await called(tmp_path, "cat", 2)
        release(tmp_path, "cat")
        assert await results(caching, second) == ["CAT"]


async def test_a_task_with_another_step_in_flight_waits_in_its_run(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    with two_workers(tmp_path, store_url):
        first = await caching.in_loop.enqueue("cat")
        await called(tmp_path, "cat")
        second = await caching.beside_a_step.enqueue("cat", "dog")
        await called(tmp_path, "dog", 2)
        release(tmp_path, "cat")
        await results(caching, first)
        store = await the_store(caching)

        async def has_got_it() -> bool:
            return any(step.cached_from for step in await store.read_steps(second.id))

        await until(has_got_it, within=60, what="it got the result while its other steps run")
        release(tmp_path, "dog")
        assert await results(caching, second) == [["CAT", "DOG", "DOG"]]
    assert [entry["run"] for entry in ledger(tmp_path) if entry.get("task_id") == second.id] == [1]


async def test_a_task_whose_other_steps_have_ended_is_suspended(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    with two_workers(tmp_path, store_url):
        first = await caching.in_loop.enqueue("cat")
        await called(tmp_path, "cat")
        second = await caching.beside_a_step.enqueue("cat", "dog")
        release(tmp_path, "dog")
        await in_state(caching, second.id, State.SUSPENDED)
        release(tmp_path, "cat")
        assert await results(caching, first, second) == ["CAT", ["CAT", "DOG", "DOG"]]
    assert calls(tmp_path) == Counter(cat=1, dog=2)


async def test_equal_work_in_one_run_is_done_once(caching: Any, store_url: str, tmp_path: Path) -> None:
    release(tmp_path, "cat")
    with worker_process("caching:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        assert await results(caching, await caching.twice.enqueue("cat")) == [["CAT", "CAT"]]
    assert calls(tmp_path) == Counter(cat=1)


async def test_work_inside_other_work_does_not_wait_so_two_tasks_cannot_wait_for_each_other(
    caching: Any, store_url: str, tmp_path: Path
) -> None:
    with two_workers(tmp_path, store_url):
        first = await caching.in_loop.enqueue("cat")
        await called(tmp_path, "cat")
        release(tmp_path, "inside")
        second = await caching.inside.enqueue("dog", "cat")
        await called(tmp_path, "cat", 2)  # the inner step does the work, too
        release(tmp_path, "cat")
        assert await results(caching, first, second) == ["CAT", "dogCAT"]
