"""How the slots of a pool process grow while its tasks wait for answers, and shrink again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidegate import Pool
from tidegate.errors import OptionError
from tidegate.testing.virtual_time import VirtualLoop, run_virtually
from tidegate.worker.engine.slots import SlotRoom, Slots


class Process:
    """Runs as many tasks of a function `llm` as there are slots and demand, in virtual time."""

    def __init__(self, demand: int, *, is_paced: bool = True) -> None:
        self.demand = demand
        self.busy = 0
        self.share_awaiting = 1.0
        self.has_memory = True
        self.blocked_seconds = 0.0
        self.growing: asyncio.Task[None] | None = None
        self.slots = Slots(
            "auto",
            growing=["llm"],
            paced=["llm"] if is_paced else [],
            awaiting=lambda: int(self.share_awaiting * self.busy),
            has_memory=lambda: self.has_memory,
        )

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.growing = self.growing or asyncio.create_task(self.slots.run())
        ends_at = loop.time() + seconds
        while loop.time() < ends_at:
            while self.busy < self.demand and self.slots.room(self.busy).growing > 0:
                self.slots.on_started("llm")
                self.busy += 1
            self.slots.room(self.busy)
            while self.busy > self.demand:
                self.slots.on_finished("llm")
                self.busy -= 1
            await asyncio.sleep(0.1)
            loop.jump(self.blocked_seconds)


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(work(), VirtualLoop())


def test_slots_grow_until_they_are_enough() -> None:
    async def work() -> None:
        process = Process(demand=50)
        await process.run(10)
        assert process.busy == 50
        assert 50 <= process.slots.limit < 100

    run(work)


def test_slots_do_not_grow_beyond_200() -> None:
    async def work() -> None:
        process = Process(demand=1_000)
        await process.run(30)
        assert (process.busy, process.slots.limit, process.slots.total) == (200, 200, 208)

    run(work)


def test_slots_of_an_upstream_without_a_rate_limit_grow_only_as_tasks_end() -> None:
    async def work() -> None:
        process = Process(demand=100, is_paced=False)
        await process.run(10)
        assert process.slots.limit == 8
        for _ in range(4):
            process.slots.on_finished("llm")
            process.slots.on_started("llm")
        await process.run(1)
        assert process.slots.limit == 12

    run(work)


def test_slots_do_not_grow_while_tasks_compute_or_wait_for_permits() -> None:
    async def work() -> None:
        process = Process(demand=50)
        process.share_awaiting = 0.5
        await process.run(10)
        assert process.slots.limit == 8

    run(work)


def test_slots_do_not_grow_without_memory() -> None:
    async def work() -> None:
        process = Process(demand=50)
        process.has_memory = False
        await process.run(10)
        assert process.slots.limit == 8

    run(work)


def test_slots_do_not_grow_while_the_event_loop_is_late() -> None:
    async def work() -> None:
        process = Process(demand=50)
        process.blocked_seconds = 0.12
        await process.run(10)
        assert process.slots.limit == 8

    run(work)


def test_slots_shrink_while_the_event_loop_is_overloaded_and_then_stay() -> None:
    async def work() -> None:
        process = Process(demand=100)
        await process.run(10)
        grown = process.slots.limit
        process.blocked_seconds = 0.6
        await process.run(10)
        process.blocked_seconds = 0.0
        await process.run(3)
        shrunk = process.slots.limit
        assert 8 <= shrunk < grown
        await process.run(40)
        assert process.slots.limit == shrunk
        await process.run(60)
        assert process.slots.limit >= 100

    run(work)


def test_unused_slots_are_given_up_after_a_while() -> None:
    async def work() -> None:
        process = Process(demand=100)
        await process.run(10)
        process.demand = 20
        await process.run(20)
        assert process.slots.limit >= 100
        await process.run(60)
        assert process.slots.limit == 25
        process.demand = 0
        await process.run(60)
        assert process.slots.limit == 8

    run(work)


def test_other_functions_keep_their_slots_beside_those_that_grow() -> None:
    async def work() -> None:
        process = Process(demand=100)
        await process.run(10)
        assert process.slots.room(process.busy).others == 8
        assert process.slots.room(process.busy + 3).others == 5

    run(work)


def test_a_number_counts_for_all_functions_together() -> None:
    slots = Slots(3, growing=["llm"])
    slots.on_started("llm")
    assert slots.room(1) == SlotRoom(growing=0, others=2)
    assert (slots.total, slots.growing) == (3, frozenset())


def test_a_number_that_a_person_sets_ends_the_growth_and_auto_brings_it_back() -> None:
    slots = Slots("auto", growing=["llm"])
    assert slots.room(0) == SlotRoom(8, 8)
    slots.apply(concurrency=2, is_quiet=False)
    assert slots.room(0) == SlotRoom(0, 2)
    slots.apply(concurrency="auto", is_quiet=True)
    assert slots.room(0) == SlotRoom(0, 0)
    slots.apply(concurrency="auto", is_quiet=False)
    assert slots.room(0) == SlotRoom(8, 8)


def test_the_concurrency_of_a_pool_is_a_number_or_auto() -> None:
    assert (Pool().concurrency, Pool().slots, Pool().most_slots) == ("auto", 8, 200)
    assert (Pool(concurrency=3).slots, Pool(concurrency=3).most_slots) == (3, 3)
    with pytest.raises(OptionError, match='use a whole number, or "auto"'):
        Pool(concurrency="many")  # type: ignore[arg-type]
