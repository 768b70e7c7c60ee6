"""The claimer goes on after any store error: a worker that stopped claiming would still look alive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate import Pool
from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.errors import StoreUnavailableError
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask, ClaimRequest, ClaimResult, CrashPolicy
from tidegate.worker.engine.claimer import CLAIM_LIMIT, Claimer
from tidegate.worker.engine.slots import SlotRoom

pytestmark = pytest.mark.anyio


class StoreThatGoesAway:
    """Answers claims with nothing; every wait for a change fails."""

    def __init__(self) -> None:
        self.claims = 0
        self.claimed_often = asyncio.Event()

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        self.claims += 1
        if self.claims == 3:
            self.claimed_often.set()
        return ClaimResult(())

    async def find_lost_claims(self, worker_id: str, known_runs: Any) -> list[Any]:
        return []

    async def wait_for_change(self, timeout_seconds: float) -> None:
        raise StoreUnavailableError("the connection is gone")


async def test_a_wait_for_changes_that_fails_does_not_end_the_claiming() -> None:
    store = StoreThatGoesAway()
    claimer = Claimer(
        store=cast("Store", store),
        pool=Pool(poll_interval=0.01),
        worker_id="w",
        functions={},
        room=lambda: SlotRoom(0, 1),
        may_start=lambda: True,
        start_task=lambda task: None,
        known_runs=list,
        release=lambda fence: None,
        rng=random.Random(1),
    )
    claiming = asyncio.create_task(claimer.run())
    async with asyncio.timeout(20):
        await store.claimed_often.wait()
    assert not claiming.done()
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming


class Recorded:
    """Has no tasks; records the claim requests."""

    def __init__(self) -> None:
        self.requests: list[ClaimRequest] = []
        self.asked = asyncio.Event()

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        self.requests.append(request)
        self.asked.set()
        return ClaimResult(())

    async def wait_for_change(self, timeout_seconds: float) -> None:
        await asyncio.Event().wait()


def claimer_of(
    store: Recorded,
    child_capacity: Callable[[], int],
    release: Callable[[Fence], None] = lambda fence: None,
) -> Claimer:
    terms = CrashPolicy(crash_limit=3, base_seconds=1.0, max_seconds=60.0)
    return Claimer(
        store=cast("Store", store),
        pool=Pool(poll_interval=60.0),
        worker_id="w",
        functions={"coroutine": terms, "in_child": terms},
        room=lambda: SlotRoom(0, 8),
        child_functions=frozenset({"in_child"}),
        child_capacity=child_capacity,
        may_start=lambda: True,
        start_task=lambda task: None,
        known_runs=list,
        release=release,
        rng=random.Random(1),
    )


class Late(Recorded):
    """A claim that was given up reaches it later, after the check for lost claims."""

    async def find_lost_claims(self, worker_id: str, known_runs: Any) -> list[Fence]:
        return [Fence("late", 1)] if self.requests else []

    async def wait_for_change(self, timeout_seconds: float) -> None:
        await asyncio.sleep(0.01)


async def test_a_claim_that_commits_after_it_was_given_up_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.worker.engine.claimer.LOST_CLAIMS_CHECK_SECONDS", 0.05)
    given_back: asyncio.Queue[Fence] = asyncio.Queue()
    claiming = asyncio.create_task(claimer_of(Late(), lambda: 8, release=given_back.put_nowait).run())
    async with asyncio.timeout(20):
        assert await given_back.get() == Fence("late", 1)
    claiming.cancel()


@pytest.mark.parametrize(
    ("room", "asked"),
    [
        (8, [(8, {"coroutine", "in_child"})]),
        (3, [(3, {"in_child"}), (8, {"coroutine"})]),
        (0, [(8, {"coroutine"})]),
    ],
)
async def test_no_more_tasks_are_claimed_than_children_are_soon_ready(
    room: int, asked: list[tuple[int, set[str]]]
) -> None:
    store = Recorded()
    claiming = asyncio.create_task(claimer_of(store, lambda: room).run())
    async with asyncio.timeout(20):
        while len(store.requests) < len(asked):
            await asyncio.sleep(0)
    assert [(request.slots, set(request.functions)) for request in store.requests] == asked
    claiming.cancel()


async def test_a_child_that_becomes_ready_ends_the_wait_for_tasks() -> None:
    store, room = Recorded(), 0
    claimer = claimer_of(store, lambda: room)
    claiming = asyncio.create_task(claimer.run())
    async with asyncio.timeout(20):
        await store.asked.wait()
        await asyncio.sleep(0)
        store.asked.clear()
        room = 8
        claimer.notify_slot_freed()
        await store.asked.wait()
    assert set(store.requests[-1].functions) == {"coroutine", "in_child"}
    claiming.cancel()


async def test_a_child_may_become_ready_after_claiming_has_ended() -> None:
    store = Recorded()
    claimer = claimer_of(store, lambda: 0)
    claiming = asyncio.create_task(claimer.run())
    async with asyncio.timeout(20):
        await store.asked.wait()
        for _ in range(5):
            await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    claimer.notify_slot_freed()


class Backlog(Recorded):
    """Fills that many claims with coroutines; has no tasks for child processes."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        await super().claim(request)
        if "coroutine" not in request.functions or self.times == 0:
            return ClaimResult(())
        self.times -= 1
        return ClaimResult(
            tuple([cast("ClaimedTask", SimpleNamespace(priority=Priority.NORMAL))] * request.slots)
        )


async def test_a_backlog_of_other_functions_is_not_delayed_by_separate_claims_for_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.worker.engine.claimer.CHILD_CLAIM_SECONDS", 60.0)
    store = Backlog(times=10)
    claiming = asyncio.create_task(claimer_of(store, lambda: 3).run())
    async with asyncio.timeout(20):
        while len(store.requests) < 14:
            await asyncio.sleep(0)
    apart = [set(request.functions) == {"in_child"} for request in store.requests]
    assert apart.index(True) == 0
    assert apart[1:12] == [False] * 11  # ten claims with tasks, one without
    assert apart[12:] == [True, False]  # then a claim for child processes at once, before it waits
    claiming.cancel()


class Endless:
    """Fills every claim; the third one ends it."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def claim(self, request: ClaimRequest) -> ClaimResult:
        self.asked.append(request.slots)
        if len(self.asked) == 3:
            return ClaimResult((), is_alive=False)
        task = cast("ClaimedTask", SimpleNamespace(priority=Priority.NORMAL))
        return ClaimResult((task,) * request.slots)


@pytest.mark.parametrize(
    ("slots", "asked"),
    [
        (2 * CLAIM_LIMIT, [CLAIM_LIMIT, CLAIM_LIMIT, CLAIM_LIMIT]),
        (100, [100, 50, 50]),
        (1, [1, 1, 1]),
    ],
)
async def test_the_next_claim_is_made_while_half_of_the_slots_have_not_started(
    slots: int, asked: list[int]
) -> None:
    store, not_started = Endless(), 0

    def begin() -> None:
        """Start a few runs in each turn of the loop, as the executor does; each run ends at once."""
        nonlocal not_started
        not_started -= min(not_started, 10)
        claimer.notify_slot_freed()
        if not_started:
            loop.call_soon(begin)

    def start_task(task: ClaimedTask) -> None:
        nonlocal not_started
        if not not_started:
            loop.call_soon(begin)
        not_started += 1

    loop = asyncio.get_running_loop()
    claimer = Claimer(
        store=cast("Store", store),
        pool=Pool(concurrency=slots),
        worker_id="w",
        functions={},
        room=lambda: SlotRoom(0, slots - not_started),
        not_started=lambda: not_started,
        may_start=lambda: True,
        start_task=start_task,
        known_runs=list,
        release=lambda fence: None,
        rng=random.Random(1),
    )
    async with asyncio.timeout(20):
        assert not await claimer.run()
    assert store.asked == asked


@pytest.mark.parametrize(
    ("room", "asked"),
    [
        (SlotRoom(8, 8), [(8, {"llm", "coroutine", "in_child"})]),
        (SlotRoom(5, 8), [(5, {"llm", "coroutine", "in_child"})]),
        (SlotRoom(40, 8), [(8, {"coroutine", "in_child"}), (40, {"llm"})]),
        (SlotRoom(0, 8), [(8, {"coroutine", "in_child"})]),
        (SlotRoom(40, 0), [(40, {"llm"})]),
    ],
)
async def test_functions_whose_slots_grow_are_claimed_by_their_own_room(
    room: SlotRoom, asked: list[tuple[int, set[str]]]
) -> None:
    store = Recorded()
    terms = CrashPolicy(crash_limit=3, base_seconds=1.0, max_seconds=60.0)
    claimer = Claimer(
        store=cast("Store", store),
        pool=Pool(poll_interval=60.0),
        worker_id="w",
        functions=dict.fromkeys(("llm", "coroutine", "in_child"), terms),
        room=lambda: room,
        growing=lambda: frozenset({"llm"}),
        child_functions=frozenset({"in_child"}),
        may_start=lambda: True,
        start_task=lambda task: None,
        known_runs=list,
        release=lambda fence: None,
        rng=random.Random(1),
    )
    claiming = asyncio.create_task(claimer.run())
    async with asyncio.timeout(20):
        while len(store.requests) < len(asked):
            await asyncio.sleep(0)
    assert [(request.slots, set(request.functions)) for request in store.requests] == asked
    claiming.cancel()
