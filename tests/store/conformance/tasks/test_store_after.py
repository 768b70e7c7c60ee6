"""Tasks that wait until other tasks have succeeded: held at the enqueue, admitted by maintenance."""

from __future__ import annotations

import asyncio

import pytest
from store_build import Build, dead, succeeded

from tidegate.domain.states import State
from tidegate.errors import OptionError, TaskNotFoundError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, CancelStatus
from tidegate.worker.maintenance import parents as job
from tidegate.worker.maintenance.parents import ParentsJob


async def end(build: Build, task_id: str, *, died: bool = False, queue: str = "main") -> None:
    """Run the only ready task of a queue to its end."""
    [task] = await build.claim(await build.worker(), queues=(queue,))
    assert task.fence.task_id == task_id
    await build.done(dead(task.fence) if died else succeeded(task.fence))


async def test_a_task_is_held_until_every_parent_has_succeeded(build: Build) -> None:
    first, second = await build.one(queue="a"), await build.one(queue="b")
    child = await build.one(after=(first, second))
    assert await build.state(child) is State.HELD
    await ParentsJob(build.store).run_once()
    assert await build.claim(await build.worker(), queues=("main",)) == []

    await end(build, first, queue="a")
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.HELD
    assert await build.store.list_parents(child) == [(second, State.READY)]
    await end(build, second, queue="b")
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.READY
    await build.sound()


async def test_a_parent_that_succeeded_before_the_enqueue_delays_nothing(build: Build) -> None:
    parent = await build.in_state(State.SUCCEEDED)
    child = await build.one(after=(parent,))
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.READY
    assert await build.store.list_parents(child) == []


async def test_a_dead_parent_is_waited_for_until_its_redrive_succeeds(build: Build) -> None:
    parent = await build.in_state(State.DEAD, queue="main")
    child = await build.one(after=(parent,))
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.HELD
    assert await build.store.list_parents(child) == [(parent, State.DEAD)]

    await build.store.redrive([parent])
    await end(build, parent)
    await ParentsJob(build.store).run_once()

    assert await build.state(child) is State.READY


@pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED])
async def test_a_failed_parent_cancels_or_releases_tasks_that_ask_for_it(build: Build, state: State) -> None:
    parent = await build.in_state(state)
    waits, stops, runs = [
        await build.one(after=(parent,), on_parent_failure=on_failure)
        for on_failure in ("wait", "cancel", "run")
    ]
    await ParentsJob(build.store).run_once()
    states = await build.states([waits, stops, runs])
    assert states == {waits: State.HELD, stops: State.CANCELLED, runs: State.READY}
    assert await build.store.list_parents(stops) == []
    entries = await build.store.get_history(stops)
    assert [entry.why for entry in entries if entry.kind == "cancel requested"] == [
        f"task {parent}, which it waited for, failed"
    ]


async def test_a_deleted_parent_counts_as_failed(build: Build) -> None:
    parent = await build.in_state(State.DEAD)
    waits = await build.one(after=(parent,))
    runs = await build.one(after=(parent,), on_parent_failure="run")
    assert await build.store.purge([parent]) == {parent: ActionStatus.DONE}
    await ParentsJob(build.store).run_once()
    assert await build.states([waits, runs]) == {waits: State.HELD, runs: State.READY}
    assert await build.store.list_parents(waits) == [(parent, None)]


async def test_an_unknown_parent_is_refused_and_nothing_is_stored(build: Build) -> None:
    new = [build.new(), build.new(after=(build.id(),))]
    with pytest.raises(TaskNotFoundError, match="after: there is no task"):
        await build.store.enqueue(new)
    assert await build.store.read_tasks([task.id for task in new]) == {}


async def test_a_tenant_cannot_wait_for_a_task_of_another(build: Build) -> None:
    theirs = await build.one(tenant="other")
    with pytest.raises(TaskNotFoundError):
        await build.one(tenant="acme", after=(theirs,))
    mine = await build.one(tenant="acme")
    assert await build.state(await build.one(tenant="acme", after=(mine,))) is State.HELD
    assert await build.state(await build.one(after=(theirs,))) is State.HELD


async def test_tasks_of_one_enqueue_wait_for_earlier_ones_only(build: Build) -> None:
    first = build.new()
    second = build.new(after=(first.id,))
    await build.store.enqueue([first, second])
    assert await build.states([first.id, second.id]) == {first.id: State.READY, second.id: State.HELD}
    later = build.new()
    for new in ([build.new(after=(later.id,)), later], [build.new(id=(own := build.id()), after=(own,))]):
        with pytest.raises(TaskNotFoundError):
            await build.store.enqueue(new)


async def test_a_resend_changes_nothing(build: Build) -> None:
    parent = await build.one()
    new = build.new(after=(parent,))
    for _ in range(2):
        [answer] = await build.store.enqueue([new])
        assert answer.created
    assert await build.state(new.id) is State.HELD
    await end(build, parent)
    await ParentsJob(build.store).run_once()
    await end(build, new.id)
    await build.store.enqueue([new])
    assert await build.state(new.id) is State.SUCCEEDED
    assert await build.store.list_parents(new.id) == []
    await build.sound()


async def test_two_processes_that_see_one_parent_each_admit_the_task(
    build: Build, store: Store, twin: Store
) -> None:
    for _ in range(5):
        one, two = [await build.in_state(State.SUCCEEDED) for _ in range(2)]
        child = await build.one(after=(one, two))
        await asyncio.gather(store.admit([one], []), twin.admit([two], []))
        assert await build.state(child) is State.READY


async def test_a_cancelled_child_is_not_admitted(build: Build) -> None:
    parent = await build.one()
    child = await build.one(after=(parent,))
    assert await build.store.cancel([child]) == {child: CancelStatus.CANCELLED}
    await end(build, parent)
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.CANCELLED
    await build.sound()


async def test_a_held_task_that_waits_for_nothing_is_admitted(build: Build) -> None:
    parent = await build.one()
    child = await build.one(after=(parent,))
    await build.store.remove_parents([child])
    await ParentsJob(build.store).run_once()
    assert await build.state(child) is State.READY


async def test_many_parents_are_looked_at_page_by_page(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PAGE_PARENTS", 2)
    monkeypatch.setattr(job, "PAGES", 2)
    parents = [await build.in_state(State.SUCCEEDED) for _ in range(9)]
    children = [await build.one(after=(parent,)) for parent in parents]
    maintenance = ParentsJob(build.store)
    while await maintenance.run_once():
        pass
    assert set((await build.states(children)).values()) == {State.READY}


async def test_a_part_of_a_large_enqueue_or_map_cannot_wait(build: Build) -> None:
    parent = await build.one()
    with pytest.raises(OptionError, match="after="):
        await build.store.enqueue_part("batch", [build.new(after=(parent,))])
