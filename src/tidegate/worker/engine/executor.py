"""Runs claimed tasks from start to outcome.

Each run gets exactly one outcome, even if its function misbehaves.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tidegate.context import RunControl, StopReason, TaskStopped, set_current_context
from tidegate.domain.outcome import Fence, Outcome
from tidegate.domain.provider_job import CANCELLING_LABEL
from tidegate.domain.spec import RunsIn
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.policy import retry
from tidegate.store.rows import ClaimedTask
from tidegate.threads.daemon_threads import DaemonThreadPool, FunctionRaised
from tidegate.worker import report
from tidegate.worker.application import Runnable
from tidegate.worker.children.runner import ChildRunner
from tidegate.worker.engine.current_task import CurrentTaskSlot, TrackedCoroutine, encode_fence
from tidegate.worker.engine.lease import Lease
from tidegate.worker.engine.other_code import OtherCode, may_be_other_code
from tidegate.worker.engine.outcome_decider import OutcomeDecider, bad_arguments_outcome
from tidegate.worker.engine.return_value import UnusableResult, await_value, close_unawaited, is_result
from tidegate.worker.engine.steps_in_flight import wait_for_steps
from tidegate.worker.engine.task_run import RunOptions, TaskRun
from tidegate.worker.engine.time_limits import TimeLimits

MAX_STARTED_PER_TURN = 32
"""At most this many runs start per turn of the event loop, so that other work also gets time."""

KILLED_SECONDS = 5.0
"""How long to wait until a killed child process is gone. The kernel may be unable to end it, for example
while a network file system hangs. The run of that process is closed anyway."""

OnFinished = Callable[[TaskRun, Outcome | None], None]
"""A callback for each run and its outcome. The outcome is None if the lease was lost and nothing may be
written."""


class Executor:
    """Runs tasks: coroutines on the event loop, plain functions in child processes or threads.

    Args:
        functions: The task functions by name.
        scratch_root: The parent of the runs' scratch directories.
        stop_grace: Seconds that a function may continue after it was asked to stop.
        on_function_starts: Called when a function starts, in the `contextvars` context of its run.
        on_finished: Called with each run and its outcome.
        decider: Decides the outcomes.
        lease: The worker's lease. While it does not hold, functions wait to start; those that already run go
            on.
        child_runner: Runs functions in child processes; None without them, as in an embedded worker.
        current_task: Shows the supervisor which task runs on the event loop; None without a supervisor.
        on_unhealthy: Called after the run of a coroutine that does not stop was closed. The coroutine may
            resume at any time.
        other_code: Gives back tasks that other code may run; None gives back no task.
    """

    def __init__(
        self,
        *,
        functions: Mapping[str, Runnable],
        scratch_root: Path,
        stop_grace: float,
        on_function_starts: Callable[[TaskRun], None] = lambda _: None,
        on_finished: OnFinished,
        decider: OutcomeDecider,
        lease: Lease,
        child_runner: ChildRunner | None = None,
        current_task: CurrentTaskSlot | None = None,
        on_unhealthy: Callable[[], None] = lambda: None,
        other_code: OtherCode | None = None,
    ) -> None:
        self._functions = functions
        self._options: dict[str, RunOptions] = {}
        """The options of each function's runs, checked once."""
        self._scratch_root = scratch_root
        self._stop_grace = stop_grace
        self._on_function_starts = on_function_starts
        self._on_finished = on_finished
        self._decider = decider
        self._lease = lease
        self._child_runner = child_runner
        self._current_task = current_task
        self._on_unhealthy = on_unhealthy
        self._other_code = other_code
        self.base_context = contextvars.Context()
        """The context that each run starts with a copy of. This context contains nothing of the worker's
        caller or of other runs."""
        self._threads = DaemonThreadPool("tidegate-function")
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._stuck_threads: set[asyncio.Future[Any]] = set()
        """Threads that did not stop and whose run was closed. Each thread keeps its slot until it returns."""
        self._abandoned_tasks: set[asyncio.Future[Any]] = set()
        """Coroutines that did not stop; referenced so that they are not garbage-collected while running."""
        self._not_started: deque[TaskRun] = deque()
        """Runs that have no asyncio task yet."""
        self.killed = 0
        """Child processes that had to be killed because their function did not stop."""
        self.running: dict[Fence, TaskRun] = {}
        self._limits = TimeLimits(self.running, self._on_time_limit)

    @property
    def busy(self) -> int:
        """The number of slots in use."""
        return len(self.running) + len(self._stuck_threads)

    @property
    def not_started(self) -> int:
        """Runs that wait to start: `MAX_STARTED_PER_TURN` of them start in each turn of the loop."""
        return len(self._not_started)

    def start(self, claimed: ClaimedTask) -> TaskRun:
        """Start to run one claimed task. Returns at once."""
        fence, now = claimed.fence, self._clock()
        control = RunControl(self._scratch_root, f"{fence.task_id}-{fence.run}", self._clock, started_at=now)
        control.is_cancelling = CANCELLING_LABEL in claimed.labels
        function = self._functions[claimed.function]
        control.records_calls = function.spec.record_calls
        options = self._options.get(claimed.function)
        if options is None or options.spec is not function.spec:
            options = self._options[claimed.function] = RunOptions.of(function.spec)
        task_run = TaskRun(claimed, function, control, self._choose_runs_in(function), options)
        if task_run.is_suspect and self._child_runner is not None:
            task_run.runs_in = RunsIn.PROCESS
        self.running[fence] = task_run
        if task_run.runs_in is not RunsIn.PROCESS:
            self._limit_time(task_run, now)
        if not self._not_started:
            self._loop.call_soon(self._start_waiting_runs)
        self._not_started.append(task_run)
        return task_run

    def stop(self, task_run: TaskRun, why: StopReason) -> None:
        """Ask a function to stop. The first reason counts, but a lost lease overrides any other."""
        control = task_run.control
        if control.is_cancelling and why is StopReason.CANCEL and not task_run.is_forced:
            return  # that is what it does
        if control.stop is StopReason.CANCEL and why is StopReason.RELEASE:
            self.force(task_run)  # a function may delay a cancel until its time limit, but not a shutdown
        if task_run.is_finished or (control.stop is not None and why is not StopReason.LOST):
            return
        control.stop = why
        if task_run.job is None:  # the run has not started, and need not start any more
            self._finish(task_run, self._decider.on_stop(task_run))
            return
        if task_run.child is not None:
            task_run.child.request_stop(why)
        elif task_run.runs_in is not RunsIn.THREAD and task_run.is_job_started:
            task_run.job.cancel()
        grace = self._stop_grace if why is not StopReason.CANCEL else task_run.cancel_grace
        if grace is not None:  # otherwise the function may go on until its time limit
            self._loop.call_later(grace, self._force_end, task_run)

    def force(self, task_run: TaskRun) -> None:
        """Cancel a task by force: if its function has not stopped after the grace time, its run is closed."""
        is_first, task_run.is_forced = not task_run.is_forced, True
        self.stop(task_run, StopReason.CANCEL)
        if is_first:
            self._loop.call_later(self._stop_grace, self._force_end, task_run)

    def close(self) -> None:
        """End idle threads and the timer."""
        self._threads.close()
        self._limits.close()

    # --- one run, from start to outcome ------------------------------------------------------------------

    def _start_waiting_runs(self) -> None:
        for _ in range(min(MAX_STARTED_PER_TURN, len(self._not_started))):
            task_run = self._not_started.popleft()
            if not task_run.is_finished:
                self._start_run(task_run)
        if self._not_started:
            self._loop.call_soon(self._start_waiting_runs)

    def _start_run(self, task_run: TaskRun) -> None:
        fence = task_run.claimed.fence
        run = self._run(task_run)
        task_run.job = self._loop.create_task(
            run
            if self._current_task is None
            else TrackedCoroutine(run, self._current_task, encode_fence(fence)),
            name=f"tidegate {task_run.claimed.function} {fence.task_id}",
            context=self.base_context.copy(),
        )

    async def _run(self, task_run: TaskRun) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._execute(task_run)
            if self._other_code is not None and may_be_other_code(outcome):
                outcome = await self._other_code.give_back_or(task_run, outcome)
        except asyncio.CancelledError:
            outcome = self._decider.on_exception(
                task_run, asyncio.CancelledError("cancelled by its own code")
            )
        except BaseException as error:  # from signatures and decoders
            outcome = self._decider.on_exception(task_run, error)
        try:
            if task_run.control.scratch_used:  # in a thread, because removal may block the loop
                await asyncio.to_thread(task_run.control.remove_scratch)
        finally:
            self._finish(task_run, self._decider.of_cancelling(task_run, outcome))

    async def _execute(self, task_run: TaskRun) -> Outcome | None:
        task_run.is_job_started = True
        if task_run.control.stop is not None:
            return self._decider.on_stop(task_run)
        if (ended := self._ended_before_start(task_run)) is not None:
            return ended
        if task_run.claimed.wait_seconds > 0:
            await self._wait_for_rate_limit_slot(task_run)
        if task_run.runs_in is RunsIn.PROCESS and self._child_runner is not None:
            return await self._child_runner.execute(task_run, self._start_in_child)
        if not self._lease.is_held():
            await self._lease.wait_until_held()
            if task_run.control.stop is not None:
                return self._decider.on_stop(task_run)
        try:
            args, kwargs = task_run.load_arguments()
        except (ArgumentsError, ConfigError) as error:
            return bad_arguments_outcome(task_run, error)
        try:
            value = await self._call_function(task_run, args, kwargs)
            if not is_result(value):
                value = await self._await_returned(task_run, value)
        except UnusableResult as refused:
            return self._decider.on_unusable_result(task_run, refused)
        except BaseException as raised:  # a function may raise anything, not only an Exception
            await wait_for_steps(task_run.control)
            return self._decider.on_exception(
                task_run, raised.error if isinstance(raised, FunctionRaised) else raised
            )
        return self._decider.on_return(task_run, value)

    def _ended_before_start(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome of a task that has no time or attempt left; None if it has both."""
        if task_run.control.is_cancelling:
            return None
        if task_run.seconds_left <= 0:
            return retry.expired(task_run.claimed.fence, task_run.time_left.first)
        if task_run.claimed.counters.interruptions:
            return self._decider.on_attempts_exhausted(task_run)
        return None

    async def _wait_for_rate_limit_slot(self, task_run: TaskRun) -> None:
        """Wait until the start of the rate-limit slot that the claim reserved for this run."""
        wait = task_run.started_at + task_run.claimed.wait_seconds - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
            if task_run.runs_in is not RunsIn.PROCESS:
                self._start_time_limits(task_run)

    def _call_function(
        self, task_run: TaskRun, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        """Return what to await: the function's coroutine, or the future of the thread that runs it."""
        function = task_run.function.function
        task_run.has_started = True
        set_current_context(task_run.context)
        self._on_function_starts(task_run)
        if task_run.runs_in is RunsIn.LOOP:
            coroutine: Awaitable[Any] = function(*args, **kwargs)
            return coroutine
        task_run.thread = self._threads.run(functools.partial(function, *args, **kwargs))
        return task_run.thread

    async def _await_returned(self, task_run: TaskRun, returned: object) -> object:
        """Await a function's return value if it is a coroutine or another awaitable; return the result."""
        if task_run.thread is not None:  # it has ended; the rest runs on this loop, where it can be cancelled
            task_run.thread, task_run.runs_in = None, RunsIn.LOOP
            if task_run.control.stop is not None:
                close_unawaited(returned)
                raise TaskStopped(task_run.control.stop.value)
        return await await_value(returned)

    def _finish(self, task_run: TaskRun, outcome: Outcome | None) -> None:
        """Close a run. Do nothing if it is closed."""
        if task_run.is_finished:
            return
        task_run.is_finished = task_run.control.is_over = True
        task_run.job = None  # the job refers to its run: the garbage collector would have to free both
        del self.running[task_run.claimed.fence]
        self._on_finished(task_run, outcome)

    def _choose_runs_in(self, function: Runnable) -> RunsIn:
        """Return where a function runs here: without child processes, in a thread or on the loop."""
        wanted = function.spec.runs_in
        if wanted is not RunsIn.PROCESS or self._child_runner is not None:
            return wanted
        report.no_child_processes(function.spec.name)
        return RunsIn.LOOP if function.is_async else RunsIn.THREAD

    def _start_time_limits(self, task_run: TaskRun) -> None:
        """Start the time limits of a run now."""
        now = task_run.control.started_at = self._clock()
        self._limit_time(task_run, now)

    def _start_in_child(self, task_run: TaskRun) -> None:
        """Start the time limits of a run that has just got a child process."""
        self._start_time_limits(task_run)
        self._on_function_starts(task_run)

    def _limit_time(self, task_run: TaskRun, started_at: float) -> None:
        """Watch the time limits of a run that started at this moment."""
        task_run.control.ends_at = min(started_at + task_run.timeout_seconds, task_run.ends_at)
        self._limits.watch(task_run)

    # --- limits ------------------------------------------------------------------------------------------

    def _on_time_limit(self, task_run: TaskRun) -> None:
        if task_run.control.stop is not None:  # the function was asked to stop before, and still runs
            self._loop.call_later(self._stop_grace, self._force_end, task_run)
            return
        by_deadline = task_run.ends_at < task_run.started_at + task_run.timeout_seconds
        self.stop(task_run, StopReason.DEADLINE if by_deadline else StopReason.TIMEOUT)

    def _force_end(self, task_run: TaskRun) -> None:
        """End the run of a function that did not stop. The fence refuses its later writes."""
        if task_run.is_finished:
            return
        if task_run.child is None:
            self._abandon(task_run)
        elif not task_run.is_killed:
            task_run.is_killed = True
            self.killed += 1
            report.child_killed(task_run.claimed, task_run.child.pid, task_run.control.stop)
            # the run is closed once the child process is gone
            task_run.child.kill(f"did not stop: {task_run.control.stop}")
            self._loop.call_later(KILLED_SECONDS, self._abandon, task_run)

    def _abandon(self, task_run: TaskRun) -> None:
        """Close the run of a function that cannot be stopped."""
        if task_run.is_finished:
            return
        abandoned = task_run.thread or task_run.job
        if abandoned is not None:
            leftovers = self._stuck_threads if task_run.thread is not None else self._abandoned_tasks
            leftovers.add(abandoned)
            abandoned.add_done_callback(leftovers.discard)
        report.function_did_not_stop(task_run.claimed, task_run.control.stop, _describe_leftover(task_run))
        if task_run.control.scratch_used:
            self._loop.run_in_executor(None, task_run.control.remove_scratch)
        self._finish(task_run, self._decider.on_stop(task_run))
        if task_run.thread is None and task_run.child is None:
            self._on_unhealthy()


def _describe_leftover(task_run: TaskRun) -> str:
    """Return, for logs, the part of a function that does not stop: its thread, process or coroutine."""
    if task_run.child is not None:
        return "child process, which was killed and is not gone yet,"
    return "coroutine" if task_run.thread is None else "thread, which keeps its slot,"
