"""Retention by queue and by kind of data: what is removed, what stays, and what readers then get."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, ids_of, succeeded

from tidegate.codec.tags import CODEC
from tidegate.domain.outcome import Released
from tidegate.domain.retention import Data, FinalTable, QueueRetention, Retention
from tidegate.domain.states import State
from tidegate.domain.step import OnDoubt
from tidegate.errors import DataRemovedError
from tidegate.store.step_rows import EndStatus, StepBegin, StepEnd
from tidegate.store.streams import NewChunk
from tidegate.worker.maintenance.retention import RetentionSweep

pytestmark = pytest.mark.anyio
HOUR, DAY = 3_600.0, 86_400.0


async def sweep(build: Build, **rules: Any) -> int:
    """Remove everything that these rules do not keep; return how much was removed."""
    sweeping = RetentionSweep(build.store, Retention(**rules), clock=time.monotonic, batch=3)
    removed = 0
    while (batch := await sweeping.run_once()) is not None:
        removed += batch
    return removed


async def with_everything(build: Build, **changes: Any) -> str:
    """Return a task that succeeded at its second run and left something in each table."""
    task = await build.run(**{"queue": "q"} | changes)
    await build.store.append_chunks([NewChunk(task.fence, 1, b'"chunk"')])
    await build.store.begin_steps([StepBegin(task.fence, key, 1, "call", OnDoubt.ASK) for key in "ab"])
    await build.store.end_steps([StepEnd(task.fence, "a", 1, EndStatus.DONE, b"1", CODEC)])
    await build.done(Released(task.fence, "again"))
    (task,) = await build.claim(await build.worker(), queues=(changes.get("queue", "q"),))
    await build.done(succeeded(task.fence))
    await build.store.find_doubts()
    return task.fence.task_id


async def test_steps_and_their_doubts_may_be_removed_before_their_finished_task(
    build: Build, clock: SettableClock
) -> None:
    done, running = await with_everything(build), (await build.run()).fence
    letter = (await build.run()).fence
    for fence in (running, letter):
        await build.store.begin_steps([StepBegin(fence, "a", 1, "call")])
    await build.done(dead(letter))
    assert await build.store.find_doubts() == 1
    clock.advance(2 * DAY)

    assert await sweep(build, steps="1d") == 3
    assert await build.store.read_steps(done) == []
    assert await build.store.list_doubts(task_id=done) == []
    assert await build.state(done) is State.SUCCEEDED
    for fence in (running, letter):
        assert len(await build.store.read_steps(fence.task_id)) == 1
    assert len(await build.store.list_doubts()) == 1


async def test_a_queue_may_keep_its_tasks_longer_or_shorter_than_others(
    build: Build, clock: SettableClock
) -> None:
    finished = {queue: await build.in_state(State.SUCCEEDED, queue=queue) for queue in ("a", "b", "c")}
    letters = {queue: await build.in_state(State.DEAD, queue=queue) for queue in ("a", "b", "c")}
    queues = {
        "a": QueueRetention(finished="1h", dead="30d"),
        "b": QueueRetention(finished=math.inf, dead="1h"),
    }
    clock.advance(8 * DAY)

    assert await sweep(build, queues=queues) == 3
    left = {finished["b"], letters["a"], letters["c"]}
    assert set(await build.states([*finished.values(), *letters.values()])) == left


async def test_succeeded_and_cancelled_tasks_may_have_different_times(
    build: Build, clock: SettableClock
) -> None:
    done, cancelled = await build.in_state(State.SUCCEEDED), await build.in_state(State.CANCELLED)
    clock.advance(2 * DAY)

    assert await sweep(build, cancelled="1d") == 1
    assert set(await build.states([done, cancelled])) == {done}


async def test_a_redriven_task_has_its_own_time_after_it_succeeds(build: Build, clock: SettableClock) -> None:
    plain = await build.in_state(State.SUCCEEDED)
    redriven = await build.in_state(State.DEAD, queue="again")
    await build.store.redrive([redriven])
    await build.done(*(succeeded(task.fence) for task in await build.claim(await build.worker())))
    clock.advance(8 * DAY)

    assert await sweep(build, redriven="30d") == 1
    assert set(await build.states([plain, redriven])) == {redriven}
    clock.advance(30 * DAY)
    assert await sweep(build, redriven="30d") == 1


async def test_a_task_that_outlives_a_walk_is_removed_when_its_own_time_is_over(
    build: Build, clock: SettableClock
) -> None:
    queues = {"b": QueueRetention(finished="10d")}
    sweeping = RetentionSweep(build.store, Retention(queues=queues), clock=lambda: 0.0, batch=2)
    kept = [await build.in_state(State.SUCCEEDED, queue="b") for _ in range(5)]
    clock.advance(8 * DAY)
    later = await build.in_state(State.SUCCEEDED, queue="b")
    assert await sweeping.run_once() is None, "the walk of seven days has passed them all"
    clock.advance(3 * DAY)
    removed = [await sweeping.run_once() for _ in range(4)]

    assert removed == [2, 2, 1, None]
    assert set(await build.states([*kept, later])) == {later}


async def test_arguments_results_chunks_and_history_may_be_removed_before_their_task(
    build: Build, clock: SettableClock
) -> None:
    task_id = await with_everything(build)
    other = await with_everything(build, queue="kept")
    clock.advance(2 * DAY)
    kept = {"kept": QueueRetention(payloads="5d", results="5d", chunks="5d", history="5d")}
    rules = {"payloads": "1d", "results": "1d", "chunks": "1d", "history": "1d", "queues": kept}

    assert await sweep(build, **rules) > 0
    assert await sweep(build, **rules) == 0, "it was all removed the first time"
    assert await build.state(task_id) is State.SUCCEEDED
    with pytest.raises(DataRemovedError) as result:
        await build.store.get_result(task_id)
    with pytest.raises(DataRemovedError) as payload:
        await build.store.get_payload(task_id)
    assert (result.value.data, payload.value.data) == ("results", "payloads")
    assert (await build.store.read_stream_heads([task_id]))[task_id].last_sequence == 0
    assert [entry.outcome for entry in await build.store.get_history(task_id)] == ["", "succeeded"]
    found = await build.store.get_result(other)
    assert found is not None
    assert (found.data, found.codec_tag) == (b'"done"', CODEC)
    assert await build.store.get_payload(other) == (b'{"n":1}', CODEC)
    assert len(await build.store.get_history(other)) == 3
    await build.sound()


async def test_a_result_of_null_is_still_null_when_results_are_removed(
    build: Build, clock: SettableClock
) -> None:
    task = await build.run()
    await build.done(succeeded(task.fence, b"null"))
    clock.advance(2 * DAY)

    await sweep(build, results="1d")

    found = await build.store.get_result(task.fence.task_id)
    assert found is not None
    assert found.data == b"null"


async def test_dead_letters_keep_what_a_redrive_needs(build: Build, clock: SettableClock) -> None:
    letter = await build.in_state(State.DEAD)
    clock.advance(2 * DAY)

    assert await sweep(build, payloads="1h", history="1h") == 0
    await build.store.redrive([letter])
    assert ids_of(await build.claim(await build.worker())) == [letter]


async def test_a_letter_that_was_redriven_meanwhile_is_not_deleted(
    build: Build, clock: SettableClock
) -> None:
    letter = await build.in_state(State.DEAD, queue="q")
    clock.advance(91 * DAY)
    (listed,) = await build.store.list_final_tasks(FinalTable.DEAD, older_than_seconds=90 * DAY, limit=9)
    await build.store.redrive([letter])
    assert await build.store.delete_final_tasks(FinalTable.DEAD, [letter], until_at=listed.at) == []
    (task,) = await build.claim(await build.worker(), queues=("q",))
    await build.done(dead(task.fence))

    assert await build.store.delete_final_tasks(FinalTable.DEAD, [letter], until_at=listed.at) == []
    assert await build.state(letter) is State.DEAD


async def test_tasks_that_are_not_final_are_not_deleted_by_any_call(build: Build) -> None:
    states = [State.SCHEDULED, State.READY, State.RUNNING, State.RETRYING]
    ids = [await build.in_state(state) for state in states]

    for table in FinalTable:
        assert await build.store.delete_final_tasks(table, ids, until_at=math.inf) == []
    assert await build.store.delete_task_parts(ids, list(Data)) == 0
    assert list((await build.states(ids)).values()) == states


async def test_final_tasks_are_listed_in_the_order_in_which_they_ended(
    build: Build, clock: SettableClock
) -> None:
    ids = []
    for queue in ("a", "b"):
        ids.append(await build.in_state(State.SUCCEEDED, queue=queue, tenant="acme"))
        clock.advance(10)
    first, second = await build.store.list_final_tasks(FinalTable.ARCHIVE, older_than_seconds=0.0, limit=9)

    assert [first.task_id, second.task_id] == ids
    assert (first.queue, first.tenant, first.state) == ("a", "acme", State.SUCCEEDED)
    assert (first.age_seconds, second.age_seconds) == pytest.approx((20, 10))
    after = await build.store.list_final_tasks(
        FinalTable.ARCHIVE, older_than_seconds=0.0, after=first.position, limit=9
    )
    assert after == [second]
    assert await build.store.list_final_tasks(FinalTable.ARCHIVE, older_than_seconds=15.0, limit=9) == [first]


async def test_an_export_has_all_rows_of_a_task_with_ids_as_text(build: Build) -> None:
    task_id = await with_everything(build, tenant="acme")
    rows = await build.store.export_tasks([task_id], [Data.TASKS])
    by_table = {row.table: row.columns for row in rows}

    tables = {"task", "payload", "archive", "result", "attempt", "stream", "chunk", "step", "doubt"}
    assert tables <= set(by_table)
    assert {row.task_id for row in rows} == {task_id}
    assert by_table["task"]["id"] == by_table["payload"]["task_id"] == task_id
    assert by_table["task"]["tenant"] == "acme"
    assert by_table["payload"]["args"] == b'{"n":1}'
    parts = await build.store.export_tasks([task_id], [Data.CHUNKS])
    assert {row.table for row in parts} == {"stream", "chunk"}


async def test_an_export_leaves_out_what_was_removed_before(build: Build, clock: SettableClock) -> None:
    task_id = await with_everything(build)
    clock.advance(2 * DAY)
    await sweep(build, results="1d", payloads="1d")

    rows = await build.store.export_tasks([task_id], [Data.TASKS])

    assert {"result", "payload"} & {row.table for row in rows} == set()


async def test_sizes_name_every_table_the_largest_first(build: Build) -> None:
    await build.enqueue(50)
    sizes = await build.store.get_sizes()
    by_name = {table.table: table for table in sizes.tables}

    assert {"task", "payload", "ready", "archive"} <= set(by_name)
    assert sizes.bytes >= by_name["task"].bytes > 0
    assert [table.bytes for table in sizes.tables] == sorted(
        (table.bytes for table in sizes.tables), reverse=True
    )
