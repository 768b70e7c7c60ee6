"""The transfer of tasks from a file to a server: all tasks arrive unchanged, and each runs once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import apsw
import psycopg
import pytest
from store_build import Build, dead, expire, ids_of, retrying, succeeded
from transfer_support import Move

from pgserver import Server
from tidegate.codec.tags import CODEC
from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import Suspended
from tidegate.domain.spec import NO_LIMIT, Priority
from tidegate.domain.states import State
from tidegate.domain.step import DoubtAnswer, OnDoubt
from tidegate.domain.usage import UsageTotals
from tidegate.errors import ConfigError, NotAcceptedError, SchemaError
from tidegate.limits.pauses import PauseKind
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.maps.runner import MapRunner
from tidegate.store.controls import ControlKind
from tidegate.store.map_rows import NewMap
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, ProgressUpdate, TaskFilter
from tidegate.store.step_rows import EndStatus, StepBegin, StepEnd
from tidegate.store.streams import NewChunk
from tidegate.store.transfer import steps, target
from tidegate.store.transfer.source import LATE_TABLES, SHARED_TABLES, TASK_TABLES
from tidegate.store.transfer.target import Target

STATES = (
    State.SCHEDULED, State.READY, State.RETRYING, State.SUCCEEDED, State.CANCELLED, State.DEAD,
)  # fmt: skip


def breaking(call: Callable[..., Awaitable[Any]], at: int, *, after: bool) -> Callable[..., Awaitable[Any]]:
    """Return a `call` that fails at its call of this number, from 0: before its work or after it."""
    calls = iter(range(1_000))

    async def broken(*args: Any, **named: Any) -> Any:
        number = next(calls)
        if number == at and not after:
            raise InterruptedError
        answer = await call(*args, **named)
        if number == at:
            raise InterruptedError
        return answer

    return broken


async def seed_tasks(build: Build, seed: int, count: int = 24) -> list[str]:
    """Store tasks in every state, with everything that a task can have."""
    chance = random.Random(seed)
    ids = []
    for number in range(count):
        given: dict[str, Any] = {
            "tenant": chance.choice(("", "Zoë")),
            "priority": chance.choice(list(Priority)),
            "labels": chance.choice(({}, {"city": "Łódź"})),
            "key": chance.choice((None, f"key-{number}")),
            "unique": chance.choice((None, f"unique-{number}")),
            "unique_seconds": chance.choice((None, 5_000.0)),
            "deadline_seconds": chance.choice((None, 90_000.0)),
            "timeout_seconds": chance.choice((None, 30.0)),
            "total_timeout_seconds": chance.choice((None, 60.0, NO_LIMIT)),
            "args": chance.randbytes(chance.randrange(40)),
        }
        build.clock.advance(chance.random())
        ids.append(await _with_a_life(build, STATES[number % len(STATES)], chance, given))
    return ids


async def _with_a_life(build: Build, state: State, chance: random.Random, given: dict[str, Any]) -> str:
    if chance.random() < 0.5 or state in (State.SCHEDULED, State.READY, State.CANCELLED):
        return await build.in_state(state, **given)
    task = await build.run(**given)
    await build.store.save_progress([ProgressUpdate(task.fence, 1.0, 3.0, "a third")])
    await build.store.append_chunks([NewChunk(task.fence, place, b"bit") for place in (1, 2)])
    begins = [StepBegin(task.fence, key, 1, f"step {key}", OnDoubt.ASK, "up") for key in "zax"]
    await build.store.begin_steps(begins)
    await build.store.end_steps([StepEnd(task.fence, "z", 1, EndStatus.DONE, b"\0result", CODEC)])
    spent = CallSummary(count=2, used=UsageTotals(2, 30, 20, 1, 9, 4))
    await build.done(replace(dead(task.fence), calls=spent))
    await build.store.find_doubts()
    await build.store.redrive([task.fence.task_id])
    worker = await build.worker()
    (again,) = await build.claim(worker, queues=(task.queue,))
    end = {State.SUCCEEDED: succeeded, State.DEAD: dead}.get(state)
    await build.done(retrying(again.fence, delay=600.0) if end is None else end(again.fence))
    return task.fence.task_id


async def known(store: Store, ids: list[str]) -> dict[str, Any]:
    """Return everything that a store returns about these tasks."""
    rows = await store.read_tasks(ids)
    heads, chunks = await store.read_stream_heads(ids), await store.read_chunks(dict.fromkeys(ids, 0))
    letters = {letter.task_id: letter for letter in await store.list_dead_letters(TaskFilter(), limit=500)}
    return {
        task_id: (
            row, heads[task_id], chunks.get(task_id), letters.get(task_id), await store.get_payload(task_id),
            await store.get_history(task_id), await store.get_result(task_id), await store.read_steps(task_id),
            [replace(entry, id=0) for entry in await store.list_doubts(state=None, task_id=task_id)],
        )
        for task_id, row in rows.items()
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
async def test_everything_about_a_task_is_at_the_target(moving: Move, seed: int) -> None:
    ids = await seed_tasks(moving.before, seed)
    expected = await known(moving.old, ids)
    tally = await moving.all()
    assert await known(moving.new, ids) == expected
    assert tally.moved == tally.tasks == Counter({state.value: 4 for state in STATES})
    assert tally.kept_back == {}
    await moving.after.sound()
    await moving.before.sound()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "step",
    ["seal", "mark_moved", "finished_keys", "import_batch", "copy_finished_keys", "copy_shared_tables"],
)
async def test_an_interrupted_transfer_is_finished_by_the_next(
    moving: Move, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "BATCH_TASKS", 5)
    ids = await seed_tasks(moving.before, 1)
    expected = await known(moving.old, ids)
    end = moving.source if hasattr(moving.source, step) else moving.target
    at = 2 if step in ("mark_moved", "import_batch") else 0
    with monkeypatch.context() as patched:
        patched.setattr(end, step, breaking(getattr(end, step), at, after=after))
        with pytest.raises(InterruptedError):
            await moving.all()
    await moving.all()
    assert await known(moving.new, ids) == expected
    again = await moving.all()
    assert again.moved.total() == 0
    assert sum(again.there(state) for state in again.tasks) == len(ids)
    await moving.after.sound()


async def test_a_moved_task_runs_at_the_target_once_and_never_again_at_the_source(moving: Move) -> None:
    ids = await moving.before.enqueue(3)
    worker = await moving.before.worker()
    await moving.all()
    claimed = await moving.after.claim(await moving.after.worker())
    assert sorted(ids_of(claimed)) == ids
    await moving.after.done(*[succeeded(task.fence) for task in claimed])
    await moving.all()
    assert await moving.after.claim(await moving.after.worker()) == []
    with pytest.raises(ConfigError, match="moved"):
        await moving.before.worker()
    with pytest.raises(ConfigError, match="moved"):
        await moving.old.claim(moving.before.request(worker))


async def test_a_task_deleted_by_retention_at_the_target_is_not_sent_again(moving: Move) -> None:
    task_id = await moving.before.one()
    await moving.all()
    await moving.new.cancel([task_id])
    moving.clock.advance(10.0)
    await expire(moving.new, finished_seconds=1.0, dead_seconds=1.0)
    assert (await moving.all()).moved.total() == 0
    assert await moving.new.read_tasks([task_id]) == {}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("state", STATES)
async def test_a_key_returns_the_moved_task_at_the_target(moving: Move, state: State, finished: bool) -> None:
    task_id = await moving.before.in_state(state, key="order-7", tenant="a")
    await moving.all(finished=finished)
    (answer,) = await moving.new.enqueue([moving.after.new(key="order-7", tenant="a")])
    assert (answer.task_id, answer.created) == (task_id, False)


async def test_a_unique_name_is_taken_at_the_target_until_the_moved_task_is_final(moving: Move) -> None:
    task_id = await moving.before.one(unique="sync")
    await moving.all()
    (answer,) = await moving.new.enqueue([moving.after.new(unique="sync")])
    assert (answer.task_id, answer.created) == (task_id, False)
    (task,) = await moving.after.claim(await moving.after.worker())
    await moving.after.done(succeeded(task.fence))
    (answer,) = await moving.new.enqueue([moving.after.new(unique="sync")])
    assert answer.created


@pytest.mark.parametrize("name", ["key", "unique"])
async def test_a_task_whose_name_is_taken_at_the_target_is_kept_back(moving: Move, name: str) -> None:
    holder = await moving.after.one(**{name: "order-7"})
    moving.clock.advance(1.0)
    first = await moving.before.one(**{"key": "order-8", "unique": "other", name: "order-7"})
    second = await moving.before.one()
    tally = await moving.all()
    assert {task_id: kept.state for task_id, kept in tally.kept_back.items()} == {first: "ready"}
    assert set(await moving.new.read_tasks([holder, first, second])) == {holder, second}
    (answer,) = await moving.new.enqueue(
        [moving.after.new(**{"unique" if name == "key" else "key": "other"})]
    )
    assert answer.created  # no name of a task that stayed at the source is taken
    await moving.new.cancel([holder])
    assert set((await moving.all()).kept_back) == ({first} if name == "key" else set())


async def test_a_dead_task_is_moved_without_a_key_that_another_task_has(moving: Move) -> None:
    holder = await moving.after.one(key="order-7")
    letter = await moving.before.in_state(State.DEAD, key="order-7")
    assert (await moving.all()).kept_back == {}
    assert await moving.after.state(letter) is State.DEAD
    (answer,) = await moving.new.enqueue([moving.after.new(key="order-7")])
    assert answer.task_id == holder


@pytest.mark.parametrize("given", [{"max_attempts": 2**40}, {"key": "k" * 2_000_000}])
async def test_a_task_that_postgresql_cannot_store_does_not_keep_others_back(
    moving: Move, given: dict[str, Any]
) -> None:
    before = await moving.before.enqueue(3)
    bad = await moving.before.one(**given)
    after = await moving.before.enqueue(3)
    tally = await moving.all()
    assert set(tally.kept_back) == {bad}
    assert "cannot store" in tally.kept_back[bad].why
    assert set(await moving.new.read_tasks([*before, bad, *after])) == {*before, *after}


async def test_a_key_that_postgresql_cannot_store_does_not_keep_others_back(moving: Move) -> None:
    kept = [await moving.before.in_state(State.CANCELLED, key=key) for key in ("a", "k" * 2_000_000, "z")]
    await moving.all(finished=False)
    answers = await moving.new.enqueue([moving.after.new(key=key) for key in ("a", "z")])
    assert [answer.task_id for answer in answers] == [kept[0], kept[2]]


async def test_a_task_that_a_client_stores_during_the_transfer_is_handled(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = moving.before.new()
    await moving.old.enqueue([new])
    await moving.new.enqueue([new])
    there = target._there
    looks: list[bool] = []

    async def looked_too_early(db: Any, tasks: Any) -> frozenset[bytes]:
        looks.append(True)
        return frozenset() if len(looks) == 1 else await there(db, tasks)

    monkeypatch.setattr(target, "_there", looked_too_early)
    tally = await moving.all()
    assert (tally.moved.total(), tally.there("ready")) == (0, 1)


async def test_finished_tasks_are_moved_only_on_request(moving: Move) -> None:
    done = await moving.before.in_state(State.SUCCEEDED)
    waiting = await moving.before.one()
    tally = await moving.all(finished=False)
    assert tally.moved == Counter({"ready": 1})
    assert set(await moving.new.read_tasks([done, waiting])) == {waiting}
    assert (await moving.all(finished=True)).moved == Counter({"succeeded": 1})
    assert set(await moving.new.read_tasks([done, waiting])) == {done, waiting}


@pytest.mark.parametrize("state", ["held", "suspended"])
async def test_waiting_tasks_without_a_due_moment_arrive_waiting(moving: Move, state: str) -> None:
    task_id = await moving.before.in_state(State.SCHEDULED)
    with apsw.Connection(str(moving.source.path)) as db:
        db.execute("UPDATE waiting SET state = ?, due_at = NULL", (state,))
    await moving.all()
    moving.clock.advance(1_000.0)
    await moving.new.promote()
    assert await moving.after.state(task_id) == state


async def test_a_batch_is_moved_once_it_is_committed(moving: Move) -> None:
    seen, unseen = moving.before.new(), moving.before.new()
    await moving.old.enqueue_part("one", [seen])
    await moving.old.commit_batch("one")
    await moving.old.enqueue_part("two", [unseen])
    await moving.all()
    assert set(await moving.new.read_tasks([seen.id, unseen.id])) == {seen.id}
    with pytest.raises(ConfigError, match="moved"):
        await moving.old.commit_batch("two")


async def test_limits_gates_and_declarations_move_where_the_target_has_none(moving: Move) -> None:
    await moving.old.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", Limits(max_in_flight=2))])
    await moving.old.park_gate("openai", seconds=None, why="by hand")
    await moving.old.save_manifest("app:app", {"functions": {}})
    await moving.all()
    assert await moving.new.list_gates() == await moving.old.list_gates()
    assert await moving.new.load_manifests() == await moving.old.load_manifests()
    await moving.new.open_gate("openai")
    opened = await moving.new.list_gates()
    await moving.all()
    assert await moving.new.list_gates() == opened


async def test_pauses_and_what_is_wanted_of_workers_move(moving: Move) -> None:
    await moving.old.pause(PauseKind.QUEUE, "batch", by="ada", why="bad prompt")
    await moving.old.set_control(ControlKind.CONCURRENCY, "gpu", 2, by="ada", why="")
    await moving.old.set_control(ControlKind.RELOAD, "*", None, by="ada", why="")
    await moving.all()
    assert await moving.new.list_pauses() == await moving.old.list_pauses()
    assert [(row.kind, row.value) for row in await moving.new.list_controls()] == [
        (ControlKind.CONCURRENCY, 2)
    ]


# --- refusals --------------------------------------------------------------------------------------------


async def test_a_live_worker_is_named_and_the_source_is_not_sealed(moving: Move) -> None:
    task_id = await moving.before.one()
    await moving.before.worker(name="shop-1", pid=4711)
    with pytest.raises(NotAcceptedError, match=r"shop-1 \(process 4711 on here\)"):
        await steps.transfer_tasks(moving.source, moving.target, finished=True, on_progress=lambda _: None)
    assert await moving.new.read_tasks([task_id]) == {}
    await moving.before.one()


async def test_a_running_task_prevents_the_transfer(moving: Move) -> None:
    await moving.before.run()
    with pytest.raises(NotAcceptedError, match="running"):
        await moving.all()


async def test_a_preview_changes_nothing(moving: Move) -> None:
    await seed_tasks(moving.before, 2)
    moving.clock.advance(31.0)
    tally = await steps.preview_transfer(moving.source, moving.target, finished=False)
    assert tally.tasks == Counter({"scheduled": 4, "ready": 4, "retrying": 4, "dead": 4})
    await moving.before.one()
    assert await moving.new.list_tasks(TaskFilter()) == []


async def test_a_target_without_tables_raises_an_error_that_names_it(moving: Move, postgres: Server) -> None:
    nowhere = Target(f"{postgres.url()}?schema=nowhere")
    with pytest.raises(SchemaError, match=r"the target: .*db upgrade"):
        await steps.transfer_tasks(moving.source, nowhere, finished=True, on_progress=lambda _: None)
    await nowhere.close()
    await moving.before.one()


async def test_a_file_with_a_newer_schema_is_not_moved_although_it_works(moving: Move) -> None:
    await moving.before.one()
    with apsw.Connection(str(moving.source.path)) as db:
        db.execute("INSERT INTO migration (number, name, applied_at) VALUES (999, '999_later', 0)")
    with pytest.raises(SchemaError, match=r"the source: .*newer"):
        await moving.all()
    await moving.before.one()


async def test_a_sealed_file_cannot_be_moved_to_another_database(moving: Move) -> None:
    await moving.all()
    with apsw.Connection(str(moving.source.path)) as db:
        db.execute("UPDATE moving SET target_id = 'another', location = 'db.example.com/shop'")
    with pytest.raises(NotAcceptedError, match=r"db\.example\.com/shop"):
        await moving.all()
    with pytest.raises(NotAcceptedError, match=r"db\.example\.com/shop"):
        await steps.undo_transfer(moving.source, moving.target)


async def test_a_decision_about_a_doubt_is_refused_after_its_step_has_moved(moving: Move) -> None:
    fence = (await moving.before.run()).fence
    await moving.old.begin_steps([StepBegin(fence, "k", 1, "call", OnDoubt.ASK)])
    await moving.before.done(dead(fence))
    assert await moving.old.find_doubts() == 1
    await moving.all()
    (here,), (there,) = [await store.list_doubts() for store in (moving.old, moving.new)]
    with pytest.raises(ConfigError, match="sealed"):
        await moving.old.resolve_doubts([here.id], DoubtAnswer.REPEAT, by="ada")
    assert (await moving.old.list_doubts()) == [here]
    answer = await moving.new.resolve_doubts([there.id], DoubtAnswer.REPEAT, by="ada")
    assert answer == {there.id: ActionStatus.DONE}


async def test_a_transfer_can_be_undone_only_while_no_task_is_at_the_target(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moving.before.one()
    assert not await steps.undo_transfer(moving.source, moving.target)
    with monkeypatch.context() as patched:
        patched.setattr(moving.target, "import_batch", breaking(moving.target.import_batch, 0, after=False))
        with pytest.raises(InterruptedError):
            await moving.all()
    assert await steps.undo_transfer(moving.source, moving.target)
    await moving.before.one()
    await moving.all()
    with pytest.raises(NotAcceptedError, match="would run at both"):
        await steps.undo_transfer(moving.source, moving.target)


async def test_a_map_travels_with_its_items_and_its_counts_stay_exact(moving: Move) -> None:
    new = NewMap(moving.before.id(), "n", "app:work", 3, key="k")
    tasks = [moving.before.new() for _ in range(3)]
    await moving.before.store.enqueue_map_part(new.id, new.id, tasks)
    await moving.before.store.commit_map(new, new.id)
    await moving.before.store.release_batches()
    [task] = await moving.before.claim(await moving.before.worker(), 1)
    await moving.before.done(succeeded(task.fence))
    row = await moving.before.store.get_map(new.id)

    await moving.all(finished=False)

    assert await moving.after.store.get_map(new.id) == row
    assert (await moving.after.store.count_map_items(new.id))[:5] == (1, 0, 0, 0, 2)
    await MapRunner(moving.after.store).run_once()
    assert await moving.after.store.get_map(new.id) == row


async def test_a_task_that_waits_for_others_wakes_only_when_they_have_ended_at_the_target(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = moving.before, moving.after
    parent = await before.run()
    done = await before.in_state(State.SUCCEEDED)
    open_one = await before.one()
    children = (done, open_one)
    await before.done(Suspended(parent.fence, None, "waits for tasks", -600.0, child_ids=children))
    with monkeypatch.context() as patched:
        patched.setattr(moving.source, "late_tables", breaking(moving.source.late_tables, 0, after=False))
        with pytest.raises(InterruptedError):
            await moving.all(finished=False)
    await moving.new.promote()
    assert await after.state(parent.fence.task_id) == "suspended", "not all have arrived"

    await moving.all(finished=False)
    assert set(await moving.new.read_tasks([*children])) == {*children}
    await moving.new.promote()
    assert await after.state(parent.fence.task_id) == "suspended"
    [run] = await after.claim(await after.worker(), 1)
    assert run.fence.task_id == open_one
    await after.done(succeeded(run.fence))
    await moving.new.promote()
    assert await after.state(parent.fence.task_id) == "ready"


# --- the schemas -----------------------------------------------------------------------------------------

STAYS = {
    "running", "worker", "permit", "rollup", "rollup_time", "rollup_tenant", "rollup_sum", "rollup_time_sum", "tally", "total", "total_time", "total_event",
    "death", "death_day", "daily_summary", "control", "control_report", "pause", "enqueue_batch", "enqueue_batch_task", "migration", "compatible", "audit", "key", "moving", "moved",
    "alert_pass", "alert_episode", "alert_notice", "alert_sink",
}  # fmt: skip
NUMBERED = {
    "step": {"number"},
    "doubt": {"id"},
    "event_wait": {"number"},
    "approval": {"number"},
    "provider_job": {"number"},
}
"""Columns whose values the target gives itself."""


async def test_every_table_and_column_is_copied_or_excluded_on_purpose(moving: Move, target_url: str) -> None:
    await moving.before.one()
    await moving.source.seal("here", "there")
    batch = await moving.source.next_batch(b"", finished=True, limit=100)
    assert batch is not None
    travels = {table.name: set(table.columns) for table in batch.tables.values()}
    shared = [
        *await moving.source.shared_tables(),
        await moving.source.letters(("", b""), 1),
        await moving.source.operations(),
        *await moving.source.late_tables(finished=True),
    ]
    travels |= {table.name: set(table.columns) for table in shared}
    assert set(travels) == {*TASK_TABLES, *SHARED_TABLES, *LATE_TABLES, "key", "operation", "operation_task"}
    with apsw.Connection(str(moving.source.path)) as db:
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        names = [name for (name,) in rows]
        here = {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in names}
    with psycopg.connect(target_url) as connection:
        columns = connection.execute(
            "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns"
            " WHERE table_schema = 'tidegate' GROUP BY table_name"
        )
        there = {name: set(found) for name, found in columns}
    assert set(here) - STAYS == set(there) - STAYS == set(travels) - STAYS
    for name, found in travels.items():
        assert here[name] == there[name] == found | NUMBERED.get(name, set()), name
