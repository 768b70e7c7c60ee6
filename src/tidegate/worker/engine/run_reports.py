"""Reports what happens to runs: as log lines, and as events to their subscribers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from tidegate.calls.alerts import ParkAlerts
from tidegate.calls.upstream import Upstream
from tidegate.context.trace import current_span
from tidegate.domain.outcome import Dead, Outcome, Retrying, Succeeded
from tidegate.domain.trace import trace_id_of
from tidegate.events import EventBus, RunFinished, RunStarted, TaskDied, WorkerStarted, WorkerStopped
from tidegate.store.rows import ClaimedTask
from tidegate.worker import report
from tidegate.worker.engine.run_events import run_finished, run_started, task_died
from tidegate.worker.engine.run_log import RunLog
from tidegate.worker.engine.task_run import TaskRun
from tidegate.worker.settings import Pool


class RunReports:
    """Reports the runs of one engine.

    Args:
        loop: The event loop of the runs.
        events: Passes events to their subscribers.
        worker_id: The worker that runs them.
        pool: The pool that it serves.
        upstreams: The upstreams of the application, by name.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        events: EventBus,
        worker_id: str,
        pool: Pool,
        upstreams: Mapping[str, Upstream],
    ) -> None:
        self._events = events
        self._worker_id = worker_id
        self._pool = pool
        self._upstreams = upstreams
        self._alerts = ParkAlerts(time.monotonic)
        self._log = RunLog(loop)

    def worker_started(self) -> None:
        """Report that the worker claims tasks from now on."""
        pool = self._pool
        self._events.emit(
            WorkerStarted(worker_id=self._worker_id, pool=pool.name, queues=pool.queues, slots=pool.slots)
        )

    def worker_stopped(self) -> None:
        """Report that the worker has stopped, and log the runs that are not logged yet."""
        self._log.flush()
        pool = self._pool
        self._events.emit(
            WorkerStopped(worker_id=self._worker_id, pool=pool.name, queues=pool.queues, slots=pool.slots)
        )

    def function_starts(self, task_run: TaskRun) -> None:
        """Report that a function starts now. Called in the context in which it runs."""
        if self._events.wants(RunStarted):
            self._events.emit(run_started(task_run.claimed, task_run.max_attempts, self._worker_id))
        task_run.span = current_span()

    def run_finished(self, task_run: TaskRun, outcome: Outcome | None, seconds: float) -> None:
        """Report the outcome of a run; None if its lease was lost."""
        claimed = task_run.claimed
        if outcome is None:
            self._emit_finished(claimed, task_run.max_attempts, outcome, seconds)
            return
        trace_id = trace_id_of(claimed.labels) if task_run.span is None else task_run.span.trace_id
        if isinstance(outcome, Succeeded):
            self._log.add(claimed, seconds, trace_id)
        else:
            report.run_finished(claimed, outcome, seconds, trace_id)
        self._emit_finished(claimed, task_run.max_attempts, outcome, seconds)
        if claimed.upstream:
            self._report_park(claimed.upstream, outcome)

    def run_unstartable(self, claimed: ClaimedTask, outcome: Outcome) -> None:
        """Report the outcome of a run that could not start, because an option of its function is broken."""
        report.run_finished(claimed, outcome)
        self._emit_finished(claimed, claimed.max_attempts or 0, outcome, 0.0)

    def _emit_finished(
        self, claimed: ClaimedTask, max_attempts: int, outcome: Outcome | None, seconds: float
    ) -> None:
        """Pass the end of a run to the subscribers."""
        if self._events.wants(RunFinished):
            self._events.emit(run_finished(claimed, max_attempts, self._worker_id, outcome, seconds))
        if isinstance(outcome, Dead) and self._events.wants(TaskDied):
            self._events.emit(task_died(claimed, max_attempts, self._worker_id, outcome))

    def _report_park(self, name: str, outcome: Outcome) -> None:
        upstream = self._upstreams.get(name)
        if upstream is not None and upstream.keys is not None:
            return  # the call itself has logged which key was refused
        call_failure = outcome.call_failure if isinstance(outcome, Retrying | Dead) else None
        if call_failure is None:
            if isinstance(outcome, Succeeded):
                self._alerts.forget(name)
        elif (
            call_failure.needs_person
            and not call_failure.is_reported
            and self._alerts.is_due(name, str(call_failure.reason))
        ):
            report.upstream_parked(name, call_failure)
