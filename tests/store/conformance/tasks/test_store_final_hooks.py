"""Final hooks: one task is enqueued for each final state, in its transaction, whichever process writes the state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from store_back_ends import Clients, opened
from store_build import START, Build, SettableClock, dead, retrying, succeeded, terms

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.outcome import Cancelled, FinishStatus, Released
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.store.rows import TaskFilter, TaskRow

HOOK = FinalHook("app:report", "reports", int(Priority.INTERACTIVE), "mail")


async def hooks(build: Build, function: str = "app:report") -> list[tuple[TaskRow, dict[str, Any]]]:
    """Return the enqueued hook tasks, the first first, with the final states they got."""
    found = []
    for row in reversed(await build.store.list_tasks(TaskFilter(function=function), limit=1_000)):
        args, tag = await build.store.get_payload(row.id)
        payload = msgspec.json.decode(args)
        assert tag == "json/1"
        assert payload["k"] == {}
        (final,) = payload["a"]
        found.append((row, final))
    return found


async def only(build: Build) -> dict[str, Any]:
    ((_, final),) = await hooks(build)
    return final


async def test_a_success_enqueues_the_hook_as_it_was_stored(build: Build, clock: SettableClock) -> None:
    task = await build.run(queue="main", tenant="acme", on_final=HOOK)
    assert await hooks(build) == []
    clock.advance(3)
    await build.done(succeeded(task.fence, b'"secret result"'))
    ((row, final),) = await hooks(build)
    assert (row.function, row.queue, row.priority, row.upstream, row.tenant, row.state) == (
        "app:report",
        "reports",
        Priority.INTERACTIVE,
        "mail",
        "acme",
        State.READY,
    )
    assert row.enqueued_at == START + 3
    assert final == {
        "task_id": task.fence.task_id,
        "function": "app:work",
        "queue": "main",
        "tenant": "acme",
        "state": "succeeded",
        "run": 1,
        "reason": "",
        "error_class": "",
        "message": "",
    }


async def test_a_death_says_what_failed_without_secrets(build: Build) -> None:
    task = await build.run(on_final=HOOK)
    failure = Failure(
        Verdict.PERMANENT,
        Reason.QUOTA,
        "key sk-ant-api03-" + "a1B2" * 10 + " " + "x" * 2_000,
        error_class="app.No",
    )
    await build.done(dead(task.fence, failure=failure))
    final = await only(build)
    assert (final["state"], final["reason"], final["error_class"]) == ("dead", "quota", "app.No")
    assert "a1B2" not in final["message"]
    assert len(final["message"]) == 1_000


async def test_only_a_final_state_enqueues_the_hook(build: Build, clock: SettableClock) -> None:
    tasks = await build.running(2, queue="main", on_final=HOOK)
    await build.done(retrying(tasks[0].fence, delay=5.0), Released(tasks[1].fence, "shutdown"))
    assert await hooks(build) == []
    clock.advance(6)
    await build.store.promote()
    again = await build.claim(await build.worker())
    await build.done(*[succeeded(task.fence) for task in again])
    assert sorted(final["run"] for _, final in await hooks(build)) == [2, 2]


async def test_a_batch_enqueues_the_hooks_of_those_that_have_one(build: Build) -> None:
    worker = await build.worker()
    plain = await build.running(3, queue="plain", worker=worker)
    hooked = await build.running(2, queue="hooked", worker=worker, on_final=HOOK)
    outcomes = [succeeded(task.fence) for task in (*plain, *hooked)]
    assert await build.store.finish(outcomes) == [FinishStatus.DONE] * 5
    assert {final["task_id"] for _, final in await hooks(build)} == {task.fence.task_id for task in hooked}
    await build.sound()


async def test_a_resent_outcome_enqueues_nothing_more(build: Build) -> None:
    good, bad = await build.running(2, on_final=HOOK)
    outcomes = [succeeded(good.fence), dead(bad.fence)]
    assert await build.store.finish(outcomes) == [FinishStatus.DONE] * 2
    assert await build.store.finish(outcomes) == [FinishStatus.ALREADY] * 2
    assert len(await hooks(build)) == 2


async def test_a_fenced_outcome_enqueues_nothing(build: Build, clock: SettableClock) -> None:
    task = await build.run(on_final=HOOK)
    await build.done(Released(task.fence, "shutdown"))
    await build.claim(await build.worker())
    assert await build.store.finish([succeeded(task.fence)]) == [FinishStatus.FENCED]
    assert await hooks(build) == []


@pytest.mark.parametrize("state", [State.READY, State.SCHEDULED, State.RETRYING])
async def test_a_cancel_of_a_task_that_does_not_run_enqueues_the_hook(build: Build, state: State) -> None:
    task_id = await build.in_state(state, on_final=HOOK)
    await build.store.cancel([task_id], why="not needed")
    final = await only(build)
    assert (final["task_id"], final["state"], final["reason"]) == (task_id, "cancelled", "cancelled")
    assert final["message"] == "not needed"
    await build.store.cancel([task_id])
    assert len(await hooks(build)) == 1


async def test_a_cancel_of_a_running_task_enqueues_the_hook_when_it_stops(build: Build) -> None:
    task = await build.run(on_final=HOOK)
    await build.store.cancel([task.fence.task_id])
    assert await hooks(build) == []
    await build.done(Cancelled(task.fence))
    assert (await only(build))["state"] == "cancelled"


async def test_a_redriven_task_that_ends_again_enqueues_the_hook_again(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run(queue="main", on_final=HOOK)
    await build.done(dead(task.fence))
    clock.advance(1)
    await build.store.redrive([task.fence.task_id])
    (again,) = await build.claim(await build.worker(), queues=("main",))
    await build.done(succeeded(again.fence))
    assert [(final["state"], final["run"]) for _, final in await hooks(build)] == [
        ("dead", 1),
        ("succeeded", 2),
    ]


async def test_a_purge_enqueues_nothing(build: Build) -> None:
    task_id = await build.in_state(State.DEAD, on_final=HOOK)
    await build.store.purge([task_id])
    assert len(await hooks(build)) == 1, "the death alone"


async def test_a_hook_may_have_a_hook_of_its_own(build: Build) -> None:
    chain = FinalHook("app:report", "reports", 1, then=FinalHook("app:last", "reports", 1))
    task = await build.run(on_final=chain)
    await build.done(succeeded(task.fence))
    (first,) = await build.claim(await build.worker(), queues=("reports",), functions=terms("app:report"))
    await build.done(dead(first.fence))
    ((_, final),) = await hooks(build, "app:last")
    assert (final["function"], final["state"], final["task_id"]) == (
        "app:report",
        "dead",
        first.fence.task_id,
    )


@pytest.mark.parametrize("how", ["key", "unique", "several", "scheduled", "batch"])
async def test_every_way_to_enqueue_keeps_the_hook(build: Build, clock: SettableClock, how: str) -> None:
    options: dict[str, Any] = {"queue": "main", "on_final": HOOK}
    if how == "key":
        await build.one(key="k", **options)
    elif how == "unique":
        await build.one(unique="u", **options)
    elif how == "several":
        await build.enqueue(60, **options)
    elif how == "scheduled":
        await build.one(delay_seconds=5.0, **options)
        clock.advance(6)
        await build.store.promote()
    else:
        await build.store.enqueue_part("b", [build.new(**options) for _ in range(3)])
        await build.store.commit_batch("b")
        await build.store.release_batches()
    tasks = await build.claim(await build.worker())
    await build.done(*[succeeded(task.fence) for task in tasks])
    assert len(tasks) == len(await hooks(build)) >= 1


async def test_a_cancelled_task_of_a_batch_enqueues_the_hook(build: Build) -> None:
    task = build.new(on_final=HOOK)
    await build.store.enqueue_part("b", [task])
    await build.store.commit_batch("b")
    await build.store.cancel([task.id])
    assert (await only(build))["task_id"] == task.id


async def test_another_client_enqueues_the_hook_too(build: Build, clients: Clients) -> None:
    task_id = await build.one(on_final=HOOK)
    async with opened(clients) as other:
        await other.cancel([task_id])
    assert (await only(build))["state"] == "cancelled"


@pytest.mark.parametrize("end", [succeeded, dead])
async def test_the_state_and_its_hook_are_written_together_or_not_at_all(
    build: Build, monkeypatch: pytest.MonkeyPatch, end: Any
) -> None:
    task = await build.run(on_final=HOOK)

    async def killed(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        for module in ("sqlite.finish", "postgres.final_hooks"):
            patched.setattr(f"tidegate.store.{module}.hook_tasks", killed)
        with pytest.raises(ZeroDivisionError):
            await build.store.finish([end(task.fence)])
    assert await build.state(task.fence.task_id) is State.RUNNING
    await build.done(end(task.fence))
    assert len(await hooks(build)) == 1
