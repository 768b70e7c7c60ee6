"""The events of steps: each end is emitted once, and a start only if the function is called."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from step_support import StepStore, answered, context_with
from tidegate import Context, Permanent, StepRejectedError
from tidegate.context import StopReason, TaskStopped
from tidegate.domain.step import StepState
from tidegate.events import EventBus, StepFinished, StepOutcome, StepStarted
from tidegate.events.values import StepEvent
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, EndStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> StepStore:
    return StepStore()


@pytest.fixture
def seen() -> list[StepEvent]:
    return []


@pytest.fixture
def ctx(store: StepStore, seen: list[StepEvent]) -> Context:
    """The context of a run whose events are kept."""
    context = context_with(store)
    context._control.events = bus = EventBus()
    bus.subscribe(StepStarted, seen.append)
    bus.subscribe(StepFinished, seen.append)
    return context


def outcomes(seen: list[StepEvent]) -> list[str]:
    return [str(event.outcome) if isinstance(event, StepFinished) else "started" for event in seen]


async def work(item: str) -> str:
    await asyncio.sleep(0)
    return item


async def refused(item: str) -> str:
    raise Permanent("the key sk-proj-abcdefghijklmnopqrstuvwxyz123456 is wrong")


async def timed_out(item: str) -> str:
    raise TimeoutError("no answer")


async def test_a_step_starts_and_is_done(ctx: Context, seen: list[StepEvent]) -> None:
    await ctx.step("draw", work, "cat")
    started, finished = seen
    assert isinstance(finished, StepFinished)
    assert (started.step, started.task_id, started.run) == ("draw", ctx.task_id, 1)
    assert (started.key, finished.outcome, finished.error_class) == (finished.key, StepOutcome.DONE, "")
    assert finished.seconds > 0


def test_a_plain_step_starts_and_is_done(ctx: Context, seen: list[StepEvent]) -> None:
    ctx.step_sync("draw", str.upper, "cat")
    assert outcomes(seen) == ["started", "done"]


@pytest.mark.parametrize(("fn", "outcome"), [(refused, "failed"), (timed_out, "in_doubt")])
async def test_a_failure_names_its_class_and_hides_its_secrets(
    fn: Any, outcome: str, ctx: Context, seen: list[StepEvent]
) -> None:
    with pytest.raises((Permanent, TimeoutError)):
        await ctx.step("draw", fn, "cat")
    assert outcomes(seen) == ["started", outcome]
    finished = seen[-1]
    assert isinstance(finished, StepFinished)
    assert finished.error_class in ("Permanent", "TimeoutError")
    assert "sk-proj" not in finished.message


async def test_a_step_that_is_tried_again_starts_each_time(ctx: Context, seen: list[StepEvent]) -> None:
    with pytest.raises(ConnectionRefusedError):
        await ctx.step("draw", refusing, "cat", retry=1)
    assert outcomes(seen) == ["started", "failed"] * 2


async def refusing(item: str) -> str:
    raise ConnectionRefusedError


async def test_a_step_that_an_earlier_run_did_has_no_start(
    ctx: Context, store: StepStore, seen: list[StepEvent]
) -> None:
    await ctx.step("draw", work, "cat")
    later = context_with(store)
    later.run, later._control.events = 2, ctx._control.events
    del seen[:]
    await later.step("draw", work, "cat")
    assert outcomes(seen) == ["replayed"]


async def test_a_result_from_the_cache_has_no_start(
    ctx: Context, store: StepStore, seen: list[StepEvent]
) -> None:
    found = BegunStep(BeginStatus.DONE, b'"cat"', "json", is_cached=True)
    store.begin = lambda begin: answered(found)  # type: ignore[method-assign]
    await ctx.step("draw", work, "cat", cache=True)
    assert outcomes(seen) == ["cached"]


async def test_a_step_whose_task_is_gone_is_lost(
    ctx: Context, store: StepStore, seen: list[StepEvent]
) -> None:
    store.end = lambda end: answered(EndedStep(EndStatus.GONE))  # type: ignore[method-assign]
    with pytest.raises(TaskStopped, match=StopReason.LOST.value):
        await ctx.step("draw", work, "cat")
    assert outcomes(seen) == ["started", "lost"]


async def test_a_step_that_may_not_be_done_again_has_no_events(
    ctx: Context, store: StepStore, seen: list[StepEvent]
) -> None:
    await ctx.step("draw", work, "cat")
    (row,) = store.rows.values()
    row["state"] = StepState.REJECTED
    del seen[:]
    context = context_with(store)
    context._control.events = ctx._control.events
    with pytest.raises(StepRejectedError):
        await context.step("draw", work, "cat")
    assert seen == []


async def test_what_a_subscriber_sets_is_seen_by_the_step_alone(ctx: Context) -> None:
    name: ContextVar[str] = ContextVar("name", default="")
    bus = ctx._control.events
    assert bus is not None
    bus.subscribe(StepStarted, lambda event: name.set(event.step))

    async def look() -> str:
        return name.get()

    assert await ctx.step("draw", look, key="k") == "draw"
    assert await asyncio.to_thread(ctx.step_sync, "plainly", name.get, key="l") == "plainly"
    assert name.get() == ""
