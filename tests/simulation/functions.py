"""The task functions of a run. What a function does in each run is one line of its script (see `scripts`)."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any

from checker import digest_of
from simulation.machine import current_machine
from simulation.user_code_faults import break_function, broken_classifier
from tidegate.app import Tidegate
from tidegate.context import Context
from tidegate.core import Core
from tidegate.domain.spec import Exponential
from tidegate.internals import core_of
from tidegate.store.protocol import Store
from tidegate.task import TaskFunction
from tidegate.task_settings import discard, on
from tidegate.verdicts import Permanent, RetryAfter, Transient
from tidegate.worker.settings import Pool, Timings

_PROGRESS_STEPS = 3
_LONG = 10_000.0

Action = Callable[[Context, float], Awaitable[None]]


class MeaninglessError(Exception):
    """An error that no rule classifies."""


def task_functions() -> Mapping[str, TaskFunction[Any, Any, Any]]:
    """Return the functions all machines know, by name."""
    return core_of(_declared()).functions


def application(store: Store, pool: Pool, timings: Timings) -> Core:
    """Return the internals of the application as one machine sees them."""
    core = copy.copy(core_of(_declared()))
    core.store, core.pools, core.timings = store, (pool,), timings
    return core


@cache
def _declared() -> Tidegate:
    """Return the application that declares the functions, one per process: they have no state."""
    app = Tidegate("sqlite:///never-opened.db", pools=[Pool("simulated")])
    backoff = Exponential(base=1.0, cap=6.0)
    app.task(name="sim:steady", timeout=60, total_timeout=900, backoff=backoff)(_run_script)
    app.task(
        name="sim:once", timeout=60, total_timeout=900, backoff=backoff, max_attempts=2, on_crash="fail"
    )(_run_script)
    app.task(
        name="sim:ruled",
        queue="batch",
        priority="bulk",
        timeout=60,
        total_timeout=900,
        backoff=backoff,
        max_attempts=4,
        retry=[on(ConnectionError, wait=1.0, attempts=2), discard(KeyError)],
        on_unknown="dead",
        cancel_grace=1.0,
    )(_run_script)
    app.task(
        name="sim:urgent",
        queue="realtime",
        priority="interactive",
        timeout=60,
        total_timeout=900,
        backoff=backoff,
    )(_run_script)
    app.task(
        name="sim:broken",
        timeout=60,
        total_timeout=900,
        max_attempts=4,
        retry=[on(ConnectionError, attempts=2)],
    )(_run_script)
    break_function(app.function("sim:broken"))
    app.classifier(broken_classifier)
    return app


async def _run_script(context: Context, number: int, script: list[str]) -> list[int]:
    """Do this run's line of the script, and write down that it was done."""
    machine = current_machine()
    assert machine is not None
    machine.event_log.record_start(machine.name, context)
    word, _, seconds = script[min(context.run, len(script)) - 1].partition(" ")
    try:
        await _ACTIONS[word](context, float(seconds or 0))
    except BaseException as error:
        machine.event_log.record_end(machine.name, context, error=type(error).__name__)
        raise
    result = [number, context.run]
    encoded = task_functions()["sim:steady"].signature.encode_result(result).data
    machine.event_log.record_end(machine.name, context, digest=digest_of(encoded))
    return result


async def _ok(_: Context, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _progress(context: Context, seconds: float) -> None:
    for part in range(_PROGRESS_STEPS):
        context.progress(part, _PROGRESS_STEPS, "on the way")
        await asyncio.sleep(seconds / _PROGRESS_STEPS)
    context.progress(_PROGRESS_STEPS, _PROGRESS_STEPS)


async def _wait(_: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    raise RetryAfter(seconds)


async def _overrun(_: Context, __: float) -> None:
    await asyncio.sleep(_LONG)


async def _swallow(_: Context, seconds: float) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(_LONG)
    await asyncio.sleep(seconds)


async def _again(context: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    context.retry(after=seconds, reason="the script says so")


async def _free(context: Context, seconds: float) -> None:
    await asyncio.sleep(0.05)
    context.retry(after=seconds, reason="the script says so", charge=False)


def _raising(error: Callable[[], Exception]) -> Action:
    async def action(_: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)
        raise error()

    return action


_ACTIONS: Mapping[str, Action] = {
    "ok": _ok,
    "progress": _progress,
    "transient": _raising(lambda: Transient("by the script")),
    "permanent": _raising(lambda: Permanent("by the script")),
    "unknown": _raising(lambda: MeaninglessError("by the script")),
    "forbidden": _raising(lambda: KeyError("by the script")),
    "network": _raising(lambda: ConnectionError("by the script")),
    "wait": _wait,
    "overrun": _overrun,
    "swallow": _swallow,
    "again": _again,
    "free": _free,
}
