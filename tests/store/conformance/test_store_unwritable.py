"""Values that no store can write: each back end raises an error that the writer of outcomes handles."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from store_build import FAILED, Build, dead, retrying, succeeded

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Dead, Fence, Outcome
from tidegate.domain.states import State
from tidegate.store.rows import ProgressUpdate
from tidegate.store.streams import NewChunk
from tidegate.worker.engine.finisher import CONTENT_ERRORS, Finisher

BAD: dict[str, Callable[[Fence], Any]] = {
    "a reason with NUL": lambda fence: dead(fence, failure=Failure(Verdict.PERMANENT, odd("a\0b"))),
    "a reason with half a pair": lambda fence: dead(
        fence, failure=Failure(Verdict.PERMANENT, odd("a\ud800"))
    ),
    "a verdict with NUL": lambda fence: dead(fence, failure=Failure(odd("\0"), Reason.AUTH)),
    "a charge with NUL": lambda fence: Dead(fence, FAILED, odd("\0"), "why"),
    "a delay of text": lambda fence: replace(retrying(fence), delay_seconds=odd("5s")),
    "an upstream too long for an index": lambda fence: replace(
        retrying(fence),
        call_failure=CallFailure(Reason.OVERLOADED, upstream=random.Random(1).randbytes(100_000).hex()),
    ),
}


def odd(value: object) -> Any:
    """Return a value of a wrong type, which a type checker would refuse."""
    return value


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
async def test_an_outcome_that_cannot_be_stored_does_not_keep_other_runs_open(
    build: Build, bad: Callable[[Fence], Outcome]
) -> None:
    fences = [task.fence for task in await build.running(4)]
    finisher = Finisher(build.store, random.Random(1), lambda fence: None)
    for place, fence in enumerate(fences):
        finisher.finish(bad(fence) if place == 1 else succeeded(fence))
    writing = asyncio.create_task(finisher.run())
    try:
        async with asyncio.timeout(20):
            await finisher.wait_until_written()
    finally:
        writing.cancel()
    states = list((await build.states([fence.task_id for fence in fences])).values())
    assert states.pop(1) in (State.DEAD, State.RETRYING)
    assert states == [State.SUCCEEDED] * 3


async def test_progress_and_chunks_that_cannot_be_stored_raise_a_content_error(build: Build) -> None:
    fence = (await build.run()).fence
    far = fence._replace(run=2**80)
    with pytest.raises(CONTENT_ERRORS):
        await build.store.save_progress([ProgressUpdate(far, 1.0, None, "")])
    with pytest.raises(CONTENT_ERRORS):
        await build.store.append_chunks([NewChunk(far, 1, b"1")])
    assert await build.store.save_progress([ProgressUpdate(fence, 1.0, None, "")]) == []
