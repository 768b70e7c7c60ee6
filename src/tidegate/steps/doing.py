"""Does a step, on the event loop or in a plain function: begins it, calls its function, records the end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any

from tidegate.domain.failure import CAPACITY_REASONS, Verdict
from tidegate.domain.step import OnDoubt
from tidegate.errors import ArgumentsError, StoreError
from tidegate.policy.classify import classify
from tidegate.steps.execution import StepExecution, unwrapped
from tidegate.steps.options import StepDone, StepOptions
from tidegate.steps.port import answered
from tidegate.steps.run_steps import RunSteps
from tidegate.steps.threads import run_in_thread
from tidegate.steps.waits import Wait
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between two tries of a step in one run. A longer wait is left to the task, which then holds no slot."""


async def do_step(
    execution: StepExecution,
    steps: RunSteps,
    function: Callable[[], Any],
    options: StepOptions,
    check_stop: Callable[[], None],
    wait: Callable[[Wait], Awaitable[None]],
) -> Any:
    """Do a step on the event loop, and return its result.

    Args:
        execution: The step.
        steps: The steps of the run.
        function: What the step calls.
        options: The step's options.
        check_stop: Raises if the run was asked to stop. It is called before each call of the function.
        wait: Waits a while for the task that does the same work, or ends the run for it.

    Raises:
        StepLost: The run is no longer the task's current one.
        Exception: What the function raised, or what `StepExecution.answer` raises.
    """
    loading = steps.load()
    if loading is not None:
        steps.take(await answered(loading))
    if (found := execution.recorded()) is not None:
        return found.value
    while (under_way := steps.enter(execution.key)) is not None:
        await answered(under_way)
    try:
        return await _do(execution, steps, function, options, check_stop, wait)
    except BaseException:
        execution.release()
        raise
    finally:
        steps.leave(execution.key)


async def _do(
    execution: StepExecution,
    steps: RunSteps,
    function: Callable[[], Any],
    options: StepOptions,
    check_stop: Callable[[], None],
    wait: Callable[[Wait], Awaitable[None]],
) -> Any:
    for retries_before in range(options.retries + 1):
        check_stop()
        async with AsyncExitStack() as thread_slot:
            begun = await _begun_in_turn(execution, steps, function, thread_slot, wait)
            if begun.status is BeginStatus.IN_DOUBT and options.reconcile is not None:
                done = await called(functools.partial(options.reconcile, execution.current.idempotency_key))
                if done is not None:
                    return await _finished(execution, _reconciled(done))
                begun = await _begun(execution.without_wait(), OnDoubt.REPEAT)
            if (found := execution.answer(begun)) is not None:
                return found.value
            try:
                async with asyncio.timeout(options.timeout_seconds):
                    value = await _called_in_step(function, execution, thread_slot)
            except BaseException as error:
                await _written(execution.fail(error))
                is_last = retries_before == options.retries
                if is_last or (pause := pause_before_retry(error, retries_before)) is None:
                    raise
            else:
                return await _finished(execution, value)
        await asyncio.sleep(pause)
    raise AssertionError  # the last round returns or raises


def do_step_sync(
    execution: StepExecution,
    steps: RunSteps,
    function: Callable[[], Any],
    options: StepOptions,
    check_stop: Callable[[], None],
    wait: Callable[[Wait], None],
) -> Any:
    """Do the same as `do_step`, in a plain function."""
    loading = steps.load()
    if loading is not None:
        steps.take(loading.result())
    if (found := execution.recorded()) is not None:
        return found.value
    while (under_way := steps.enter(execution.key)) is not None:
        under_way.result()
    try:
        return _do_sync(execution, function, options, check_stop, wait)
    except BaseException:
        execution.release()
        raise
    finally:
        steps.leave(execution.key)


def _do_sync(
    execution: StepExecution,
    function: Callable[[], Any],
    options: StepOptions,
    check_stop: Callable[[], None],
    wait: Callable[[Wait], None],
) -> Any:
    for retries_before in range(options.retries + 1):
        check_stop()
        while (begun := execution.begin().result()).status is BeginStatus.WAIT:
            wait(execution.wait_after(begun))
        if begun.status is BeginStatus.IN_DOUBT and options.reconcile is not None:
            done = options.reconcile(execution.current.idempotency_key)
            if inspect.isawaitable(done):
                _close(done)
                raise _not_plain("in_doubt")
            if done is not None:
                return _finished_sync(execution, _reconciled(done))
            begun = execution.without_wait().begin(OnDoubt.REPEAT).result()
        if (found := execution.answer(begun)) is not None:
            return found.value
        context = contextvars.copy_context()
        execution.enter(context)
        try:
            value = context.run(function)
            if inspect.isawaitable(value):
                _close(value)
                raise _not_plain("fn")
        except BaseException as error:
            with contextlib.suppress(StoreError):
                execution.fail(error).result()
            is_last = retries_before == options.retries
            if is_last or (pause := pause_before_retry(error, retries_before)) is None:
                raise
        else:
            return _finished_sync(execution, value)
        time.sleep(pause)
    raise AssertionError  # the last round returns or raises


def pause_before_retry(error: BaseException, retries_before: int) -> float | None:
    """Return the seconds before a step is done again in the same run; None if the task has to decide.

    Args:
        error: What the step raised.
        retries_before: How often the step has already been done again.
    """
    if not isinstance(error, Exception):
        return None
    failure = classify(error, now=time.time()).failure
    if failure.verdict is not Verdict.TRANSIENT or failure.reason in CAPACITY_REASONS or failure.is_refusal:
        return None
    wait = failure.wait_seconds or 0.0
    if wait > LONGEST_PAUSE_SECONDS:
        return None
    grown = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**retries_before)
    return max(wait, grown * random.uniform(0.5, 1.0))


async def _begun_in_turn(
    execution: StepExecution,
    steps: RunSteps,
    function: Callable[[], Any],
    thread_slot: AsyncExitStack,
    wait: Callable[[Wait], Awaitable[None]],
) -> BegunStep:
    """Begin a step when a thread is free for it, and when no other task does the same work.

    While it waits for either, it has not begun, and it holds no thread.
    """
    while True:
        if not _is_async(function):
            await thread_slot.enter_async_context(steps.thread_slots())
        begun = await _begun(execution)
        if begun.status is not BeginStatus.WAIT:
            return begun
        await thread_slot.aclose()
        await wait(execution.wait_after(begun))


async def _begun(execution: StepExecution, on_doubt: OnDoubt | None = None) -> BegunStep:
    """Begin a step. If this is cut off, the step is recorded as not done: its function was not called."""
    try:
        return await answered(execution.begin(on_doubt))
    except asyncio.CancelledError as error:
        execution.fail(error, has_started=False)
        raise


async def _called_in_step(
    function: Callable[[], Any], execution: StepExecution, thread_slot: AsyncExitStack
) -> Any:
    """Call a step's function as part of the step. Its slot for a thread is free once the thread has ended."""
    context = contextvars.copy_context()
    execution.enter(context)
    calling = _without_exit(called(function, thread_slot.aclose))
    return await asyncio.get_running_loop().create_task(calling, context=context)


async def called(
    function: Callable[[], Any], on_thread_ended: Callable[[], Awaitable[None]] | None = None
) -> Any:
    """Call a function: a plain one in a thread, so that it does not block the loop."""
    if _is_async(function):
        return await function()
    value = await run_in_thread(function)
    if on_thread_ended is not None:
        await on_thread_ended()
    return await value if inspect.isawaitable(value) else value


async def _without_exit(calling: Coroutine[Any, Any, Any]) -> Any:
    """Await a call. A `SystemExit` of one step would end the event loop, and with it all other tasks."""
    try:
        return await calling
    except SystemExit as error:
        message = f"the function of a step raised SystemExit({error.code!r})"
        raise RuntimeError(message) from error


def _is_async(function: Callable[[], Any]) -> bool:
    return inspect.iscoroutinefunction(unwrapped(function))


async def _finished(execution: StepExecution, value: Any) -> Any:
    try:
        ending = execution.finish(value)
    except ArgumentsError as error:
        await _written(execution.fail(error, has_started=False))
        raise
    return execution.result(value, await answered(ending))


async def _written(ending: Future[EndedStep]) -> None:
    """Wait until an end is recorded. If it cannot be, the step stays open, and is in doubt."""
    with contextlib.suppress(StoreError):
        await answered(ending)


def _finished_sync(execution: StepExecution, value: Any) -> Any:
    try:
        ending = execution.finish(value)
    except ArgumentsError as error:
        with contextlib.suppress(StoreError):
            execution.fail(error, has_started=False).result()
        raise
    return execution.result(value, ending.result())


def _reconciled(done: object) -> Any:
    if not isinstance(done, StepDone):
        raise ArgumentsError(
            f"the in_doubt function of a step returned a {type(done).__name__}",
            fix="return StepDone(result) if the step was done, and None if it was not",
        )
    return done.result


def _not_plain(option: str) -> ArgumentsError:
    return ArgumentsError(
        f"ctx.step_sync: {option} returned an awaitable",
        fix="pass a plain function, or use `await ctx.step(…)`",
    )


def _close(value: Any) -> None:
    close = getattr(value, "close", None)
    if close is not None:
        close()
