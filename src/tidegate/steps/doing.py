"""Does a step, on the event loop or in a plain function: begins it, calls its function, records the end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tidegate.domain.failure import CAPACITY_REASONS, Verdict
from tidegate.domain.step import OnDoubt
from tidegate.errors import ArgumentsError, StoreError
from tidegate.policy.classify import classify
from tidegate.steps.current import CurrentStep, enter_step
from tidegate.steps.execution import StepExecution, unwrapped
from tidegate.steps.options import StepDone, StepOptions
from tidegate.steps.run_steps import RunSteps
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between two tries of a step in one run. A longer wait is left to the task, which then holds no slot."""


async def do_step(
    execution: StepExecution, steps: RunSteps, function: Callable[[], Any], options: StepOptions
) -> Any:
    """Do a step on the event loop, and return its result.

    Raises:
        StepLost: The run is no longer the task's current one.
        Exception: What the function raised, or what `StepExecution.answer` raises.
    """
    loading = steps.load()
    if loading is not None:
        steps.take(await asyncio.shield(asyncio.wrap_future(loading)))
    if (found := execution.recorded()) is not None:
        return found.value
    while (under_way := steps.enter(execution.key)) is not None:
        await asyncio.shield(asyncio.wrap_future(under_way))
    try:
        return await _do(execution, function, options)
    finally:
        steps.leave(execution.key)


async def _do(execution: StepExecution, function: Callable[[], Any], options: StepOptions) -> Any:
    for retries_left in range(options.retries, -1, -1):
        begun = await _begun(execution)
        if begun.status is BeginStatus.IN_DOUBT and options.reconcile is not None:
            done = options.reconcile(execution.current.idempotency_key)
            if inspect.isawaitable(done):
                done = await done
            if done is not None:
                return await _finished(execution, _reconciled(done))
            begun = await _begun(execution, OnDoubt.REPEAT)
        if (found := execution.answer(begun)) is not None:
            return found.value
        try:
            async with asyncio.timeout(options.timeout_seconds):
                value = await _called(function, execution.current)
        except BaseException as error:
            await _written(execution.fail(error))
            if (
                retries_left == 0
                or (pause := pause_before_retry(error, options.retries - retries_left)) is None
            ):
                raise
            await asyncio.sleep(pause)
            continue
        return await _finished(execution, value)
    raise AssertionError  # the last round returns or raises


def do_step_sync(
    execution: StepExecution, steps: RunSteps, function: Callable[[], Any], options: StepOptions
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
        return _do_sync(execution, function, options)
    finally:
        steps.leave(execution.key)


def _do_sync(execution: StepExecution, function: Callable[[], Any], options: StepOptions) -> Any:
    for retries_left in range(options.retries, -1, -1):
        begun = execution.begin().result()
        if begun.status is BeginStatus.IN_DOUBT and options.reconcile is not None:
            done = options.reconcile(execution.current.idempotency_key)
            if inspect.isawaitable(done):
                _close(done)
                raise _not_plain("in_doubt")
            if done is not None:
                return _finished_sync(execution, _reconciled(done))
            begun = execution.begin(OnDoubt.REPEAT).result()
        if (found := execution.answer(begun)) is not None:
            return found.value
        context = contextvars.copy_context()
        context.run(enter_step, execution.current)
        try:
            value = context.run(function)
            if inspect.isawaitable(value):
                _close(value)
                raise _not_plain("fn")
        except BaseException as error:
            with contextlib.suppress(StoreError):
                execution.fail(error).result()
            if (
                retries_left == 0
                or (pause := pause_before_retry(error, options.retries - retries_left)) is None
            ):
                raise
            time.sleep(pause)
            continue
        return _finished_sync(execution, value)
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


async def _begun(execution: StepExecution, on_doubt: OnDoubt | None = None) -> BegunStep:
    """Begin a step. If this is cut off, the step is recorded as not done: its function was not called."""
    beginning = asyncio.wrap_future(execution.begin(on_doubt))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError as error:
        execution.fail(error, has_started=False)
        raise


async def _called(function: Callable[[], Any], current: CurrentStep) -> Any:
    """Call a step's function: a plain one in a thread, so that it does not block the loop."""
    context = contextvars.copy_context()
    context.run(enter_step, current)
    if inspect.iscoroutinefunction(unwrapped(function)):
        return await asyncio.get_running_loop().create_task(function(), context=context)
    value = await asyncio.get_running_loop().create_task(_in_thread(function), context=context)
    if not inspect.isawaitable(value):
        return value
    return await asyncio.get_running_loop().create_task(_awaited(value), context=context)


async def _in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)


async def _awaited(value: Any) -> Any:
    return await value


async def _finished(execution: StepExecution, value: Any) -> Any:
    try:
        ending = execution.finish(value)
    except ArgumentsError as error:
        await _written(execution.fail(error, has_started=False))
        raise
    return execution.result(value, await asyncio.shield(asyncio.wrap_future(ending)))


async def _written(ending: Future[EndedStep]) -> None:
    """Wait until an end is recorded. If it cannot be, the step stays open, and is in doubt."""
    with contextlib.suppress(StoreError, asyncio.CancelledError):
        await asyncio.shield(asyncio.wrap_future(ending))


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
