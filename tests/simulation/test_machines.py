"""Machines on one loop: frozen ones take no step until they go on, dead ones take none at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from simulation.event_log import EventLog
from simulation.machine import Condition, Machine, MachineLoop, current_machine
from tidegate.testing.virtual_time import run_virtually


def on_machines(work: Callable[[Callable[[str], Machine]], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a loop of machines; drop the machines at the end."""
    loop = MachineLoop()
    event_log = EventLog(loop.time, loop.wall)
    machines: list[Machine] = []

    def machine(name: str) -> Machine:
        machines.append(Machine(name, loop, event_log))
        return machines[-1]

    async def all_of_it() -> None:
        await work(machine)
        for each in machines:
            each.revive()

    run_virtually(all_of_it(), loop)


def test_what_a_machine_starts_stays_on_it() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        here = machine("a")
        seen: list[Machine | None] = []

        async def deeper() -> None:
            await asyncio.sleep(1)
            seen.append(current_machine())
            asyncio.get_running_loop().call_later(1, lambda: seen.append(current_machine()))

        async def begin() -> None:
            seen.append(current_machine())
            await asyncio.create_task(deeper())

        await here.spawn(begin(), "begin")
        await asyncio.sleep(5)
        assert seen == [here, here, here]
        assert current_machine() is None

    on_machines(work)


def test_a_thawed_machine_runs_what_fell_due_in_order() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        here = machine("a")
        woken: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append((name, loop.time()))

        for name, seconds in (("late", 3.0), ("early", 2.0), ("much later", 50.0)):
            here.spawn(sleeper(name, seconds), name)
        await asyncio.sleep(1)
        here.freeze()
        await asyncio.sleep(19)
        assert woken == []
        here.thaw()
        await asyncio.sleep(0.1)
        assert [name for name, _ in woken] == ["early", "late"]
        assert {moment for _, moment in woken} == {20.0}
        await asyncio.sleep(60)
        assert woken[-1] == ("much later", 50.0)

    on_machines(work)


def test_a_timer_that_is_cancelled_by_what_fell_due_before_it_stays_cancelled() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        here = machine("a")
        rung: list[str] = []

        async def set_timers() -> None:
            loop = asyncio.get_running_loop()
            later = loop.call_later(3, rung.append, "later")
            loop.call_later(2, later.cancel)
            loop.call_later(4, rung.append, "last")

        await here.spawn(set_timers(), "set timers")
        here.freeze()
        await asyncio.sleep(10)
        here.thaw()
        await asyncio.sleep(1)
        assert rung == ["last"]

    on_machines(work)


def test_a_dead_machine_runs_no_cleanup_code() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        here, words = machine("a"), []

        async def talk() -> None:
            try:
                await asyncio.sleep(2)
                words.append("done")
            finally:
                words.append("finally")

        here.spawn(talk(), "talk")
        await asyncio.sleep(1)
        here.die()
        await here.stopped
        await asyncio.sleep(10)
        assert words == []
        assert here.condition is Condition.DEAD
        assert here.died_at == 1.0

    on_machines(work)


@pytest.mark.parametrize("steps", range(6))
def test_a_machine_can_die_between_any_two_steps(steps: int) -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        here, taken = machine("a"), []

        async def count() -> None:
            for number in range(10):
                taken.append(number)
                await asyncio.sleep(0)

        here.die_after(steps)
        here.spawn(count(), "count")
        await asyncio.sleep(1)
        assert taken == list(range(steps))
        assert here.condition is Condition.DEAD

    on_machines(work)


def test_the_nearer_of_two_deaths_counts_and_both_can_be_called_off() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        near, spared = machine("a"), machine("b")
        near.die_after(1)
        near.die_after(100)
        spared.die_after(1)
        spared.die_after(None)

        async def rest() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        near.spawn(rest(), "rest")
        spared.spawn(rest(), "rest")
        await asyncio.sleep(1)
        assert near.condition is Condition.DEAD
        assert spared.condition is Condition.RUNNING

    on_machines(work)


def test_a_future_wakes_its_waiter_on_the_machine_of_the_waiter() -> None:
    async def work(machine: Callable[[str], Machine]) -> None:
        waiter, waker, words = machine("a"), machine("b"), []
        event = asyncio.Event()

        async def wait() -> None:
            await event.wait()
            words.append("woken")

        async def wake() -> None:
            event.set()

        waiter.spawn(wait(), "wait")
        await asyncio.sleep(1)
        waiter.freeze()
        await waker.spawn(wake(), "wake")
        await asyncio.sleep(1)
        assert words == []
        waiter.thaw()
        await asyncio.sleep(1)
        assert words == ["woken"]

    on_machines(work)
