"""Runs attempts: started, run, decided, settled. One outcome for each, whatever the body does."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tidegate._threads import DaemonThreads, Raised
from tidegate.context import RunControl, Stop, TaskStopped, set_present
from tidegate.domain.outcome import Fence, Outcome
from tidegate.domain.spec import RunsIn
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.policy import retry
from tidegate.store.rows import ClaimedTask
from tidegate.worker import report
from tidegate.worker.application import Runnable
from tidegate.worker.attempt import Attempt
from tidegate.worker.judge import Judge, misfit
from tidegate.worker.lease import Lease
from tidegate.worker.limits import TimeLimits
from tidegate.worker.returned import NotAValue, discard, is_value, value_of
from tidegate.worker.slots.runner import SlotRunner
from tidegate.worker.spot import Spot, Tracked, name_of

BEGUN_AT_ONCE = 32
"""Bodies that begin in one turn of the loop: between turns, what the store has answered is looked at."""

KILLED_SECONDS = 5.0
"""How long a child process that was killed has to be gone. One that the kernel cannot let go, as while a
network file system hangs, must not keep its run open."""

Settled = Callable[[Attempt, Outcome | None], None]
"""Told once for each attempt; None: the lease was lost, there is nothing to write."""


class Executor:
    """Runs attempts: coroutines on the loop, plain functions in child slots or threads.

    Args:
        functions: What can be run, by name.
        scratch_root: Where runs get their scratch directories.
        stop_grace: Seconds a body that was told to stop has to end by itself.
        settled: Told how each attempt ended.
        judge: Decides the outcomes.
        lease: While it does not hold, bodies wait; those that run already go on.
        in_slots: Runs bodies in child processes; None where there are none, as in an embedded worker.
        spot: Tells the supervisor whose task has the loop; None without a supervisor.
        spoiled: Told when a coroutine was left behind that will not stop: it can go on at any time.
    """

    def __init__(
        self,
        *,
        functions: Mapping[str, Runnable],
        scratch_root: Path,
        stop_grace: float,
        settled: Settled,
        judge: Judge,
        lease: Lease,
        in_slots: SlotRunner | None = None,
        spot: Spot | None = None,
        spoiled: Callable[[], None] = lambda: None,
    ) -> None:
        self._functions = functions
        self._scratch_root = scratch_root
        self._stop_grace = stop_grace
        self._settled = settled
        self._judge = judge
        self._lease = lease
        self._in_slots = in_slots
        self._spot = spot
        self._spoiled = spoiled
        self.base = contextvars.Context()
        """Each run begins in a copy of it: nothing of the worker's starter or of another run is in it."""
        self._threads = DaemonThreads("tidegate-body")
        self._loop = asyncio.get_running_loop()
        self._stuck: set[asyncio.Future[Any]] = set()
        """Threads whose run was closed without them: each holds its slot until it returns."""
        self._strays: set[asyncio.Future[Any]] = set()
        """Coroutines left behind the same way; referenced so that they are not collected while running."""
        self._unbegun: deque[Attempt] = deque()
        """Taken up, without a job yet."""
        self.killed = 0
        """Child processes that had to be killed because their body did not stop."""
        self.running: dict[Fence, Attempt] = {}
        self._limits = TimeLimits(self.running, self._time_up)

    @property
    def busy(self) -> int:
        """Slots in use."""
        return len(self.running) + len(self._stuck)

    @property
    def unbegun(self) -> int:
        """Attempts whose turn to begin is still to come: `BEGUN_AT_ONCE` of them in each turn of the loop."""
        return len(self._unbegun)

    def start(self, claimed: ClaimedTask) -> Attempt:
        """Take up one claimed task. Returns at once."""
        fence = claimed.fence
        control = RunControl(
            scratch_root=self._scratch_root,
            scratch_name=f"{fence.task_id}-{fence.run}",
            clock=self._loop.time,
            started_at=self._loop.time(),
        )
        function = self._functions[claimed.function]
        attempt = Attempt(claimed, function, control, self._place(function))
        if attempt.is_suspect and self._in_slots is not None:
            attempt.runs_in = RunsIn.PROCESS
        self.running[fence] = attempt
        if attempt.runs_in is not RunsIn.PROCESS:
            self._begin_limits(attempt)
        if not self._unbegun:
            self._loop.call_soon(self._begin_some)
        self._unbegun.append(attempt)
        return attempt

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """Ask a body to stop. The first reason counts; a lost lease overrides every other."""
        control = attempt.control
        if control.stop is Stop.CANCEL and why is Stop.RELEASE:
            self.force(attempt)  # a cancel may wait for the time limit, a shutdown may not
        if attempt.settled or (control.stop is not None and why is not Stop.LOST):
            return
        control.stop = why
        if attempt.job is None:  # its turn to begin is still to come, and there is nothing left to do in it
            self._settle(attempt, self._judge.stopped(attempt))
            return
        if attempt.slot is not None:
            attempt.slot.halt(why)
        elif attempt.runs_in is not RunsIn.THREAD and attempt.is_entered:
            attempt.job.cancel()
        grace = self._stop_grace if why is not Stop.CANCEL else attempt.cancel_grace
        if grace is not None:  # else the body may go on to its time limit
            self._loop.call_later(grace, self._close, attempt)

    def force(self, attempt: Attempt) -> None:
        """Cancel a body without waiting for it to listen: after the grace time its run is closed."""
        self.stop(attempt, Stop.CANCEL)
        if not attempt.is_forced:
            attempt.is_forced = True
            self._loop.call_later(self._stop_grace, self._close, attempt)

    def close(self) -> None:
        """Let idle threads go."""
        self._threads.close()
        self._limits.close()

    # --- the path of one attempt -------------------------------------------------------------------------

    def _begin_some(self) -> None:
        for _ in range(min(BEGUN_AT_ONCE, len(self._unbegun))):
            attempt = self._unbegun.popleft()
            if not attempt.settled:
                self._begin(attempt)
        if self._unbegun:
            self._loop.call_soon(self._begin_some)

    def _begin(self, attempt: Attempt) -> None:
        fence = attempt.claimed.fence
        run = self._run(attempt)
        attempt.job = self._loop.create_task(
            run if self._spot is None else Tracked(run, self._spot, name_of(fence)),
            name=f"tidegate {attempt.claimed.function} {fence.task_id}",
            context=self.base.copy(),
        )

    async def _run(self, attempt: Attempt) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._perform(attempt)
        except asyncio.CancelledError:
            outcome = self._judge.raised(attempt, asyncio.CancelledError("cancelled by nobody"))
        except BaseException as error:  # from signatures and decoders: the run must end all the same
            outcome = self._judge.raised(attempt, error)
        try:
            if attempt.control.scratch_used:  # in a thread: it may be large, and others need the loop
                await asyncio.to_thread(attempt.control.remove_scratch)
        finally:
            self._settle(attempt, outcome)

    async def _perform(self, attempt: Attempt) -> Outcome | None:
        attempt.is_entered = True
        if attempt.control.stop is not None:
            return self._judge.stopped(attempt)
        if attempt.time_left.seconds <= 0:
            return retry.expired(attempt.claimed.fence, attempt.time_left.first)
        if (spent := self._judge.spent(attempt)) is not None:
            return spent
        if attempt.claimed.wait_seconds > 0:
            await self._slot_of_limits(attempt)
        if attempt.runs_in is RunsIn.PROCESS and self._in_slots is not None:
            return await self._in_slots.perform(attempt, self._begin_limits)
        await self._lease.held()
        if attempt.control.stop is not None:
            return self._judge.stopped(attempt)
        try:
            args, kwargs = attempt.load()
        except (ArgumentsError, ConfigError) as error:
            return misfit(attempt, error)
        try:
            value = await self._called(attempt, args, kwargs)
            if not is_value(value):
                value = await self._awaited(attempt, value)
        except NotAValue as refused:
            return self._judge.refused(attempt, refused)
        except BaseException as raised:  # a body may raise anything, also what is no Exception
            return self._judge.raised(attempt, raised.error if isinstance(raised, Raised) else raised)
        return self._judge.returned(attempt, value)

    async def _slot_of_limits(self, attempt: Attempt) -> None:
        """Wait until the slot that the claim took of the upstream's or function's limits."""
        wait = attempt.started_at + attempt.claimed.wait_seconds - self._loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
            if attempt.runs_in is not RunsIn.PROCESS:
                self._begin_limits(attempt)

    def _called(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Return what to await: the body's coroutine, or the answer of the thread that runs it."""
        body = attempt.function.body
        attempt.has_begun = True
        set_present(attempt.context())
        if attempt.runs_in is RunsIn.LOOP:
            coroutine: Awaitable[Any] = body(*args, **kwargs)
            return coroutine
        attempt.thread = self._threads.run(functools.partial(body, *args, **kwargs))
        return attempt.thread

    async def _awaited(self, attempt: Attempt, returned: object) -> object:
        """Return what a body's return value comes to: it returned a coroutine, or something else to await."""
        if attempt.thread is not None:  # it is done; the rest runs on this loop, where it can be cancelled
            attempt.thread, attempt.runs_in = None, RunsIn.LOOP
            if attempt.control.stop is not None:
                discard(returned)
                raise TaskStopped(attempt.control.stop.value)
        return await value_of(returned)

    def _settle(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Close an attempt, once."""
        if attempt.settled:
            return
        attempt.settled = attempt.control.is_over = True
        del self.running[attempt.claimed.fence]
        self._settled(attempt, outcome)

    def _place(self, function: Runnable) -> RunsIn:
        """Return where a body runs here: without child processes, a thread must do."""
        wanted = function.spec.runs_in
        if wanted is not RunsIn.PROCESS or self._in_slots is not None:
            return wanted
        report.no_processes_here(function.spec.name)
        return RunsIn.LOOP if function.is_async else RunsIn.THREAD

    def _begin_limits(self, attempt: Attempt) -> None:
        """Let the time limits of an attempt run from now."""
        control = attempt.control
        control.started_at = self._loop.time()
        control.ends_at = min(
            control.started_at + attempt.timeout_seconds, attempt.taken_up_at + attempt.time_left.seconds
        )
        self._limits.watch(attempt)

    # --- limits ------------------------------------------------------------------------------------------

    def _time_up(self, attempt: Attempt) -> None:
        if attempt.control.stop is not None:  # asked to stop before, and still there
            self._loop.call_later(self._stop_grace, self._close, attempt)
            return
        by_deadline = (
            attempt.taken_up_at + attempt.time_left.seconds < attempt.started_at + attempt.timeout_seconds
        )
        self.stop(attempt, Stop.DEADLINE if by_deadline else Stop.TIMEOUT)

    def _close(self, attempt: Attempt) -> None:
        """End the run of a body that will not stop. Its later writes are refused by the fence."""
        if attempt.settled:
            return
        if attempt.slot is None:
            self._leave_behind(attempt)
        elif not attempt.is_killed:
            attempt.is_killed = True
            self.killed += 1
            report.child_is_killed(attempt.claimed, attempt.slot.pid, attempt.control.stop)
            attempt.slot.kill(f"did not stop: {attempt.control.stop}")  # its run is closed when it is gone
            self._loop.call_later(KILLED_SECONDS, self._leave_behind, attempt)

    def _leave_behind(self, attempt: Attempt) -> None:
        """Close the run of a body that nothing can end."""
        if attempt.settled:
            return
        left_behind = attempt.thread or attempt.job
        if left_behind is not None:
            stray = self._stuck if attempt.thread is not None else self._strays
            stray.add(left_behind)
            left_behind.add_done_callback(stray.discard)
        report.body_will_not_stop(attempt.claimed, attempt.control.stop, _left(attempt))
        if attempt.control.scratch_used:
            self._loop.run_in_executor(None, attempt.control.remove_scratch)
        self._settle(attempt, self._judge.stopped(attempt))
        if attempt.thread is None and attempt.slot is None:
            self._spoiled()


def _left(attempt: Attempt) -> str:
    """Return what is left of a body that does not end, for logs."""
    if attempt.slot is not None:
        return "child process, which was killed and is not gone,"
    return "coroutine" if attempt.thread is None else "thread, which keeps its slot,"
