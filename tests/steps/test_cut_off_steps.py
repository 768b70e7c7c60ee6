"""Steps that are cut off, never return, or raise what would end more than their task."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from step_support import RecordingPort, StepStore, context_with
from tidegate import (
    Context,
    OptionError,
    StepInDoubtError,
    TaskStopped,
    TaskSuspended,
    Transient,
    UsageError,
)
from tidegate.context import StopReason, SuspensionRequest
from tidegate.domain.step import StepState
from tidegate.steps.run_steps import MOST_THREADS
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, StepEnd

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_pauses")]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event for which functions wait in threads; it comes at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


class SlowEnds(RecordingPort):
    """A port whose ends wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: list[tuple[StepEnd, Future[EndedStep]]] = []
        self.ended = asyncio.Event()

    def end(self, end: StepEnd) -> Future[EndedStep]:
        future: Future[EndedStep] = Future()
        self.unanswered.append((end, future))
        self.ended.set()
        return future


async def test_a_cancel_while_a_failure_is_recorded_cancels_the_step() -> None:
    port, calls = SlowEnds(), 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        raise Transient("busy")

    running = asyncio.create_task(context_with(port).step("call", call, retry=3))
    await port.ended.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)
    assert calls == 1


def test_a_plain_step_is_not_tried_again_after_a_stop(ctx: Context) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        ctx._control.stop = StopReason.CANCEL
        raise Transient("busy")

    with pytest.raises(TaskStopped):
        ctx.step_sync("call", call, retry=3)
    assert calls == 1


async def test_no_step_begins_once_the_run_has_suspended_itself_or_is_over(
    ctx: Context, port: RecordingPort
) -> None:
    ctx._control.suspension = SuspensionRequest(60.0, "sleeps 1 min")
    with pytest.raises(TaskSuspended, match="sleeps 1 min"):
        await ctx.step("call", int)
    ctx._control.suspension = None
    ctx._control.is_over = True
    with pytest.raises(TaskStopped, match="has ended"):
        await ctx.step("call", int)
    assert not port.begins


async def test_a_stop_iteration_of_a_plain_function_fails_the_step(ctx: Context) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await ctx.step("call", lambda: next(iter([])))


async def test_a_step_that_exits_fails_alone(ctx: Context, port: RecordingPort) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    def leave_in_thread() -> None:
        raise SystemExit("bye")

    outcomes = await asyncio.gather(
        ctx.step("loop", leave), ctx.step("thread", leave_in_thread), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == [
        "the function of a step raised SystemExit(3)",
        "the function of a step raised SystemExit('bye')",
    ]
    assert [end.status for end in port.ends] == ["failed", "failed"]


def test_a_plain_function_that_exits_is_not_in_doubt(ctx: Context, port: RecordingPort) -> None:
    with pytest.raises(SystemExit):
        ctx.step_sync("leave", sys.exit, 3)
    assert [end.status for end in port.ends] == ["failed"]


async def test_functions_that_never_return_take_no_thread_from_other_steps(
    ctx: Context, never: threading.Event
) -> None:
    hung = [ctx.step("hang", never.wait, key=f"{number}", timeout=0.05) for number in range(MOST_THREADS)]
    assert all(isinstance(each, TimeoutError) for each in await asyncio.gather(*hung, return_exceptions=True))
    async with asyncio.timeout(5):
        assert await ctx.step("next", lambda: 1) == 1
        assert await asyncio.to_thread(lambda: 2) == 2


async def test_a_plain_step_that_waits_for_a_thread_has_not_begun(
    ctx: Context, port: RecordingPort, never: threading.Event
) -> None:
    running = [
        asyncio.create_task(ctx.step("call", never.wait, key=f"{number}"))
        for number in range(MOST_THREADS + 8)
    ]
    while len(port.begins) < MOST_THREADS:
        await asyncio.sleep(0.001)
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert len(port.begins) == len(port.ends) == MOST_THREADS


async def test_awaitables_of_plain_functions_hold_no_thread(ctx: Context) -> None:
    started = 0

    async def call() -> None:
        nonlocal started
        started += 1
        while started < MOST_THREADS + 8:
            await asyncio.sleep(0)

    async with asyncio.timeout(10):
        await asyncio.gather(*[ctx.step("call", lambda: call()) for _ in range(MOST_THREADS + 8)])


async def test_a_plain_function_that_finds_out_does_not_block_the_loop(
    ctx: Context, port: RecordingPort
) -> None:
    port.answers["call"] = BegunStep(BeginStatus.IN_DOUBT)
    has_begun, found, was_found = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def find(key: str) -> None:
        loop.call_soon_threadsafe(has_begun.set)
        was_found.append(found.wait(5))

    running = asyncio.create_task(ctx.step("call", int, key="a", in_doubt=find))
    await has_begun.wait()
    found.set()
    with pytest.raises(StepInDoubtError):  # the port answers the same again
        await running
    assert was_found == [True]


@pytest.mark.parametrize("call", ["step", "sleep", "wait", "approve"])
async def test_a_plain_call_inside_an_event_loop_is_refused(call: str, ctx: Context) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: ctx.step_sync("call", int),
        "sleep": lambda: ctx.sleep_sync(1),
        "wait": lambda: ctx.wait_event_sync("paid"),
        "approve": lambda: ctx.approve_sync("refund?"),
    }
    with pytest.raises(UsageError, match="inside an event loop"):
        calls[call]()


def test_a_step_that_the_function_itself_repeats_is_not_done_again_by_a_later_run() -> None:
    store, calls = StepStore(), 0

    def call() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ValueError("not yet")
        return "done"

    def run(ctx: Context) -> str:
        for _ in range(5):
            try:
                return ctx.step_sync("call", call)
            except ValueError:
                pass
        raise AssertionError

    assert run(context_with(store)) == "done"
    assert store.states == [StepState.DONE]
    assert run(context_with(store)) == "done"
    assert calls == 3


def test_a_doubt_that_asks_is_not_repeated_by_the_function_itself(ctx: Context) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise TimeoutError

    for error in (TimeoutError, StepInDoubtError, StepInDoubtError):
        with pytest.raises(error):
            ctx.step_sync("call", call, in_doubt="ask")
    assert calls == 1


@pytest.mark.parametrize(("name", "key"), [("a\ud800", None), ("a", "\ud800")])
async def test_a_name_that_cannot_be_stored_is_refused(name: str, key: str | None, ctx: Context) -> None:
    with pytest.raises(OptionError, match="surrogates"):
        await ctx.step(name, int, key=key)
    with pytest.raises(OptionError, match="surrogates"):
        await ctx.wait_event(name, key=key)
    with pytest.raises(OptionError, match="surrogates"):
        await ctx.approve(name, to=key or "")
