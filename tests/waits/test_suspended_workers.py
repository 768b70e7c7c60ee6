"""Suspension in real workers: slots are free meanwhile, and nothing is lost or done twice at a kill."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support import EVERYDAY_ON_SQLITE, all_final, ledger, load_app, until, worker_process
from tidegate import State
from tidegate.context import waits
from tidegate.internals import core_of
from tidegate.store.protocol import Store

pytestmark = [pytest.mark.anyio, EVERYDAY_ON_SQLITE]

FORMS = [
    "in_loop",
    "in_child",
    *(pytest.param(form, marks=pytest.mark.slow) for form in ("in_thread", "in_child_loop")),
]
"""The event loop and the plain child process differ most; the two others share code with each of them."""


@pytest.fixture
def suspending(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The application of these tests, on both stores."""
    monkeypatch.setattr(waits, "SUSPEND_SECONDS", waits.SUSPEND_SECONDS)  # the application changes it
    return load_app("suspending", tmp_path, monkeypatch, url=store_url)


def calls(directory: Path) -> Counter[str]:
    """Return how often each step was done."""
    return Counter(entry["item"] for entry in ledger(directory) if entry["what"] == "call")


def starts(directory: Path) -> list[int]:
    """Return the runs of the function, in order."""
    return [entry["run"] for entry in ledger(directory) if entry["what"] == "start"]


async def the_store(suspending: Any) -> Store:
    return await core_of(suspending.app).opened_store()


async def state(suspending: Any, task_id: str) -> State:
    return (await (await the_store(suspending)).read_tasks([task_id]))[task_id].state


async def run_ends(suspending: Any, task_id: str) -> list[str]:
    """Return how the runs of a task ended, in order."""
    entries = await (await the_store(suspending)).get_history(task_id)
    return [entry.outcome for entry in entries if entry.kind == "run"]


async def suspended(suspending: Any, task_id: str) -> None:
    """Wait until a task is suspended."""

    async def is_suspended() -> bool:
        return await state(suspending, task_id) is State.SUSPENDED

    await until(is_suspended, within=60, what="it is suspended")


async def the_end(suspending: Any, task_id: str) -> Any:
    return (await all_final(suspending.app, [task_id], within=60))[task_id]


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_that_sleeps_goes_on_after_its_finished_steps(
    form: str, suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await getattr(suspending, form).enqueue(1.0)
        row = await the_end(suspending, handle.id)
    assert row.state is State.SUCCEEDED
    assert await handle.result(5) == ["BEFORE", "AFTER"]
    assert await run_ends(suspending, handle.id) == ["suspended", "succeeded"]
    assert calls(tmp_path) == Counter(before=1, after=1)
    first, second = (entry["at"] for entry in ledger(tmp_path) if entry["what"] == "call")
    assert second - first >= 1.0
    assert row.counters.attempts == 0


async def test_more_tasks_sleep_at_once_than_the_worker_has_slots(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handles = [await suspending.in_loop.enqueue(1_000.0) for _ in range(10)]
        for handle in handles:
            await suspended(suspending, handle.id)  # the worker has two slots
    assert calls(tmp_path) == Counter(before=10)


@pytest.mark.parametrize("form", ["in_loop", "in_child"])
async def test_a_kill_while_a_task_sleeps_loses_nothing(
    form: str, suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await getattr(suspending, form).enqueue(3.0)
        await suspended(suspending, handle.id)
        worker.close()
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        row = await the_end(suspending, handle.id)
    assert (row.state, row.run) == (State.SUCCEEDED, 2)
    assert calls(tmp_path) == Counter(before=1, after=1)


async def test_a_step_in_flight_is_finished_before_the_task_is_suspended(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await suspending.beside_a_step.enqueue(4.0, 0.7)
        await the_end(suspending, handle.id)
    assert await handle.result(5) == "slow"
    assert await run_ends(suspending, handle.id) == ["suspended", "succeeded"]
    assert calls(tmp_path) == Counter(slow=1)


async def test_a_task_whose_step_outlasts_the_sleep_is_not_suspended(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await suspending.beside_a_step.enqueue(0.5, 1.5)
        await the_end(suspending, handle.id)
    assert await run_ends(suspending, handle.id) == ["succeeded"]
    assert calls(tmp_path) == Counter(slow=1)


@pytest.mark.slow
async def test_a_run_that_is_killed_before_it_is_suspended_wakes_at_the_moment_it_had_recorded(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await suspending.beside_a_step.enqueue(8.0, 60.0)

        async def wakes_at() -> float | None:
            steps = await (await the_store(suspending)).read_steps(handle.id)
            done = [step for step in steps if step.name == "sleep" and step.data is not None]
            return None if not done or calls(tmp_path)["slow"] == 0 else json.loads(done[0].data)

        recorded = await until(wakes_at, within=60)  # the step in flight holds the suspension up
        (tmp_path / "fast").touch()
        for pid in worker.children():
            os.kill(pid, signal.SIGKILL)
        await the_end(suspending, handle.id)
    assert await run_ends(suspending, handle.id) == ["retrying", "suspended", "succeeded"]
    assert await wakes_at() == recorded
    entries = await (await the_store(suspending)).get_history(handle.id)
    assert entries[-1].at >= recorded > entries[-2].ended_at


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_goes_on_with_the_event_that_it_waited_for(
    form: str, suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await getattr(suspending, f"event_{form}").enqueue("paid")
        await suspended(suspending, handle.id)
        assert await suspending.app.send_event("paid", {"cents": 5}) == 1
        await the_end(suspending, handle.id)
    assert await handle.result(5) == [{"cents": 5}, "AFTER"]
    assert await run_ends(suspending, handle.id) == ["suspended", "succeeded"]
    assert calls(tmp_path) == Counter(after=1)


async def test_an_event_that_comes_while_a_step_holds_the_suspension_up_is_received_in_the_same_run(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        handle = await suspending.event_beside_a_step.enqueue("paid", 2.5)

        async def is_in_the_step() -> bool:
            return calls(tmp_path)["slow"] == 1

        await until(is_in_the_step, within=60)
        await suspending.app.send_event("paid", 1)
        await the_end(suspending, handle.id)
    assert await handle.result(5) == [1, "slow"]
    assert await run_ends(suspending, handle.id) == ["succeeded"]


async def test_a_kill_while_a_task_waits_for_an_event_loses_neither(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await suspending.event_in_loop.enqueue("paid")
        await suspended(suspending, handle.id)
        worker.close()
    assert await suspending.app.send_event("paid", 1) == 1
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        await the_end(suspending, handle.id)
    assert await handle.result(5) == [1, "AFTER"]
    assert starts(tmp_path) == [1, 2]


@pytest.mark.parametrize("form", FORMS)
async def test_a_task_waits_for_more_tasks_than_there_are_slots_and_returns_their_results(
    form: str, suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url):
        parents = [await getattr(suspending, f"gather_{form}").enqueue(4) for _ in range(2)]
        for handle in parents:  # the worker has two slots, which these two would hold
            row = await the_end(suspending, handle.id)
            assert row.state is State.SUCCEEDED
            assert await handle.result(5) == [0, 1, 4, 9]
    assert calls(tmp_path) == Counter({f"child {item}": 2 for item in range(4)})


async def test_a_kill_while_a_task_waits_for_tasks_loses_neither(
    suspending: Any, store_url: str, tmp_path: Path
) -> None:
    with worker_process("suspending:app", tmp_path, TIDEGATE_DATABASE_URL=store_url) as worker:
        handle = await suspending.gather_in_loop.enqueue(3)
        await until(lambda: has_begun(suspending, handle.id), within=60)
        for pid in worker.children():
            os.kill(pid, signal.SIGKILL)
        await the_end(suspending, handle.id)
    assert await handle.result(5) == [0, 1, 4]


async def has_begun(suspending: Any, task_id: str) -> bool:
    return (await (await the_store(suspending)).read_tasks([task_id]))[task_id].run > 0
