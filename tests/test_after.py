"""`using(after=…)`: a task runs once other tasks have succeeded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support import FAST
from tidegate import KeyConflictError, OptionError, Permanent, Pool, State, TaskNotFoundError, Tidegate
from tidegate.testing import Kit

pytestmark = pytest.mark.anyio


@pytest.fixture
async def queue(store_url: str) -> AsyncIterator[Tidegate]:
    """An application on either store."""
    app = Tidegate(store_url, timings=FAST, pools=[Pool(concurrency=20, poll_interval=0.02)])
    await app._core.store.migrate()
    yield app
    await app.aclose()


def declare(app: Tidegate, done: list[str], failing: set[str]) -> Any:
    """Declare a function that notes its argument, or fails."""

    @app.task(name="note")
    async def note(name: str) -> str:
        if name in failing:
            message = "not yet"
            raise Permanent(message)
        done.append(name)
        return name

    return note


async def test_tasks_run_in_the_order_of_their_dependencies(queue: Tidegate) -> None:
    done: list[str] = []
    note = declare(queue, done, set())
    first = await note.enqueue("first")
    left, right = [await note.using(after=first).enqueue(name) for name in ("left", "right")]
    last = await note.using(after=[left, right.id]).enqueue("last")
    assert (await last.status()).state is State.HELD
    async with queue.worker():
        assert await last.result(timeout=20) == "last"
    assert (done[0], done[3]) == ("first", "last")
    assert len(done) == 4


async def test_a_dead_parent_is_shown_and_after_its_redrive_the_task_runs(queue: Tidegate) -> None:
    done, failing = list[str](), {"first"}
    note = declare(queue, done, failing)
    first = await note.enqueue("first")
    second = await note.using(after=[first]).enqueue("second")
    explained = await queue.admin.tasks.explain(second.id)
    assert explained.reasons[0] == f"after: task {first.id} is ready"
    async with queue.worker():
        with pytest.raises(Exception, match="not yet"):
            await first.result(timeout=20)
        explained = await queue.admin.tasks.explain(second.id)
        assert explained.reasons[0].startswith(f"after: task {first.id} is dead; redrive it")
        failing.clear()
        await queue.admin.dead_letters.redrive([first.id])
        assert await second.result(timeout=20) == "second"


async def test_a_task_is_cancelled_or_runs_although_its_parent_failed(queue: Tidegate) -> None:
    done: list[str] = []
    note = declare(queue, done, {"first"})
    first = await note.enqueue("first")
    stops = await note.using(after=[first], on_failure="cancel").enqueue("stops")
    then = await note.using(after=[stops], on_failure="cancel").enqueue("then")
    runs = await note.using(after=[first], on_failure="run").enqueue("runs")
    async with queue.worker():
        assert await runs.result(timeout=20) == "runs"
        for handle in (stops, then):
            with pytest.raises(Exception, match="was cancelled"):
                await handle.result(timeout=20)
    assert done == ["runs"]


async def test_what_a_task_waits_for_is_part_of_its_key(app: Tidegate) -> None:
    note = declare(app, [], set())
    one, two = await note.enqueue("one"), await note.enqueue("two")
    first = await note.using(key="k", after=[one, two]).enqueue("x")
    again = await note.using(key="k", after=[two, one]).enqueue("x")
    assert (again.id, again.created) == (first.id, False)
    for other in ({"after": [one]}, {}, {"after": [one, two], "on_failure": "run"}):
        with pytest.raises(KeyConflictError):
            await note.using(key="k", **other).enqueue("x")
    unique = await note.using(unique="until_final", after=[one]).enqueue("y")
    assert (await note.using(unique="until_final").enqueue("y")).id == unique.id


@pytest.mark.parametrize(
    "options",
    [
        {"after": 7},
        {"after": "0191"},
        {"after": [None]},
        {"after": ["00000000-0000-0000-0000-000000000000"], "delay": 5},
        {"on_failure": "run"},
        {"after": ["00000000-0000-0000-0000-000000000000"], "on_failure": "explode"},
        {"after": ["00000000-0000-0000-0000-000000000000"] + [f"{n:032x}" for n in range(1_000)]},
    ],
)
async def test_a_wrong_dependency_is_refused(app: Tidegate, options: dict[str, Any]) -> None:
    note = declare(app, [], set())
    with pytest.raises(OptionError):
        note.using(**options)


async def test_an_unknown_task_and_a_map_cannot_be_waited_for(app: Tidegate) -> None:
    note = declare(app, [], set())
    with pytest.raises(TaskNotFoundError):
        await note.using(after="00000000-0000-0000-0000-000000000000").enqueue("x")
    first = await note.enqueue("first")
    with pytest.raises(OptionError):
        await note.using(after=first).map(["x"])


async def test_the_test_kit_runs_dependent_tasks_and_ends_maps(app: Tidegate) -> None:
    done: list[str] = []
    note = declare(app, done, set())

    @app.task(name="report")
    async def report(end: dict[str, Any]) -> None:
        done.append(f"{end['succeeded']} done")

    async with Kit(app) as kit:
        first = await note.enqueue("first")
        await note.using(after=first).enqueue("second")
        await note.map(["a", "b"], on_complete=report)
        drained = await kit.drain()
    assert drained.succeeded == 5
    assert done.index("second") > done.index("first")
    assert done[-1] == "2 done" or "2 done" in done
