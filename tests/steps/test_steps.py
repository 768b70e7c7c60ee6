"""Steps in real workers: what is done once, after failures, kills and cancels, on both stores."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import EVERYDAY_ON_SQLITE, all_final, ledger, load_app, until, worker_process
from tidegate import State
from tidegate.internals import core_of
from tidegate.store.protocol import Store

pytestmark = pytest.mark.anyio

FORMS = ["images", "gathered", "in_child", "in_thread"]


SLOW = pytest.mark.slow
ONE_STORE_EACH = [("sqlite", "gathered"), ("postgres", "in_child")]
ALL_FORMS = [
    pytest.param(store, form, marks=() if (store, form) in ONE_STORE_EACH else SLOW)
    for store in ("sqlite", "postgres")
    for form in FORMS
]
"""The forms do not depend on the store, so each is tried once in the everyday tier."""
BOTH_STORES = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=SLOW)], indirect=True
)


@pytest.fixture
def stepping(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests."""
    return load_app("stepping", tmp_path, monkeypatch, url=store_url)


def calls(directory: Path) -> Counter[int]:
    """Return how often each item was paid for."""
    return Counter(entry["item"] for entry in ledger(directory) if entry["what"] == "call")


async def the_store(stepping: Any) -> Store:
    store: Store = await core_of(stepping.app).opened_store()
    return store


async def one_row(stepping: Any, task_id: str) -> Any:
    return (await all_final(stepping.app, [task_id]))[task_id]


@pytest.mark.parametrize(("store_url", "form"), ALL_FORMS, indirect=["store_url"])
async def test_a_task_that_fails_halfway_does_the_finished_steps_once(
    form: str, stepping: Any, store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "fail-4").touch()
    with worker_process("stepping:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await getattr(stepping, form).enqueue(6)
        row = await one_row(stepping, handle.id)
    assert row.state is State.SUCCEEDED
    assert row.run == 2
    assert await handle.result(5) == [item * item for item in range(1, 7)]
    assert calls(tmp_path) == Counter(range(1, 7))


@pytest.mark.parametrize(("store_url", "form"), ALL_FORMS[1:3] + ALL_FORMS[5:7], indirect=["store_url"])
async def test_a_kill_in_the_middle_of_a_step_repeats_that_step_only_and_lists_it(
    form: str, stepping: Any, store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "hang-3").touch()
    with worker_process("stepping:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await getattr(stepping, form).enqueue(3)

        async def is_in_the_third() -> bool:
            answered = {entry["item"] for entry in ledger(tmp_path) if entry["what"] == "answer"}
            return calls(tmp_path)[3] == 1 and answered == {1, 2}

        await until(is_in_the_third, within=40, what="step 3 runs, and the others have ended")
        await asyncio.sleep(0.2)  # the results of the others are on their way to the store
        (tmp_path / "hang-3").unlink()
        for pid in worker.children():
            os.kill(pid, signal.SIGKILL)
        row = await one_row(stepping, handle.id)
    assert row.state is State.SUCCEEDED
    assert calls(tmp_path) == Counter({1: 1, 2: 1, 3: 2})
    [doubt] = await (await the_store(stepping)).list_doubts(state=None)
    assert (doubt.task_id, doubt.step, doubt.state) == (handle.id, "image", "repeated")


@BOTH_STORES
async def test_a_step_in_doubt_that_asks_makes_its_task_a_dead_letter(
    stepping: Any, store_url: str, tmp_path: Path
) -> None:
    row, handle = await killed_in_its_step(stepping.careful, stepping, store_url, tmp_path)
    assert row.state is State.DEAD
    assert row.reason == "in_doubt"
    assert calls(tmp_path) == Counter({7: 1})
    [doubt] = await (await the_store(stepping)).list_doubts()
    assert doubt.task_id == handle.id


@BOTH_STORES
@pytest.mark.parametrize("is_found", [True, False])
async def test_a_function_that_finds_out_decides_about_a_step_in_doubt(
    is_found: bool, stepping: Any, store_url: str, tmp_path: Path
) -> None:
    if is_found:
        (tmp_path / "found").touch()
    row, handle = await killed_in_its_step(stepping.reconciled, stepping, store_url, tmp_path)
    assert row.state is State.SUCCEEDED
    assert await handle.result(5) == (-1 if is_found else 49)
    assert calls(tmp_path) == Counter({7: 1 if is_found else 2})
    [asked] = [entry["key"] for entry in ledger(tmp_path) if entry["what"] == "find"]
    assert asked.startswith(f"{handle.id}:step:1:")


@BOTH_STORES
async def test_a_step_that_took_too_long_is_in_doubt_and_is_done_again(
    stepping: Any, store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "hang-7").touch()
    with worker_process("stepping:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await stepping.limited.enqueue(7)

        async def is_called() -> bool:
            return calls(tmp_path)[7] == 1

        await until(is_called, within=40)
        (tmp_path / "hang-7").unlink()
        row = await one_row(stepping, handle.id)
    assert row.state is State.SUCCEEDED
    [doubt] = await (await the_store(stepping)).list_doubts(state=None)
    assert doubt.cause.startswith("TimeoutError")
    assert doubt.run == 1


@BOTH_STORES
async def test_no_step_starts_after_a_cancel(stepping: Any, store_url: str, tmp_path: Path) -> None:
    (tmp_path / "hang-2").touch()
    with worker_process("stepping:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await stepping.images.enqueue(5)

        async def is_in_the_second() -> bool:
            return calls(tmp_path)[2] == 1

        await until(is_in_the_second, within=40)
        await handle.cancel()
        row = await one_row(stepping, handle.id)
    assert row.state is State.CANCELLED
    assert calls(tmp_path) == Counter({1: 1, 2: 1})


@EVERYDAY_ON_SQLITE
async def test_a_result_that_a_thread_of_a_child_process_has_after_its_run_is_recorded(
    stepping: Any, store_url: str, tmp_path: Path
) -> None:
    (tmp_path / "hold").touch()
    with worker_process("stepping:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await stepping.left_in_child.enqueue(7)
        assert (await one_row(stepping, handle.id)).state is State.SUCCEEDED
        (tmp_path / "hold").unlink()
        store = await the_store(stepping)

        async def is_recorded() -> bool:
            return [step.state for step in await store.read_steps(handle.id)] == ["done"]

        await until(is_recorded, what="the step is done")


async def killed_in_its_step(function: Any, stepping: Any, url: str, directory: Path) -> tuple[Any, Any]:
    """Kill the pool process while a task does its only step; return the final row and the handle."""
    (directory / "hang-7").touch()
    with worker_process("stepping:app", directory, TIDEGATE_DATABASE_URL=url) as worker:
        handle = await function.enqueue(7)

        async def is_called() -> bool:
            return calls(directory)[7] == 1

        await until(is_called, within=40)
        (directory / "hang-7").unlink()
        for pid in worker.children():
            os.kill(pid, signal.SIGKILL)
        return await one_row(stepping, handle.id), handle
