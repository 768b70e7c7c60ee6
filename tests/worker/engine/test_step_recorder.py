"""The order in which steps are written, by the recorder of a pool process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidegate.domain.outcome import Fence
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    CacheTerms,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
)
from tidegate.worker.engine.step_recorder import BATCH_STEPS, StepRecorder

pytestmark = pytest.mark.anyio


class Steps:
    """The steps of a store."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    async def begin_steps(self, begins: Sequence[StepBegin]) -> list[BegunStep]:
        await asyncio.sleep(0)
        self.open.update(begin.key for begin in begins)
        return [BegunStep(BeginStatus.BEGUN) for _ in begins]

    async def end_steps(self, ends: Sequence[StepEnd]) -> list[EndedStep]:
        await asyncio.sleep(0)
        known = [end.key in self.open for end in ends]
        self.open -= {end.key for end in ends}
        return [
            EndedStep(end.status if is_known else EndStatus.GONE)
            for end, is_known in zip(ends, known, strict=True)
        ]


async def test_a_step_that_is_cut_off_before_its_begin_is_written_does_not_stay_open() -> None:
    store: Any = Steps()
    recorder = StepRecorder(store, random.Random(1), lambda _: None)
    fence = Fence("01890000-0000-7000-8000-000000000000", 1)
    begins = [recorder.begin(StepBegin(fence, str(number), 1, "s")) for number in range(2 * BATCH_STEPS + 1)]
    last = str(2 * BATCH_STEPS)
    ended = recorder.end(StepEnd(fence, last, 1, EndStatus.FAILED))
    writing = asyncio.create_task(recorder.run())
    async with asyncio.timeout(10):
        await recorder.wait_until_written()
    writing.cancel()
    assert all(begin.result().status is BeginStatus.BEGUN for begin in begins)
    assert ended.result().status is EndStatus.FAILED
    assert last not in store.open


class CachedSteps(Steps):
    """The same for a step with a cache, whose begin the store answers late."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def begin_cached_step(self, begin: StepBegin) -> BegunStep:
        await self.may_answer.wait()
        return (await self.begin_steps([begin]))[0]


async def test_a_step_with_a_cache_that_is_cut_off_before_its_begin_is_written_does_not_stay_open() -> None:
    store: Any = CachedSteps()
    recorder = StepRecorder(store, random.Random(1), lambda _: None)
    fence = Fence("01890000-0000-7000-8000-000000000000", 1)
    writing = asyncio.create_task(recorder.run())
    terms = CacheTerms("cat", "", is_shared=False, seconds=60.0)
    begun = recorder.begin(StepBegin(fence, "k", 1, "s", cache=terms))
    ended = recorder.end(StepEnd(fence, "k", 1, EndStatus.FAILED))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not ended.done()
    store.may_answer.set()
    async with asyncio.timeout(10):
        await recorder.wait_until_written()
    writing.cancel()
    assert begun.result().status is BeginStatus.BEGUN
    assert ended.result().status is EndStatus.FAILED
    assert store.open == set()
