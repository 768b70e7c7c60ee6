"""During a deploy, gives back tasks that the code of this process cannot run but other code may run.

Old and new code work side by side during a rolling restart. Old code may claim a task with new arguments, and
new code a task with old arguments. Such a task goes back to its queue uncharged, with a wait, as long as a
live worker with other code serves its queue. If there is no such worker, the task is dead.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import TypeGuard

from tidegate.domain.outcome import Charge, Dead, Outcome, Retrying
from tidegate.errors import StoreError
from tidegate.store.live_workers import is_live
from tidegate.store.protocol import Store
from tidegate.worker.application import Runnable
from tidegate.worker.engine.outcome_decider import ARGUMENTS_DO_NOT_FIT, FUNCTION_NOT_DECLARED
from tidegate.worker.engine.task_run import TaskRun

log = logging.getLogger("tidegate.worker")

MAX_WAIT_SECONDS = 30.0
MAX_RETURNS = 40
"""A task is given back this many times, in about a quarter of an hour; then it is dead."""


def code_version(functions: Mapping[str, Runnable]) -> str:
    """Return a text that differs if the names or parameters of the task functions differ."""
    declared = sorted((name, _parameters(function)) for name, function in functions.items())
    return hashlib.sha256(json.dumps(declared).encode()).hexdigest()[:16]


def _parameters(function: Runnable) -> str:
    try:
        return function.signature.text
    except Exception:  # annotations are user code; each run of the function fails with this error
        return ""


def may_be_other_code(outcome: Outcome | None) -> TypeGuard[Dead | Retrying]:
    """Whether a run ended because its task does not fit the code that ran it."""
    return isinstance(outcome, Dead | Retrying) and outcome.failure.evidence in {
        ARGUMENTS_DO_NOT_FIT,
        FUNCTION_NOT_DECLARED,
    }


class OtherCode:
    """Finds out whether other code may run a task, and then gives the task back.

    Args:
        store: Has the live workers.
        worker_id: The worker of this process.
        functions: The task functions of this process.
    """

    def __init__(self, store: Store, worker_id: str, functions: Mapping[str, Runnable]) -> None:
        self._store = store
        self._worker_id = worker_id
        self._functions = functions

    async def give_back_or(self, task_run: TaskRun, outcome: Dead | Retrying) -> Outcome:
        """Return the outcome that gives the task back, or the given one if no other code may run it."""
        claimed, returns = task_run.claimed, task_run.claimed.counters.releases
        if returns >= MAX_RETURNS or not (where := await self._other_code(task_run, outcome)):
            return outcome
        wait = min(MAX_WAIT_SECONDS, 2.0**returns)
        why = f"{outcome.failure.evidence} in this version of the code; {where}; again in {wait:g} s"
        log.warning(
            "given back: %s %s, run %d: %s: %s",
            claimed.function,
            *claimed.fence,
            why,
            outcome.failure.message[:200],
            extra={"task_id": claimed.fence.task_id, "run": claimed.fence.run, "queue": claimed.queue},
        )
        return Retrying(claimed.fence, outcome.failure, wait, Charge.RELEASE, 0.0, why, is_free=True)

    async def _other_code(self, task_run: TaskRun, outcome: Dead | Retrying) -> str:
        """Return where other code is, as text; empty if there is none."""
        if outcome.failure.evidence == FUNCTION_NOT_DECLARED or _fits(task_run):
            return "its child process has loaded other code than the worker: reload the worker"
        own = code_version(self._functions)
        try:
            now, workers = await self._store.now(), await self._store.list_workers()
        except StoreError as error:  # the task must not die because the store could not be read
            return f"whether a live worker runs another is not known ({error})"
        for worker in workers:
            serves = "*" in worker.queues or task_run.claimed.queue in worker.queues
            if worker.id != self._worker_id and worker.code != own and serves and is_live(worker, now):
                return f"worker {worker.name} ({worker.host}:{worker.pid}) runs another version"
        return ""


def _fits(task_run: TaskRun) -> bool:
    """Whether the arguments fit the code of this process. If they fit, other code has refused them."""
    try:
        task_run.load_arguments()
    except Exception:  # decoders are user code
        return False
    return True
