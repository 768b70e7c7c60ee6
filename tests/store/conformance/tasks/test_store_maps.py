"""Maps: many tasks that were enqueued as one, counted by the states of their tasks."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from store_build import Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.final_hook import FinalHook
from tidegate.domain.states import State
from tidegate.errors import MapNotFoundError, NotAcceptedError, OptionError, WrongStateError
from tidegate.maps import runner
from tidegate.maps.progress import read_progress
from tidegate.maps.runner import MapRunner
from tidegate.operations import maps
from tidegate.store.map_rows import MapRow, NewMap
from tidegate.store.protocol import Store
from tidegate.store.rows import CancelStatus, TaskFilter

AFTER = FinalHook("app:report", "reports", 1)
DAY = 86_400.0


class Maps:
    """Makes maps, ends their items, and advances them as maintenance does."""

    def __init__(self, build: Build, clock: SettableClock) -> None:
        self.build = build
        self.store = build.store
        self.clock = clock
        self.runner = MapRunner(build.store)

    def new(self, **changes: Any) -> NewMap:
        """Return a map to store."""
        return NewMap(**{"id": self.build.id(), "name": "n", "function": "app:work", "items": 0} | changes)

    async def make(self, count: int = 3, **changes: Any) -> tuple[MapRow, list[str]]:
        """Store a map whose items are ready; return it and their ids."""
        new = self.new(items=count, **changes)
        tasks = [self.build.new(tenant=new.tenant) for _ in range(count)]
        await self.store.enqueue_map_part(new.id, new.id, tasks)
        row = await self.store.commit_map(new, new.id)
        while await self.store.release_batches():
            pass
        return row, [task.id for task in tasks]

    async def end(self, *task_ids: str, died: bool = False) -> None:
        """Run these items to their end."""
        claimed = await self.build.claim(await self.build.worker(), 1_000)
        for task in claimed:
            if task.fence.task_id in task_ids:
                await self.build.done(dead(task.fence) if died else succeeded(task.fence))
            else:
                await self.build.done(retrying(task.fence, delay=0.0))
        await self.store.promote()

    async def rounds(self) -> None:
        """Run maintenance until it has nothing to do."""
        while await self.runner.run_once():
            pass

    async def row(self, row: MapRow) -> MapRow:
        """Return the map as it is now."""
        return await maps.get_map(self.store, row.id)

    async def callbacks(self) -> list[str]:
        """Return the ids of the callbacks' tasks."""
        found = await self.store.list_tasks(TaskFilter(queue="reports"))
        return [task.id for task in found]


@pytest.fixture
def made(build: Build, clock: SettableClock) -> Maps:
    return Maps(build, clock)


async def test_a_map_and_its_items_are_visible_together_at_the_commit(made: Maps) -> None:
    new = made.new(items=2)
    tasks = [made.build.new() for _ in range(2)]
    await made.store.enqueue_map_part(new.id, "batch", tasks)
    assert await made.store.get_map(new.id) is None
    assert await made.store.read_tasks([task.id for task in tasks]) == {}

    await made.store.commit_map(new, "batch")

    assert (await made.store.get_map(new.id)) is not None
    assert await made.build.states([task.id for task in tasks]) == {task.id: State.READY for task in tasks}
    items = await made.store.list_map_items(new.id)
    assert [(item.position, item.task_id) for item in items] == [(0, tasks[0].id), (1, tasks[1].id)]
    await made.build.sound()


async def test_the_positions_of_items_continue_over_parts_and_resends(made: Maps) -> None:
    new = made.new(items=4)
    first, second = ([made.build.new() for _ in range(2)] for _ in range(2))
    for part in (first, first, second, second):
        await made.store.enqueue_map_part(new.id, "batch", part)
    rows = [await made.store.commit_map(new, "batch") for _ in range(2)]

    assert rows[0] == rows[1]
    items = await made.store.list_map_items(new.id)
    assert [item.task_id for item in items] == [task.id for task in first + second]
    assert [item.position for item in items] == [0, 1, 2, 3]


async def test_a_map_without_its_batch_is_refused_and_not_stored(made: Maps) -> None:
    new = made.new(items=2)
    with pytest.raises(WrongStateError):
        await made.store.commit_map(new, "never filled")
    assert await made.store.get_map(new.id) is None


async def test_a_second_map_with_the_same_key_returns_the_first_one_and_changes_nothing(made: Maps) -> None:
    row, _ = await made.make(key="nightly", fingerprint=b"one")
    other = made.new(items=1, key="nightly", fingerprint=b"two")
    task = made.build.new()
    await made.store.enqueue_map_part(other.id, other.id, [task])

    assert await made.store.commit_map(other, other.id) == row
    await made.store.drop_batch(other.id)

    assert await made.store.get_map(other.id) is None
    assert await made.store.read_tasks([task.id]) == {}
    assert await made.store.find_map("", "nightly") == row


async def test_two_tenants_may_use_the_same_key(made: Maps) -> None:
    one, _ = await made.make(key="nightly", tenant="a")
    two, _ = await made.make(key="nightly", tenant="b")
    assert one.id != two.id
    assert [row.id for row in await made.store.list_maps(tenant="a")] == [one.id]
    with pytest.raises(MapNotFoundError):
        await maps.get_map(made.store, two.id, tenant="a")


async def test_two_racing_maps_with_one_key_are_one_map(made: Maps, twin: Store) -> None:
    async def make(store: Store) -> MapRow:
        new = made.new(items=1, key="k")
        await store.enqueue_map_part(new.id, new.id, [made.build.new()])
        return await store.commit_map(new, new.id)

    rows = await asyncio.gather(*(make(store) for store in (made.store, twin) * 5))

    assert len({row.id for row in rows}) == 1
    assert len(await made.store.list_maps()) == 1


async def test_counts_follow_the_states_of_the_items_through_retries_and_redrives(made: Maps) -> None:
    row, ids = await made.make(4)
    await made.end(ids[0])
    await made.end(ids[1], died=True)
    await made.store.cancel([ids[2]])
    [running] = await made.build.claim(await made.build.worker(), 1)
    counts = await made.store.count_map_items(row.id)
    assert counts[:5] == (1, 1, 1, 1, 1)

    await made.build.done(retrying(running.fence, delay=600.0))
    await made.store.redrive([ids[1]])
    counts = await made.store.count_map_items(row.id)
    assert counts[:5] == (1, 0, 1, 0, 2)
    assert await made.store.count_dead_items(row.id) == 0


async def test_counts_stay_exact_when_tasks_are_deleted(made: Maps) -> None:
    row, ids = await made.make(4)
    await made.end(ids[0], ids[1])
    await made.end(ids[2], died=True)
    made.clock.advance(30 * DAY)
    assert await expire(made.store, finished_seconds=DAY, dead_seconds=math.inf) >= 2
    assert await made.store.purge([ids[2]]) != {}
    assert [item.position for item in await made.store.list_map_items(row.id)] == [3]
    counts = await made.store.count_map_items(row.id)
    assert counts[:5] == (2, 1, 0, 0, 1)
    assert await made.store.count_dead_items(row.id) == 1

    await made.end(ids[3])
    await made.rounds()

    ended = await made.row(row)
    assert (ended.succeeded, ended.dead, ended.cancelled) == (3, 1, 0)


async def test_a_map_ends_when_the_last_item_is_final_and_one_callback_is_enqueued(made: Maps) -> None:
    row, ids = await made.make(3, on_complete=AFTER)
    await made.end(ids[0])
    await made.end(ids[1], died=True)
    await made.rounds()
    assert (await made.row(row)).ended_at is None
    assert await made.callbacks() == []

    await made.end(ids[2])
    await made.rounds()
    await made.rounds()

    ended = await made.row(row)
    assert ended.ended_at == made.clock.now
    assert await made.callbacks() == [ended.callback_id]
    payload, _ = await made.store.get_payload(ended.callback_id or "")
    assert json.loads(payload)["a"] == [
        {"map_id": row.id, "name": "n", "function": "app:work", "tenant": None, "items": 3}
        | {"succeeded": 2, "dead": 1, "cancelled": 0}
    ]


async def test_processes_that_end_a_map_at_the_same_time_enqueue_one_callback(
    made: Maps, twin: Store
) -> None:
    row, ids = await made.make(2, on_complete=AFTER)
    await made.end(*ids)

    await asyncio.gather(*(MapRunner(store).run_once() for store in (made.store, twin) * 4))

    assert len(await made.callbacks()) == 1
    assert (await made.row(row)).ended_at is not None


async def test_an_item_that_is_redriven_before_the_end_holds_the_callback_back(
    made: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CURSOR_STEP", 1)
    row, ids = await made.make(3, on_complete=AFTER)
    await made.end(ids[0], died=True)
    await made.end(ids[1])
    await made.rounds()
    assert (await made.row(row)).cursor == 2
    await made.store.redrive([ids[0]])
    await made.end(ids[2])

    await made.rounds()
    assert await made.callbacks() == []

    await made.end(ids[0])
    await made.rounds()
    assert len(await made.callbacks()) == 1


async def test_retrying_the_dead_items_after_the_end_enqueues_no_second_callback(made: Maps) -> None:
    row, ids = await made.make(3, on_complete=AFTER)
    await made.end(ids[0], ids[1], died=True)
    await made.end(ids[2])
    await made.rounds()

    assert await maps.retry_failed(made.store, row.id) == (2, 0)
    assert (await read_progress(made.store, row)).waiting == 2
    await made.end(ids[0], ids[1])
    await made.rounds()

    assert (await read_progress(made.store, row)).succeeded == 3
    assert len(await made.callbacks()) == 1


async def test_a_map_without_items_ends_and_enqueues_its_callback(made: Maps) -> None:
    row = await made.store.commit_map(made.new(on_complete=AFTER), None)
    await made.rounds()
    assert (await made.row(row)).ended_at is not None
    assert len(await made.callbacks()) == 1


async def test_more_dead_items_than_allowed_cancel_the_rest(made: Maps) -> None:
    row, ids = await made.make(6, max_failures=1, on_complete=AFTER)
    await made.end(ids[0], died=True)
    await made.rounds()
    assert (await made.row(row)).cancelled_at is None
    [running] = await made.build.claim(await made.build.worker(), 1)
    await made.end(*[task for task in ids[1:3] if task != running.fence.task_id][:1], died=True)

    await made.rounds()

    states = await made.build.states(ids)
    assert sorted(states.values()).count(State.CANCELLED) == 3
    assert (await made.build.row(running.fence.task_id)).cancel_requested
    assert (await made.row(row)).cancel_why == "more than 1 item of the map died"
    assert await made.callbacks() == []  # one item still runs
    await made.build.done(succeeded(running.fence))
    await made.rounds()
    assert len(await made.callbacks()) == 1
    ended = await made.row(row)
    assert (ended.succeeded, ended.dead, ended.cancelled) == (1, 2, 3)


async def test_a_cancel_that_stops_half_way_is_finished_by_maintenance(
    made: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CANCEL_PAGE", 2)
    row, ids = await made.make(7)
    await made.store.cancel_map(row.id, "enough")  # and the process dies before it cancels an item

    await made.rounds()

    assert set((await made.build.states(ids)).values()) == {State.CANCELLED}
    assert (await made.row(row)).ended_at is not None
    history = await made.store.get_history(ids[6])
    assert [entry.why for entry in history if entry.kind == "cancel requested"] == ["enough"]


async def test_a_map_is_cancelled_before_its_batch_is_released(made: Maps) -> None:
    new = made.new(items=2)
    tasks = [made.build.new() for _ in range(2)]
    await made.store.enqueue_map_part(new.id, new.id, tasks)
    row = await made.store.commit_map(new, new.id)

    assert await maps.cancel_map(made.store, row.id, "no")
    assert not await maps.cancel_map(made.store, row.id, "again")

    assert await made.store.release_batches() == 0
    assert (await made.store.count_map_items(row.id)).cancelled == 2
    await made.build.sound()


async def test_an_ended_map_is_not_cancelled_and_a_cancelled_one_not_retried(made: Maps) -> None:
    row, ids = await made.make(1)
    await made.end(*ids)
    await made.rounds()
    assert not await maps.cancel_map(made.store, row.id)

    other, _ = await made.make(1)
    await made.store.cancel_map(other.id, "")
    with pytest.raises(NotAcceptedError, match="is being cancelled"):
        await maps.retry_failed(made.store, other.id)


async def test_the_results_of_items_are_read_with_their_failures(made: Maps) -> None:
    row, ids = await made.make(4)
    await made.end(ids[0])
    await made.end(ids[1], died=True)
    await made.store.cancel([ids[2]])

    found = {result.task_id: result for result in await made.store.list_map_results(ids)}

    assert found.keys() == set(ids[:3])
    assert found[ids[0]].data == b'"done"'
    assert (found[ids[1]].state, found[ids[1]].message) == (State.DEAD, "connection reset")
    assert (found[ids[2]].state, found[ids[2]].data) == (State.CANCELLED, b"")
    assert [item.task_id for item in await made.store.list_dead_items(row.id)] == [ids[1]]


async def test_the_time_left_follows_from_the_items_that_ended_lately(made: Maps) -> None:
    row, ids = await made.make(10)
    assert (await read_progress(made.store, row)).seconds_left is None
    made.clock.advance(100)
    await made.end(*ids[:5])
    assert (await read_progress(made.store, row)).seconds_left == pytest.approx(100, rel=0.01)
    made.clock.advance(1_000)
    assert (await read_progress(made.store, row)).seconds_left is None


async def test_an_old_map_is_deleted_after_its_last_task(made: Maps) -> None:
    row, ids = await made.make(2)
    await made.end(*ids)
    await made.rounds()
    made.clock.advance(8 * DAY)
    assert await made.store.delete_old_maps(7 * DAY) == 0
    await expire(made.store, finished_seconds=7 * DAY, dead_seconds=math.inf)

    assert await made.store.delete_old_maps(30 * DAY) == 0
    assert await made.store.delete_old_maps(7 * DAY) == 1

    assert await made.store.get_map(row.id) is None


async def test_a_map_is_found_by_the_first_digits_of_its_id(made: Maps) -> None:
    row, _ = await made.make()
    assert (await maps.get_map(made.store, row.id[:13])).id == row.id
    with pytest.raises(MapNotFoundError):
        await maps.get_map(made.store, "0191ffff")
    await made.make()
    with pytest.raises(OptionError, match="several maps"):
        await maps.get_map(made.store, row.id[:4])


async def test_forgetting_a_tenant_removes_its_maps(made: Maps) -> None:
    row, ids = await made.make(tenant="a")
    kept, _ = await made.make(tenant="b")
    await made.store.cancel(ids)
    await made.store.forget_tasks(ids)
    await made.store.forget_tenant("a")
    assert [found.id for found in await made.store.list_maps()] == [kept.id]
    assert row.id != kept.id


async def test_one_map_that_cannot_be_advanced_does_not_stop_the_others(
    made: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, _ = await made.make(1)
    good, ids = await made.make(1)
    await made.store.cancel(ids)
    find = made.store.find_unfinished_item

    async def broken(map_id: str, position: int = 0) -> int | None:
        if map_id == bad.id:
            message = "broken"
            raise ValueError(message)
        return await find(map_id, position)

    monkeypatch.setattr(made.store, "find_unfinished_item", broken)
    await made.rounds()
    assert (await made.row(good)).ended_at is not None


async def test_cancelling_one_item_by_its_id_counts_as_cancelled(made: Maps) -> None:
    row, ids = await made.make(2)
    assert await made.store.cancel([ids[0]]) == {ids[0]: CancelStatus.CANCELLED}
    assert (await made.store.count_map_items(row.id))[:3] == (0, 0, 1)
