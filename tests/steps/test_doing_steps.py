"""Steps without a worker: retries within a run, results as later runs get them, options, plain calls."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import weakref
from concurrent.futures import Future
from datetime import date
from typing import Any

import pytest

from step_support import RecordingPort, context_with
from tidegate import (
    ArgumentsError,
    Context,
    OptionError,
    Permanent,
    RetryAfter,
    RetryRequested,
    StepChangedError,
    StepInDoubtError,
    TaskStopped,
    Transient,
)
from tidegate.context import StopReason
from tidegate.steps import answered
from tidegate.store.step_rows import BeginStatus, BegunStep

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_pauses")]


class Failing:
    """A function that raises these errors one after the other, then returns."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_a_transient_failure_is_retried_within_the_run_as_often_as_asked(
    ctx: Context, port: RecordingPort
) -> None:
    failing = Failing(Transient("one"), Transient("two"))
    assert await ctx.step("call", failing, key="a", retry=2) == "done"
    assert failing.calls == 3
    assert [begin.attempt for begin in port.begins] == [1, 2, 3]
    assert [end.status for end in port.ends] == ["failed", "failed", "done"]


@pytest.mark.parametrize("error", [Permanent("no"), RetryAfter(0.01), RetryAfter(60), ValueError("what")])
def test_what_no_retry_helps_and_what_the_task_must_decide_is_not_retried(
    error: Exception, ctx: Context
) -> None:
    failing = Failing(error)
    with pytest.raises(type(error)):
        ctx.step_sync("call", failing, key="a", retry=5)
    assert failing.calls == 1


def test_a_call_without_an_answer_is_in_doubt_and_a_refused_connection_is_not(
    ctx: Context, port: RecordingPort
) -> None:
    for error in (TimeoutError(), ConnectionResetError(), ConnectionRefusedError()):
        with pytest.raises(type(error)):
            ctx.step_sync("call", Failing(error), key=type(error).__name__)
    assert [end.status for end in port.ends] == ["in_doubt", "in_doubt", "failed"]
    assert port.ends[0].cause.startswith("TimeoutError")


def test_a_retry_within_the_run_does_not_repeat_a_doubt_that_asks(ctx: Context) -> None:
    failing = Failing(TimeoutError())
    with pytest.raises(StepInDoubtError, match="doubts ls"):
        ctx.step_sync("call", failing, key="a", in_doubt="ask", retry=3)
    assert failing.calls == 1


@dataclasses.dataclass
class Invoice:
    number: int
    day: date


def make_invoice(number: int) -> Invoice:
    return Invoice(number, date(2026, 11, 30))


async def test_the_first_run_gets_the_result_in_the_same_form_as_later_ones(
    ctx: Context, port: RecordingPort
) -> None:
    first = await ctx.step("invoice", make_invoice, 7)
    port.answers["invoice"] = BegunStep(BeginStatus.DONE, port.ends[0].data, port.ends[0].codec)
    again = await ctx.step("invoice", make_invoice, 7)
    assert first == again == make_invoice(7)


async def test_a_result_that_cannot_be_stored_fails_the_step_and_names_it(
    ctx: Context, port: RecordingPort
) -> None:
    with pytest.raises(ArgumentsError, match="the result of step 'open'"):
        await ctx.step("open", lambda: object())
    assert [end.status for end in port.ends] == ["failed"]


async def test_arguments_that_cannot_be_stored_need_a_key(ctx: Context) -> None:
    client = object()

    def ask(of: object) -> str:
        return "hello"

    with pytest.raises(ArgumentsError, match="give the step a key="):
        await ctx.step("ask", ask, client)
    assert await ctx.step("ask", ask, client, key="first") == "hello"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"in_doubt": "retry"}, "in_doubt"),
        ({"on_change": "rerun"}, "key="),
        ({"on_change": "maybe", "key": "a"}, "on_change"),
        ({"key": ""}, "key"),
        ({"key": "x" * 201}, "200 characters"),
        ({"timeout": 0}, "timeout"),
        ({"retry": -1}, "retry"),
        ({"retry": True}, "retry"),
    ],
)
async def test_a_wrong_option_is_refused_before_anything_is_done(
    options: dict[str, Any], match: str, ctx: Context, port: RecordingPort
) -> None:
    with pytest.raises(OptionError, match=match):
        await ctx.step("call", Failing(), **options)
    assert not port.begins


def add(one: int, other: int) -> int:
    return one + other


async def test_a_key_whose_arguments_changed_raises_or_is_done_again_if_that_is_wanted(
    ctx: Context, port: RecordingPort
) -> None:
    assert await ctx.step("add", add, 1, 2, key="a", on_change="error") == 3
    done = BegunStep(BeginStatus.DONE, b"3", "json", arguments=port.begins[0].arguments)
    port.answers["add"] = done
    assert await context_with(port).step("add", add, 1, 2, key="a", on_change="error") == 3
    with pytest.raises(StepChangedError, match="with key 'a' was done with other arguments"):
        await context_with(port).step("add", add, 1, 3, key="a", on_change="error")
    assert await context_with(port).step("add", add, 1, 3, key="a") == 3
    await context_with(port).step("add", add, 1, 3, key="a", on_change="rerun")
    assert len({begin.key for begin in port.begins[:4]}) == 1
    assert port.begins[4].key != port.begins[0].key


async def test_a_run_that_was_asked_to_stop_begins_no_step(ctx: Context, port: RecordingPort) -> None:
    ctx._control.stop = StopReason.CANCEL
    with pytest.raises(TaskStopped):
        await ctx.step("call", Failing())
    assert not port.begins


async def test_a_run_that_is_no_longer_the_current_one_stops_at_its_next_step(
    ctx: Context, port: RecordingPort
) -> None:
    port.answers["call"] = BegunStep(BeginStatus.FENCED)
    failing = Failing()
    with pytest.raises(TaskStopped):
        await ctx.step("call", failing)
    assert failing.calls == 0


async def test_a_step_names_the_upstream_of_its_task_before_it_makes_a_call(
    ctx: Context, port: RecordingPort
) -> None:
    ctx.upstream = "openai"
    await ctx.step("call", Failing())
    assert port.begins[0].upstream == "openai"


async def test_a_step_that_is_cut_off_is_in_doubt(ctx: Context, port: RecordingPort) -> None:
    started = asyncio.Event()

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(ctx.step("hang", hang))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [end.status for end in port.ends] == ["in_doubt"]


class Endless:
    """A callable whose every attribute is another one, like a mock."""

    def __call__(self) -> int:
        return 1

    def __getattr__(self, name: str) -> Endless:
        return Endless()


class Async:
    async def __call__(self) -> int:
        return 1

    async def method(self) -> int:
        return 1


async def broken() -> NoSuchType:  # type: ignore[name-defined]  # noqa: F821
    return 1


@pytest.mark.parametrize(
    "function",
    [
        Endless(),
        Async(),
        Async().method,
        functools.partial(int, "1"),
        functools.partial(functools.partial(broken)),
        lambda: 1,
    ],
)
async def test_a_step_calls_anything_that_can_be_called(function: Any, ctx: Context) -> None:
    assert await ctx.step("call", function) == 1


async def test_functions_of_steps_are_not_kept(ctx: Context) -> None:
    class Large:
        pass

    held = Large()
    gone = weakref.ref(held)

    def call(of: Large = held) -> int:
        return 1

    await ctx.step("call", call)
    del held, call
    gc.collect()
    assert gone() is None


async def test_a_step_that_asks_for_another_run_is_not_in_doubt(ctx: Context, port: RecordingPort) -> None:
    with pytest.raises(RetryRequested):
        await ctx.step("call", ctx.retry, 1.0, key="a")
    assert [end.status for end in port.ends] == ["failed"]


async def test_a_key_that_is_used_twice_at_once_is_done_once(ctx: Context, port: RecordingPort) -> None:
    calls = 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        port.answers["call"] = BegunStep(BeginStatus.DONE, b'"done"', "json")
        return "done"

    assert await asyncio.gather(*[ctx.step("call", call, key="a") for _ in range(3)]) == ["done"] * 3
    assert calls == 1
    assert len({begin.key for begin in port.begins}) == 1


async def test_a_step_inside_itself_is_refused(ctx: Context) -> None:
    async def call() -> None:
        await ctx.step("call", call, key="a")

    with pytest.raises(ArgumentsError, match="inside itself"):
        await ctx.step("call", call, key="a")


async def test_inside_a_step_the_idempotency_key_is_the_steps(ctx: Context) -> None:
    async def key() -> str:
        return ctx.idempotency_key

    outside = ctx.idempotency_key
    first, second, other = [await ctx.step(name, key) for name in ("a", "a", "b")]
    assert len({outside, first, second, other}) == 4
    assert outside == ctx.task_id


async def test_the_steps_of_a_plain_call_are_done_each_time() -> None:
    failing = Failing()
    for _ in range(2):
        assert await Context.detached().step("call", failing) == "done"
    assert failing.calls == 2


def test_a_plain_function_with_a_step_that_returns_an_awaitable_is_refused(ctx: Context) -> None:
    async def fetch() -> str:
        return "never"

    with pytest.raises(ArgumentsError, match="plain function"):
        _ = ctx.step_sync("fetch", fetch)


async def test_an_error_that_comes_after_its_wait_was_cut_off_is_not_logged_by_asyncio() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    asking: Future[None] = Future()
    waiting = asyncio.create_task(answered(asking))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    asking.set_exception(ValueError("the worker is closed"))
    await asyncio.sleep(0)
    del asking
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []
