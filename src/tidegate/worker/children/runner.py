"""Runs a task in a child process and turns the child's reply into an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence

from tidegate.context import RetryRequest, SuspensionRequest
from tidegate.domain.failure import Failure
from tidegate.domain.outcome import Outcome
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.children.messages import (
    FunctionFailed,
    FunctionReturned,
    FunctionSuspended,
    RetryWanted,
    RunReply,
    RunTask,
)
from tidegate.worker.children.pool import ChildDied, ChildPool, NoChildAvailable
from tidegate.worker.children.process import ChildProcess
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.outcome_decider import OutcomeDecider
from tidegate.worker.engine.task_run import TaskRun


class ChildRunner:
    """Runs tasks in child processes.

    Args:
        children: The child processes.
        decider: Decides the outcomes.
        lease: The worker's lease: no function starts while it does not hold.
        fatal_errors: If an error's class or message contains one of these words, its process is replaced.
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
        """Run one task and return its outcome; None if the lease was lost.

        Args:
            task_run: The run.
            on_started: Called once the run has a child process; its time limits count from then.
        """
        spec = task_run.function.spec
        try:
            async with self._children.acquire(
                alone=task_run.is_suspect, memory_limit=spec.memory_limit
            ) as child:
                # the lease may have run out while the child process started
                await self._lease.wait_until_held()
                if task_run.control.stop is not None:
                    return self._decider.on_stop(task_run)
                on_started(task_run)
                task_run.child, task_run.has_started = child, True
                reply = await child.run(_run_message(task_run), task_run.control)
                self._mark_unhealthy_after(child, reply)
                self._pause.reset()
        except ChildDied as died:
            stopped = self._decider.on_stop(task_run)
            if stopped is not None or died.has_started:
                return stopped or self._decider.on_crash(task_run, died.how)
            return self._decider.on_release(
                task_run, f"its child process died before the run began: {died.how}"
            )
        except NoChildAvailable as error:
            pause = self._pause.next()
            report.will_retry("starting a child process", error, pause)
            await asyncio.sleep(pause)
            return self._decider.on_stop(task_run) or self._decider.on_release(task_run, str(error))
        finally:
            task_run.child = None
            with contextlib.suppress(OSError):
                if task_run.control.scratch_path.exists():  # in a thread, because removal may block the loop
                    await asyncio.to_thread(task_run.control.remove_scratch)
        return self._outcome(task_run, reply)

    def _outcome(self, task_run: TaskRun, reply: RunReply) -> Outcome | None:
        if reply.calls is not None:
            task_run.record_child_calls(reply.calls)
        if isinstance(reply, RetryWanted):
            task_run.control.retry = RetryRequest(reply.after_seconds, reply.reason, reply.charge)
            return self._decider.on_retry_request(task_run)
        if isinstance(reply, FunctionSuspended):
            task_run.control.suspension = SuspensionRequest(
                reply.delay_seconds, reply.why, reply.wait_keys, reply.child_ids, reply.cache_waits
            )
        stopped = self._decider.on_suspension(task_run) or self._decider.on_stop(task_run)
        if stopped is not None:
            return stopped
        if isinstance(reply, FunctionReturned):
            return self._decider.on_success(task_run, reply.data)
        if isinstance(reply, FunctionFailed):
            rule = None if reply.rule < 0 else task_run.function.spec.rules[reply.rule]
            return self._decider.from_failure(task_run, reply.failure, rule)
        return None  # stopped because the lease is lost

    def _mark_unhealthy_after(self, child: ChildProcess, reply: RunReply) -> None:
        """Have the child process replaced after a fatal error, such as a broken GPU context."""
        if isinstance(reply, FunctionFailed) and (word := self._fatal_word(reply.failure)):
            child.unhealthy_reason = f"fatal error: {word}"

    def _fatal_word(self, failure: Failure) -> str:
        text = f"{failure.error_class} {failure.message}"
        return next((word for word in self._fatal_errors if word in text), "")


def _run_message(task_run: TaskRun) -> RunTask:
    claimed = task_run.claimed
    context = task_run.context()
    ends_at, span = task_run.control.ends_at, task_run.span
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
        traceparent=span.traceparent if span is not None else "",
        tracestate=span.state if span is not None else "",
        records_steps=task_run.control.step_port is not None,
        store_offset=task_run.control.store_offset,
    )
