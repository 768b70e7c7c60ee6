"""Reading: rows, history and lists, each from one snapshot."""

from __future__ import annotations

import asyncio

import pytest
from store_build import FAILED, START, Build, SettableClock, dead, retrying, succeeded

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Released
from tidegate.domain.states import State
from tidegate.errors import OptionError, TaskNotFoundError
from tidegate.store.protocol import Store
from tidegate.store.rows import HistoryRow, ProgressUpdate, TaskFilter
from tidegate.store.short_ids import full_ids

REACHED = [
    State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING, State.SUCCEEDED, State.CANCELLED, State.DEAD,
]  # fmt: skip


@pytest.mark.parametrize("state", REACHED)
async def test_a_task_can_be_read_in_every_state(build: Build, state: State) -> None:
    task_id = await build.in_state(state, labels={"a": "b"}, queue="q", tenant="t")
    row = await build.row(task_id)
    assert row.state is state
    assert (row.id, row.queue, row.tenant, row.labels, row.enqueued_at) == (
        task_id,
        "q",
        "t",
        {"a": "b"},
        START,
    )
    assert (row.finished_at is not None) == (state in (State.SUCCEEDED, State.CANCELLED, State.DEAD))
    assert row.run == (0 if state in (State.SCHEDULED, State.READY, State.CANCELLED) else 1)


async def test_unknown_ids_are_left_out(build: Build) -> None:
    task_id = await build.one()
    assert set(await build.store.read_tasks([task_id, build.id(), "nonsense", "", "\ud800"])) == {task_id}
    assert await build.store.read_tasks([]) == {}


async def test_many_ids_are_read_at_once(build: Build) -> None:
    ids = await build.enqueue(5_000)
    ids += await build.enqueue(5_000)
    assert list(await build.store.read_tasks(ids)) == ids


async def test_a_reader_never_misses_a_task_that_changes_its_state(
    store: Store, twin: Store, clock: SettableClock
) -> None:
    build = Build(store, clock)
    worker = await build.worker()
    ids = await build.enqueue(20)
    over = False

    async def move() -> None:
        nonlocal over
        for _ in range(60):
            tasks = await build.claim(worker, 20)
            await build.done(*(Released(task.fence, "again") for task in tasks))
        over = True

    moving = asyncio.create_task(move())
    looks = 0
    while not over:
        assert len(await twin.read_tasks(ids)) == 20
        assert len(await twin.list_tasks(TaskFilter(), limit=50)) == 20
        looks += 1
    await moving
    assert looks > 5


async def test_the_last_progress_stays_readable_after_the_end(build: Build) -> None:
    task = await build.run()
    task_id = task.fence.task_id
    assert await build.store.save_progress([ProgressUpdate(task.fence, 1, 3, "one")]) == []
    assert await build.store.save_progress([ProgressUpdate(task.fence, 2.5, None, "zw\x00ei \ud800")]) == []
    await build.done(succeeded(task.fence))
    row = await build.row(task_id)
    assert (row.progress_done, row.progress_total, row.progress_note) == (2.5, None, "zw\\x00ei \\ud800")


async def test_progress_that_is_not_a_number_does_no_harm(build: Build) -> None:
    one, other = (task.fence for task in await build.running(2))
    notes = [ProgressUpdate(one, float("nan"), float("inf"), "x" * 1_000_000), ProgressUpdate(other, 1, 2)]
    assert await build.store.save_progress(notes) == []
    assert (await build.row(other.task_id)).progress_done == 1
    assert len((await build.row(one.task_id)).progress_note) <= 4_000
    assert await build.store.save_progress([]) == []


async def test_a_result_is_none_until_the_task_is_final(build: Build) -> None:
    for state in (State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING):
        assert await build.store.get_result(await build.in_state(state)) is None


@pytest.mark.parametrize("task_id", ["01900000-0000-7000-8000-000000000000", "nonsense", "", "\ud800"])
async def test_an_unknown_id_raises_task_not_found(store: Store, task_id: str) -> None:
    for look in (store.get_result, store.get_payload):
        with pytest.raises(TaskNotFoundError):
            await look(task_id)
    assert await store.get_history(task_id) == []


async def test_the_history_has_every_run_and_action_in_order(build: Build, clock: SettableClock) -> None:
    worker = await build.worker()
    task = await build.run(queue="q", worker=worker)
    task_id = task.fence.task_id
    clock.advance(1)
    await build.done(retrying(task.fence, delay=600.0, why="backoff 600 s", charge=Charge.ATTEMPT))
    clock.advance(1)
    await build.store.run_now([task_id])
    clock.advance(1)
    [task] = await build.claim(worker, queues=("q",))
    clock.advance(1)
    await build.done(dead(task.fence, why="attempts are spent"))
    clock.advance(1)
    await build.store.redrive([task_id])
    clock.advance(1)
    [task] = await build.claim(worker, queues=("q",))
    assert (await build.store.get_history(task_id))[-1] == HistoryRow(
        "run", START + 6, run=3, worker_id=worker
    )
    clock.advance(1)
    await build.done(succeeded(task.fence))

    reported = await build.store.get_history(task_id)
    assert [(entry.kind, entry.at - START, entry.run) for entry in reported] == [
        ("enqueued", 0, None), ("run", 0, 1), ("run now", 2, None), ("run", 3, 2), ("redriven", 5, None), ("run", 6, 3),
    ]  # fmt: skip
    first = reported[1]
    assert (first.outcome, first.charge, first.verdict, first.reason) == (
        "retrying",
        "attempt",
        "transient",
        "network",
    )
    assert (first.ended_at, first.next_run_at, first.why) == (START + 1, START + 601, "backoff 600 s")
    assert (first.message, first.error_class, first.worker_id) == (FAILED.message, FAILED.error_class, worker)
    assert (reported[3].outcome, reported[3].next_run_at, reported[3].why) == (
        "dead",
        None,
        "attempts are spent",
    )
    assert (reported[5].outcome, reported[5].ended_at) == ("succeeded", START + 7)


# --- lists ---


async def test_tasks_are_listed_newest_first_and_paged_by_id(build: Build, clock: SettableClock) -> None:
    ids = [await build.in_state(REACHED[n % len(REACHED)]) for n in range(30)]
    pages: list[str] = []
    after = None
    while page := await build.store.list_tasks(TaskFilter(), after=after, limit=7):
        assert len(page) <= 7
        pages += [row.id for row in page]
        after = page[-1].id
    assert pages == ids[::-1]


async def test_new_tasks_do_not_shift_a_page(build: Build) -> None:
    ids = await build.enqueue(6)
    first = await build.store.list_tasks(TaskFilter(), limit=3)
    await build.enqueue(2)
    second = await build.store.list_tasks(TaskFilter(), after=first[-1].id, limit=3)
    assert [row.id for row in first + second] == ids[::-1]


@pytest.mark.parametrize("state", REACHED)
async def test_tasks_are_found_by_state(build: Build, state: State) -> None:
    made = {one: await build.in_state(one) for one in REACHED}
    found = await build.store.list_tasks(TaskFilter(states=(state,)))
    assert [row.id for row in found] == [made[state]]
    both = await build.store.list_tasks(TaskFilter(states=(state, State.DEAD)))
    assert {row.id for row in both} == {made[state], made[State.DEAD]}


FILTERS = [
    TaskFilter(queue="a\x01"),
    TaskFilter(function="mod:f"),
    TaskFilter(tenant="t"),
    TaskFilter(labels={"k": "v"}),
    TaskFilter(labels={"k": "v", 'odd "key"': "\x01"}),
    TaskFilter(before=START + 1),
    TaskFilter(queue="a\x01", function="mod:f", tenant="t", labels={"k": "v"}, before=START + 1),
]


@pytest.mark.parametrize("task_filter", FILTERS, ids=range(len(FILTERS)))
async def test_tasks_are_found_by_every_field(
    build: Build, clock: SettableClock, task_filter: TaskFilter
) -> None:
    match = {
        "queue": "a\x01",
        "function": "mod:f",
        "tenant": "t",
        "labels": {"k": "v", 'odd "key"': "\x01", "x": "y"},
    }
    wanted = [await build.one(**match), await build.in_state(State.SCHEDULED, **match)]
    clock.advance(5)
    await build.one(labels={"k": "w"})
    await build.one(labels={"v": "k"}, queue="a")
    assert [row.id for row in await build.store.list_tasks(task_filter)] == wanted[::-1]


async def test_tasks_are_found_by_their_last_failure(build: Build) -> None:
    retried = await build.in_state(State.RETRYING)
    dead_tasks = await build.in_state(State.DEAD)
    await build.in_state(State.SUCCEEDED)
    for task_filter in (TaskFilter(reason="network"), TaskFilter(error_class="builtins.OSError")):
        assert [row.id for row in await build.store.list_tasks(task_filter)] == [dead_tasks, retried]
    assert await build.store.list_tasks(TaskFilter(reason="timeout")) == []
    assert await build.store.list_tasks(TaskFilter(error_class="ValueError")) == []


async def test_a_finished_tasks_row_has_its_final_state_and_its_history_the_failures(
    store: Store, build: Build
) -> None:
    overloaded = Failure(Verdict.TRANSIENT, Reason.OVERLOADED, message="503 try later")
    tasks = await build.running(2)
    await build.done(*(retrying(task.fence, delay=0.0, failure=overloaded) for task in tasks))
    good, gone = [task.fence.task_id for task in tasks]
    await store.cancel([gone])
    assert (await store.read_tasks([good]))[good].reason == "overloaded"
    await store.promote()
    (again,) = await build.claim(await build.worker())
    await build.done(succeeded(again.fence))
    rows = await store.read_tasks([good, gone])
    assert (rows[good].reason, rows[good].message) == ("", "")
    assert (rows[gone].reason, rows[gone].message) == ("cancelled", "")
    assert "503 try later" in [entry.message for entry in await store.get_history(good)]
    assert await store.list_tasks(TaskFilter(reason="overloaded")) == []
    assert [row.id for row in await store.list_tasks(TaskFilter(reason="cancelled"))] == [gone]


async def test_text_that_is_not_unicode_matches_nothing(build: Build) -> None:
    await build.one()
    assert await build.store.list_tasks(TaskFilter(queue="\ud800", labels={"\ud800": "x"})) == []


async def test_a_short_id_is_expanded_if_it_matches_one_task_of_the_tenant(
    store: Store, build: Build
) -> None:
    first, second = "01935c1e-7d3a-7000-8000-000000000001", "01935c1e-7d3a-7001-8000-000000000002"
    await build.one(id=first, tenant="acme")
    await build.one(id=second, tenant="bolt")
    assert await full_ids(store, ["01935C1E-7d3a-7000", "01935c1e7d3a7001"]) == [first, second]
    assert await full_ids(store, ["01935c1e"], tenant="bolt") == [second]
    assert await full_ids(store, [second.upper(), "01935c1f", "x", "019"]) == [
        second,
        "01935c1f",
        "x",
        "019",
    ]
    with pytest.raises(OptionError, match=f"the short id 01935c1e matches several tasks: {first}, {second}"):
        await full_ids(store, ["01935c1e"])
