"""One run of one task in this process, from claim to outcome."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NamedTuple

from tidegate.context import Context, RunControl
from tidegate.domain.calls import CallSummary
from tidegate.domain.spec import RunsIn, TaskSpec
from tidegate.domain.task_limits import TimeLeft
from tidegate.domain.trace import TraceContext
from tidegate.policy.retry import RetryTerms
from tidegate.store.rows import ClaimedTask
from tidegate.worker.application import Runnable
from tidegate.worker.children.process import ChildProcess
from tidegate.worker.engine.fallback_outcome import is_duration

_context_lock = threading.Lock()
"""The lock held while a context is made: a function may ask for its context in several threads."""


class RunOptions(NamedTuple):
    """The checked options of a function that apply to each of its runs."""

    spec: TaskSpec
    timeout: float
    total_timeout: float
    cancel_grace: float | None
    crash_limit: int

    @classmethod
    def of(cls, spec: TaskSpec) -> RunOptions:
        """Return the options of a function.

        Raises:
            ValueError: A time limit is not a number, so a run could never be stopped.
            TypeError: `max_attempts` is not a number.
        """
        return cls(
            spec,
            _seconds("timeout", spec.timeout),
            _seconds("total_timeout", spec.total_timeout),
            None if spec.cancel_grace is None else _seconds("cancel_grace", spec.cancel_grace),
            spec.crash_limit,
        )


class TaskRun:
    """The state of one run while it lasts. A run is finished exactly once.

    Raises:
        ValueError: A time limit of the task is not a number, so the run could never be stopped.
    """

    __slots__ = (
        "_calls_in_child",
        "_context",
        "_crash_limit",
        "_total_seconds_left",
        "cancel_grace",
        "child",
        "claimed",
        "control",
        "function",
        "has_hit_limit",
        "has_started",
        "is_finished",
        "is_forced",
        "is_job_started",
        "is_killed",
        "job",
        "received_at",
        "runs_in",
        "seconds_left",
        "span",
        "thread",
        "timeout_seconds",
    )

    def __init__(
        self,
        claimed: ClaimedTask,
        function: Runnable,
        control: RunControl,
        runs_in: RunsIn,
        options: RunOptions,
    ) -> None:
        self._context: Context | None = None
        self._calls_in_child: CallSummary | None = None
        self.claimed = claimed
        self.function = function
        self.control = control
        self.job: asyncio.Task[None] | None = None
        self.runs_in = runs_in
        self.child: ChildProcess | None = None
        """The child process in which the function runs now; None if it runs in none."""
        self.thread: asyncio.Future[Any] | None = None
        """The future of the thread in which the function runs; None if it runs in none."""
        self.received_at = control.started_at
        """When this process received the run, by the control's clock; `seconds_left` counts from here."""
        self.is_job_started = False
        """Whether `job` has run its first step. A job that is cancelled before that never finishes the
        run."""
        self.has_started = False
        """Whether the function may have started."""
        self.span: TraceContext | None = None
        """OpenTelemetry's span of the run; None if the run is not traced."""
        self.is_forced = False
        self.is_killed = False
        """Whether the child process was killed because the function did not stop."""
        self.has_hit_limit = False
        self.is_finished = False
        self.timeout_seconds = (
            _seconds("timeout", claimed.timeout_seconds) if claimed.timeout_seconds else options.timeout
        )
        total = options.total_timeout
        if claimed.total_timeout_seconds:
            total = _seconds("total_timeout", claimed.total_timeout_seconds)
        self._total_seconds_left = total - claimed.spent_seconds
        self.seconds_left = self._total_seconds_left
        """Seconds until the first limit of the whole task, from `received_at`."""
        if claimed.deadline_at is not None:
            self.seconds_left = min(self.seconds_left, claimed.deadline_at - claimed.claimed_at)
        self.cancel_grace = options.cancel_grace
        self._crash_limit = options.crash_limit

    @property
    def ends_at(self) -> float:
        """When the first limit of the whole task is over, by the control's clock."""
        return float("inf") if self.control.is_cancelling else self.received_at + self.seconds_left

    @property
    def time_left(self) -> TimeLeft:
        """The time until each limit of the whole task, from `received_at`."""
        claimed = self.claimed
        if claimed.deadline_at is None:
            return TimeLeft(self._total_seconds_left)
        return TimeLeft(self._total_seconds_left, claimed.deadline_at - claimed.claimed_at)

    @property
    def is_suspect(self) -> bool:
        """Whether one more crash makes the task dead.

        Such a task runs alone, so that no other task can be to blame.
        """
        crashes = self.claimed.counters.crashes
        return crashes > 0 and crashes + 1 >= self._crash_limit

    @property
    def max_attempts(self) -> int:
        """The charged attempts that the task may have."""
        return self.claimed.max_attempts or self.function.spec.max_attempts

    def context(self) -> Context:
        """Return the context of the run; always the same object."""
        if self._context is None:
            with _context_lock:
                if self._context is None:
                    self._context = self._new_context()
        return self._context

    def _new_context(self) -> Context:
        claimed = self.claimed
        return Context(
            self.control,
            task_id=claimed.fence.task_id,
            run=claimed.fence.run,
            attempt=claimed.counters.attempts + 1,
            max_attempts=self.max_attempts,
            queue=claimed.queue,
            priority=claimed.priority,
            upstream=claimed.upstream,
            is_probe=claimed.is_probe,
            function=claimed.function,
            tenant=claimed.tenant,
            labels=claimed.labels,
            last_failure=claimed.last_failure,
        )

    def terms(self, now: float) -> RetryTerms:
        """Return the attempts and the time that the task has left.

        Args:
            now: The time by the clock of its control.
        """
        return RetryTerms.of(
            self.function.spec,
            max_attempts=self.claimed.max_attempts,
            time_left=self.time_left.after(now - self.received_at),
            upstream=self.claimed.upstream,
        )

    def record_child_calls(self, calls: CallSummary) -> None:
        """Record the calls that the function made, as its child process reported them."""
        self._calls_in_child = calls

    def calls(self) -> CallSummary:
        """Return the calls of the run so far. The calls of a child process that did not reply are unknown."""
        calls = self._calls_in_child
        if calls is None:
            calls = self.control.calls.summary(self.claimed.upstream)
        if self.claimed.charged is None:
            return calls
        seconds_ago = self.control.clock() - self.received_at
        return calls.with_charge(self.claimed.function, self.claimed.charged, seconds_ago=seconds_ago)

    def may_have_called(self) -> bool:
        """Return whether an upstream may have processed a call of this run.

        A run that used no transport counts as one call of its upstream.
        """
        if not self.has_started:
            return False
        calls = self.calls()
        return calls.may_be_processed or (calls.count == 0 and bool(self.claimed.upstream))

    @property
    def started_at(self) -> float:
        """When the time limits of the run started, by the control's clock.

        If the run waits for a rate-limit slot or a child process, the limits start again after the wait.
        """
        return self.control.started_at

    def load_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, decoded for the current code, with the context if the function takes one.

        Raises:
            ArgumentsError: The arguments do not fit.
        """
        signature = self.function.signature
        args, kwargs = signature.load(self.claimed.args)
        if signature.context is None:
            return args, kwargs
        return signature.with_context(args, kwargs, self.context())


def _seconds(name: str, value: float) -> float:
    if not is_duration(value):
        raise ValueError(f"{name} is {value!r}: use a number of seconds")
    return float(value)
