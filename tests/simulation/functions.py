"""The task functions of a run. What a function does in each run is one line of its script (see `harness.scripts`)."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from checker import digest_of
from harness.relations import WaitNote, child_key
from harness.scripts import run_line
from harness.steps import CallNote
from simulation.machine import Machine, current_machine
from simulation.user_code_faults import break_function, broken_classifier
from tidegate.app import Tidegate
from tidegate.application.core import Core
from tidegate.context import Context
from tidegate.domain.final_hook import hook_task_id
from tidegate.domain.map_end import MapEnd
from tidegate.domain.spec import Exponential
from tidegate.errors import StoreError
from tidegate.handle import Handle
from tidegate.internals import core_of
from tidegate.operations.task_watcher import TaskWatcher
from tidegate.store.protocol import Store
from tidegate.task import TaskFunction
from tidegate.task_settings import discard, on
from tidegate.testing.virtual_time import EPOCH
from tidegate.worker.settings import Pool, Timings

BROKEN_FUNCTION = "sim:broken"
"""The function whose settings fail."""
MAPPED_FUNCTION = "sim:mapped"
"""The function that follows maps."""


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
    app.task(name=MAPPED_FUNCTION, **usual)(_follow_map)
    break_function(app.function(BROKEN_FUNCTION))
    app.classifier(broken_classifier)
    return app


async def _follow_map(context: Context, end: MapEnd) -> list[int]:
    """Run after a map whose items are all final."""
    return await _run_script(context, end.items, ["ok 0.1"])


class _Host:
    """What a machine does for the scripts of its tasks."""

    def __init__(self, machine: Machine) -> None:
        assert machine.store is not None
        self._store = machine.store
        self._event_log = machine.event_log

    async def opened_store(self) -> Store:
        """Return the store, for handles."""
        return self._store

    def task_watcher(self, store: Store) -> TaskWatcher:
        """Return a watcher of tasks, for handles."""
        return TaskWatcher(store)

    def note_call(self, note: CallNote) -> None:
        """Take a note of a call of a step."""
        self._event_log.record_call(note)

    def note_wait(self, note: WaitNote) -> None:
        """Take a note of what a wait returned."""
        self._event_log.record_wait(note)

    async def enqueue_children(self, context: Context, count: int) -> list[Handle[list[int]]]:
        """Enqueue the children of a task. Each run gives them other ids; their keys make them the same."""
        function = task_functions()["sim:steady"]
        tasks = [
            replace(
                function.using(key=child_key(context.task_id, number)).prepare(number, ["ok 0.5"]).new_task,
                id=hook_task_id(context.task_id, context.run, str(number), EPOCH),
            )
            for number in range(count)
        ]
        while True:
            try:
                answers = await self._store.enqueue(tasks)
            except StoreError:
                await asyncio.sleep(0.5)
            else:
                return [Handle(answer.task_id, self, function.signature.load_result) for answer in answers]


async def _run_script(context: Context, number: int, script: list[str]) -> list[int]:
    """Do this run's line of the script, and write down that it was done."""
    machine = current_machine()
    assert machine is not None
    machine.event_log.record_note("start", machine.name, context)
    try:
        await run_line(context, script, _Host(machine))
    except BaseException as error:
        machine.event_log.record_note("end", machine.name, context, error=type(error).__name__)
        raise
    result = [number, context.run]
    encoded = task_functions()["sim:steady"].signature.encode_result(result).data
    machine.event_log.record_note("end", machine.name, context, digest=digest_of(encoded))
    return result
