"""The task functions of a run. What a function does in each run is one line of its script (see `harness.scripts`)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from checker import digest_of
from harness.scripts import run_line
from simulation.machine import current_machine
from simulation.user_code_faults import break_function, broken_classifier
from tidegate.app import Tidegate
from tidegate.application.core import Core
from tidegate.context import Context
from tidegate.domain.spec import Exponential
from tidegate.internals import core_of
from tidegate.store.protocol import Store
from tidegate.task import TaskFunction
from tidegate.task_settings import discard, on
from tidegate.worker.settings import Pool, Timings

BROKEN_FUNCTION = "sim:broken"
"""The function whose settings fail."""


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
    usual: dict[str, Any] = {
        "timeout": 60,
        "total_timeout": 900,
        "backoff": Exponential(base=1.0, cap=6.0),
    }
    network = on(ConnectionError, wait=1.0, attempts=2)
    for name, options in {
        "sim:steady": usual,
        "sim:once": usual | {"max_attempts": 2, "on_crash": "fail"},
        "sim:ruled": usual
        | {"queue": "batch", "priority": "bulk", "max_attempts": 4, "on_unknown": "dead", "cancel_grace": 1.0}
        | {"retry": [network, discard(KeyError)]},
        "sim:urgent": usual | {"queue": "realtime", "priority": "interactive"},
        BROKEN_FUNCTION: {"timeout": 60, "total_timeout": 900, "max_attempts": 4}
        | {"retry": [on(ConnectionError, attempts=2)]},
    }.items():
        app.task(name=name, **options)(_run_script)
    break_function(app.function(BROKEN_FUNCTION))
    app.classifier(broken_classifier)
    return app


async def _run_script(context: Context, number: int, script: list[str]) -> list[int]:
    """Do this run's line of the script, and write down that it was done."""
    machine = current_machine()
    assert machine is not None
    machine.event_log.record_note("start", machine.name, context)
    try:
        await run_line(context, script, machine.event_log.record_call)
    except BaseException as error:
        machine.event_log.record_note("end", machine.name, context, error=type(error).__name__)
        raise
    result = [number, context.run]
    encoded = task_functions()["sim:steady"].signature.encode_result(result).data
    machine.event_log.record_note("end", machine.name, context, digest=digest_of(encoded))
    return result
