"""Which task runs first, with tasks due much later, and with many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support import all_final, make_app, until
from tidegate import Fixed, Pool, State, Tidegate
from tidegate.internals import core_of

pytestmark = pytest.mark.anyio


async def test_people_go_first_and_the_others_in_the_order_they_came(tmp_path: Path) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])
    order: list[str] = []
    running = asyncio.Event()
    go = asyncio.Event()

    @app.task(name="t")
    async def function(name: str) -> None:
        order.append(name)
        running.set()
        if name == "low1":
            await go.wait()

    async with app.worker():
        ids = [(await function.using(priority="bulk").enqueue("low1")).id]
        await running.wait()
        ids += [(await function.using(priority="bulk").enqueue(f"low{number}")).id for number in range(2, 6)]
        ids.append((await function.using(priority="interactive").enqueue("high")).id)
        go.set()
        await all_final(app, ids)
    assert order == ["low1", "high", "low2", "low3", "low4", "low5"]
    await app.aclose()


async def test_urgent_work_without_end_does_not_starve_the_rest(tmp_path: Path) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])
    order: list[str] = []

    @app.task(name="t")
    async def function(name: str) -> None:
        order.append(name)
        if name == "high" and len(order) < 200:
            await function.using(priority="interactive").enqueue("high")

    low = [
        (await function.using(priority=priority).enqueue(priority)).id for priority in ("bulk", "normal") * 3
    ]
    await function.using(priority="interactive").enqueue("high")
    await function.using(priority="interactive").enqueue("high")
    async with app.worker():
        await all_final(app, low)
    assert order.index("bulk") <= 13
    assert order.index("normal") <= 13
    assert len(order) < 80
    await app.aclose()


async def test_a_task_given_another_priority_while_it_waits_goes_by_it(tmp_path: Path) -> None:
    from tidegate.domain.spec import Priority

    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])
    order: list[int] = []

    @app.task(name="t")
    async def function(number: int) -> None:
        order.append(number)

    ids = [(await function.enqueue(number)).id for number in range(4)]
    await core_of(app).store.reprioritise([ids[3]], Priority.INTERACTIVE)
    async with app.worker():
        await all_final(app, ids)
    assert order == [3, 0, 1, 2]
    await app.aclose()


async def test_a_failed_task_yields_and_its_last_attempt_is_expedited(tmp_path: Path) -> None:
    app = make_app(tmp_path, pools=[Pool(concurrency=1, poll_interval=0.05)])
    order: list[str] = []

    @app.task(name="t", max_attempts=3, backoff=Fixed(0.05))
    async def function(name: str) -> None:
        order.append(name)
        await asyncio.sleep(0.01)
        if name == "bad" and order.count("bad") < 3:
            raise OSError("not yet")

    ids = [(await function.enqueue("bad")).id]
    ids += [(await function.enqueue("good")).id for _ in range(20)]
    async with app.worker():
        await all_final(app, ids)
    first, second, third = (place for place, name in enumerate(order) if name == "bad")
    assert first == 0
    assert second > 15, "the first retry goes behind what was fresh"
    assert third == len(order) - 1
    await app.aclose()


@pytest.mark.parametrize(
    ("strict", "expected"), [(True, ["a", "a", "b", "b"]), (False, ["b", "b", "a", "a"])]
)
async def test_a_strict_pool_serves_its_queues_as_listed(
    tmp_path: Path, strict: bool, expected: list[str]
) -> None:
    app = make_app(
        tmp_path, pools=[Pool(queues=("a", "b"), concurrency=1, poll_interval=0.05, strict=strict)]
    )
    order: list[str] = []

    @app.task(name="t")
    async def function(queue: str) -> None:
        order.append(queue)

    ids = [(await function.using(queue=queue).enqueue(queue)).id for queue in ("b", "b", "a", "a")]
    other = await function.using(queue="c").enqueue("c")
    async with app.worker():
        await all_final(app, ids)
    assert order == expected
    assert (await other.status()).state is State.READY
    await app.aclose()


async def test_tasks_of_the_far_future_cost_the_present_ones_nothing(app: Tidegate) -> None:
    @app.task(name="t")
    async def function() -> None: ...

    await app.enqueue_many(function.using(delay=86_400).prepare() for _ in range(5_000))
    due = await app.enqueue_many(function.prepare() for _ in range(100))
    async with app.worker():
        rows = await all_final(app, due)
    assert {row.state for row in rows.values()} == {State.SUCCEEDED}
    (stats,) = [queue for queue in await core_of(app).store.get_queue_stats() if queue.queue == "default"]
    assert (stats.scheduled, stats.ready) == (5_000, 0)


@pytest.mark.parametrize("count", [0, 1, 12_000])
async def test_many_tasks_are_stored_in_order_all_or_none(app: Tidegate, count: int) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    ids = await app.enqueue_many(function.prepare(number) for number in range(count))
    assert len(ids) == count == len(set(ids))
    assert ids == sorted(ids)
    stats = {queue.queue: queue for queue in await core_of(app).store.get_queue_stats()}
    assert (stats["default"].ready if count else 0) == count


async def test_a_bad_item_among_many_stores_none(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    def items() -> object:
        for number in range(7_000):
            yield function.prepare(number if number != 6_500 else "six")  # type: ignore[arg-type]

    with pytest.raises(Exception, match="do not fit"):
        await app.enqueue_many(items())  # type: ignore[arg-type]
    assert [
        queue for queue in await core_of(app).store.get_queue_stats() if queue.ready or queue.scheduled
    ] == []


async def test_a_key_given_twice_in_one_call_names_one_task(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    tasks = [function.using(key="k").prepare(1), function.prepare(2), function.using(key="k").prepare(1)]
    ids = await app.enqueue_many(tasks)
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.slow
async def test_seventy_thousand_at_once_while_a_worker_runs(app: Tidegate) -> None:
    @app.task(name="t")
    async def function(number: int) -> None: ...

    async with app.worker():
        ids = await app.enqueue_many(function.prepare(number) for number in range(70_000))
        assert len(set(ids)) == 70_000

        async def done() -> bool:
            return all(
                queue.ready == queue.running == 0 for queue in await core_of(app).store.get_queue_stats()
            )

        await until(done, within=120)
