"""Lending slots while others start: nobody waits for a process of its own beside an idle one."""

from __future__ import annotations

import asyncio

import pytest

from tidegate.worker.slots.pool import AHEAD, NoSlot, SlotPool, SlotProcess, SlotRules

pytestmark = pytest.mark.anyio


class Starts:
    """Stands in for starting processes: each start waits until the test lets it go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Semaphore(0)

    async def start(self, slot: SlotProcess) -> None:
        self.begun += 1
        await self.go.acquire()


@pytest.fixture
async def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Starts that are let go by hand, one at a time as on two cores."""
    made = Starts()
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(SlotProcess, "start", lambda slot: made.start(slot))
    monkeypatch.setattr(SlotProcess, "is_alive", True)
    return made


async def test_who_waits_for_a_turn_to_start_a_slot_takes_one_that_is_idle_by_then(starts: Starts) -> None:
    pool = SlotPool("nothing:app", SlotRules())
    may_end = asyncio.Event()
    lent: list[SlotProcess] = []

    async def borrow() -> None:
        async with pool.lend() as slot:
            lent.append(slot)
            if len(lent) == 1:
                return  # the first body is over at once
            await may_end.wait()

    borrowers = [asyncio.create_task(borrow()) for _ in range(3)]
    await asyncio.sleep(0)
    starts.go.release()
    while len(lent) < 2:
        await asyncio.sleep(0)
    assert lent[0] is lent[1]
    assert starts.begun <= 2
    starts.go.release()
    may_end.set()
    await asyncio.gather(*borrowers)
    await pool.close()


async def test_there_is_no_room_for_more_bodies_than_children_are_soon_ready(starts: Starts) -> None:
    told = 0

    def on_room() -> None:
        nonlocal told
        told += 1

    pool = SlotPool("nothing:app", SlotRules(), on_room)
    assert pool.room == AHEAD
    may_end = asyncio.Event()

    async def borrow() -> None:
        async with pool.lend():
            await may_end.wait()

    borrowers = [asyncio.create_task(borrow()) for _ in range(AHEAD)]
    await asyncio.sleep(0)
    assert pool.room == 0
    starts.go.release()
    while not told:
        await asyncio.sleep(0)
    assert pool.room == 1
    starts.go.release()
    may_end.set()
    await asyncio.gather(*borrowers)
    assert pool.room == AHEAD + len(pool.processes)
    await pool.close()


async def test_a_slot_that_cannot_be_started_fails_the_body_that_waited_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(self: SlotProcess) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(SlotProcess, "start", start)
    pool = SlotPool("nothing:app", SlotRules())
    for _ in range(2):
        with pytest.raises(NoSlot, match="no more processes"):
            async with pool.lend():
                pass
    await pool.close()


async def test_a_body_that_stops_waiting_leaves_its_slot_to_the_next(starts: Starts) -> None:
    pool = SlotPool("nothing:app", SlotRules())

    async def borrow() -> SlotProcess:
        async with pool.lend() as slot:
            return slot

    gone, patient = asyncio.create_task(borrow()), asyncio.create_task(borrow())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    starts.go.release()
    assert isinstance(await patient, SlotProcess)
    await pool.close()
