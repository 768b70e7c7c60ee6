"""Runs an attempt in a child slot and turns what the slot says into its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from tidegate.context import RetryRequest
from tidegate.domain.failure import Failure
from tidegate.domain.outcome import Outcome
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.children.messages import FunctionFailed, FunctionReturned, RetryWanted, RunReply, RunTask
from tidegate.worker.children.pool import ChildDied, ChildPool, NoChildAvailable
from tidegate.worker.children.process import ChildProcess
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.outcome_decider import OutcomeDecider
from tidegate.worker.engine.task_run import TaskRun


class ChildRunner:
    """Runs attempts in slots.

    Args:
        slots: Where from.
        decider: Decides the outcomes.
        lease: While it does not hold, no body begins.
        fatal_errors: Words in an error's class or message after which its process is replaced.
    """

    def __init__(
        self, children: ChildPool, decider: OutcomeDecider, lease: Lease, fatal_errors: Sequence[str]
    ) -> None:
        self._children = children
        self._decider = decider
        self._lease = lease
        self._fatal_errors = fatal_errors
        self._pause = BackoffDelay(random.Random(), first=1.0, cap=30.0)

    async def execute(self, task_run: TaskRun, on_started: Callable[[TaskRun], None]) -> Outcome | None:
        """Run one attempt to its outcome.

        Args:
            task_run: What to run.
            on_started: Called when a child process is there, from when on the time limits count.
        """
        spec = task_run.function.spec
        try:
            async with self._children.acquire(
                alone=task_run.is_suspect, memory_limit=spec.memory_limit
            ) as child:
                await self._lease.wait_until_held()  # it may have run out while a slot was started
                if task_run.control.stop is not None:
                    return self._decider.on_stop(task_run)
                on_started(task_run)
                task_run.child, task_run.has_started = child, True
                answer = await child.run(_run_message(task_run), task_run.control)
                self._mark_unhealthy_after(child, answer)
                self._pause.reset()
        except ChildDied as died:
            stopped = self._decider.on_stop(task_run)
            if stopped is not None or died.has_started:
                return stopped or self._decider.on_crash(task_run, died.how)
            return self._decider.on_release(
                task_run, f"its child process had died before it began: {died.how}"
            )
        except NoChildAvailable as error:
            pause = self._pause.next()
            report.will_retry("starting a child process", error, pause)
            await asyncio.sleep(pause)
            return self._decider.on_stop(task_run) or self._decider.on_release(task_run, str(error))
        finally:
            task_run.child = None
            with contextlib.suppress(OSError):
                if task_run.control.scratch_path.exists():  # it may be large, and others need the loop
                    await asyncio.to_thread(task_run.control.remove_scratch)
        return self._outcome(task_run, answer)

    def _outcome(self, task_run: TaskRun, answer: RunReply) -> Outcome | None:
        if answer.calls is not None:
            task_run.record_child_calls(answer.calls)
        if isinstance(answer, RetryWanted):
            task_run.control.retry = RetryRequest(answer.after_seconds, answer.reason, answer.charge)
            return self._decider.on_retry_request(task_run)
        stopped = self._decider.on_stop(task_run)
        if stopped is not None:
            return stopped
        if isinstance(answer, FunctionReturned):
            return self._decider.on_success(task_run, answer.data)
        if isinstance(answer, FunctionFailed):
            rule = None if answer.rule < 0 else task_run.function.spec.rules[answer.rule]
            return self._decider.from_failure(task_run, answer.failure, rule)
        return None  # halted because the lease is lost

    def _mark_unhealthy_after(self, child: ChildProcess, answer: RunReply) -> None:
        """Have the slot replaced after an error that leaves a process unusable."""
        if isinstance(answer, FunctionFailed) and (word := self._fatal_word(answer.failure)):
            child.unhealthy_reason = f"fatal error: {word}"

    def _fatal_word(self, failure: Failure) -> str:
        text = f"{failure.error_class} {failure.message}"
        return next((word for word in self._fatal_errors if word in text), "")


def _run_message(task_run: TaskRun) -> RunTask:
    claimed = task_run.claimed
    context = task_run.context()
    ends_at = task_run.control.ends_at
    return RunTask(
        function=claimed.function,
        task_id=claimed.fence.task_id,
        run=claimed.fence.run,
        attempt=context.attempt,
        max_attempts=context.max_attempts,
        queue=claimed.queue,
        priority=claimed.priority,
        upstream=claimed.upstream,
        is_probe=claimed.is_probe,
        tenant=claimed.tenant,
        labels=dict(claimed.labels),
        last_failure=claimed.last_failure,
        args=claimed.args,
        scratch_root=str(task_run.control.scratch_root),
        ends_at=None if ends_at == float("inf") else ends_at,
    )
