"""Runs attempts: started, run, decided, settled. One outcome for each, whatever the body does."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.codec import CODEC
from tidegate.context import RetryRequested, RunControl, Stop, TaskStopped
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Dead, Fence, Outcome, Released, Succeeded
from tidegate.errors import ArgumentsError
from tidegate.policy import retry
from tidegate.policy.classify import Classifier, classify
from tidegate.policy.order import LIFT_SECONDS
from tidegate.policy.words import duration
from tidegate.store.rows import ClaimedTask
from tidegate.worker import report
from tidegate.worker.application import Runnable
from tidegate.worker.attempt import Attempt
from tidegate.worker.limits import TimeLimits
from tidegate.worker.threads import DaemonThreads, Raised

Settled = Callable[[Attempt, Outcome | None], None]
"""Told once for each attempt; None: the lease was lost, there is nothing to write."""


class Executor:
    """Runs attempts in this process, coroutines on the loop and plain functions in threads.

    Args:
        functions: What can be run, by name.
        scratch_root: Where runs get their scratch directories.
        stop_grace: Seconds a body that was told to stop has to end by itself.
        settled: Told how each attempt ended.
        rng: For jitter.
        wall_clock: Seconds since the epoch, for HTTP dates in failures only.
        classifiers: The user's own, asked before ours.
    """

    def __init__(
        self,
        *,
        functions: Mapping[str, Runnable],
        scratch_root: Path,
        stop_grace: float,
        settled: Settled,
        rng: random.Random,
        wall_clock: Callable[[], float],
        classifiers: Sequence[Classifier] = (),
    ) -> None:
        self._functions = functions
        self._scratch_root = scratch_root
        self._stop_grace = stop_grace
        self._settled = settled
        self._rng = rng
        self._wall_clock = wall_clock
        self._classifiers = classifiers
        self._threads = DaemonThreads("tidegate-body")
        self._loop = asyncio.get_running_loop()
        self._stuck: set[asyncio.Future[Any]] = set()
        """Threads whose run was closed without them: each holds its slot until it returns."""
        self._strays: set[asyncio.Future[Any]] = set()
        """Coroutines left behind the same way; referenced so that they are not collected while running."""
        self.running: dict[Fence, Attempt] = {}
        self._limits = TimeLimits(self.running, self._time_up)

    @property
    def busy(self) -> int:
        """Slots in use."""
        return len(self.running) + len(self._stuck)

    def start(self, claimed: ClaimedTask) -> Attempt:
        """Take up one claimed task. Returns at once."""
        fence = claimed.fence
        control = RunControl(
            scratch_root=self._scratch_root,
            scratch_name=f"{fence.task_id}-{fence.run}",
            clock=self._loop.time,
            started_at=self._loop.time(),
        )
        attempt = Attempt(claimed, self._functions[claimed.function], control)
        control.ends_at = control.started_at + min(attempt.timeout_seconds, attempt.deadline_seconds)
        self.running[fence] = attempt
        self._limits.watch(attempt)
        attempt.job = self._loop.create_task(
            self._run(attempt), name=f"tidegate {claimed.function} {fence.task_id}"
        )
        return attempt

    def stop(self, attempt: Attempt, why: Stop) -> None:
        """Ask a body to stop. The first reason counts; a lost lease overrides every other."""
        control = attempt.control
        if attempt.settled or (control.stop is not None and why is not Stop.LOST):
            return
        control.stop = why
        if attempt.function.is_async and attempt.is_entered and attempt.job is not None:
            attempt.job.cancel()
        if why is not Stop.CANCEL:  # a cancel is cooperative up to the time limit
            self._loop.call_later(self._stop_grace, self._close, attempt)

    def close(self) -> None:
        """Let idle threads go."""
        self._threads.close()
        self._limits.close()

    # --- the path of one attempt -------------------------------------------------------------------------

    async def _run(self, attempt: Attempt) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._perform(attempt)
        except asyncio.CancelledError:
            outcome = self._stopped(attempt) or self._failed(
                attempt, asyncio.CancelledError("cancelled by nobody")
            )
        self._settle(attempt, outcome)

    async def _perform(self, attempt: Attempt) -> Outcome | None:
        attempt.is_entered = True
        if attempt.control.stop is not None:
            return self._stopped(attempt)
        if attempt.deadline_seconds <= 0:
            return retry.expired(attempt.claimed.fence, "its deadline passed before it was started")
        try:
            args, kwargs = attempt.load()
        except ArgumentsError as error:
            return _bury(attempt.claimed.fence, Reason.INVALID_REQUEST, str(error), "arguments do not fit")
        try:
            value = await self._called(attempt, args, kwargs)
        except BaseException as raised:  # a body may raise anything, also what is no Exception
            cause = raised.error if isinstance(raised, Raised) else raised
            return self._asked(attempt) or self._stopped(attempt) or self._failed(attempt, cause)
        return self._asked(attempt) or self._stopped(attempt) or self._succeeded(attempt, value)

    def _called(self, attempt: Attempt, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Return what to await: the body's coroutine, or the answer of the thread that runs it."""
        body = attempt.function.body
        if attempt.function.is_async:
            coroutine: Awaitable[Any] = body(*args, **kwargs)
            return coroutine
        attempt.thread = self._threads.run(functools.partial(body, *args, **kwargs))
        return attempt.thread

    def _settle(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """Close an attempt, once."""
        if attempt.settled:
            return
        attempt.settled = True
        del self.running[attempt.claimed.fence]
        if attempt.control.scratch_used:
            attempt.control.remove_scratch()
        self._settled(attempt, outcome)

    # --- limits ------------------------------------------------------------------------------------------

    def _time_up(self, attempt: Attempt) -> None:
        if attempt.control.stop is not None:  # asked to stop before, and still there
            self._loop.call_later(self._stop_grace, self._close, attempt)
            return
        by_deadline = attempt.deadline_seconds < attempt.timeout_seconds
        self.stop(attempt, Stop.DEADLINE if by_deadline else Stop.TIMEOUT)

    def _close(self, attempt: Attempt) -> None:
        """End the run of a body that will not stop. Its later writes are refused by the fence."""
        if attempt.settled:
            return
        left_behind = attempt.thread or attempt.job
        if left_behind is not None:
            stray = self._stuck if attempt.thread is not None else self._strays
            stray.add(left_behind)
            left_behind.add_done_callback(stray.discard)
        report.body_will_not_stop(attempt.claimed, attempt.control.stop, thread=attempt.thread is not None)
        self._settle(attempt, self._stopped(attempt))

    # --- outcomes ----------------------------------------------------------------------------------------

    def _asked(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of `ctx.retry`, if the body called it, whatever it did afterwards."""
        request = attempt.control.retry
        if request is None or attempt.control.stop is Stop.LOST:
            return None
        return retry.on_request(
            attempt.claimed.fence,
            after_seconds=request.after_seconds,
            reason=request.reason,
            charge=request.charge,
            terms=attempt.terms(self._loop.time()),
            counters=attempt.claimed.counters,
            rng=self._rng,
        )

    def _stopped(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of being asked to stop: it wins over whatever the body did then."""
        fence, why = attempt.claimed.fence, attempt.control.stop
        if why is None or why is Stop.LOST:
            return None
        if why is Stop.CANCEL:
            return Cancelled(fence)
        if why is Stop.RELEASE:
            return Released(fence, why.value, rank_offset=-LIFT_SECONDS)
        if why is Stop.DEADLINE:
            return retry.expired(fence, f"stopped by its deadline after {duration(attempt.deadline_seconds)}")
        return self._failed(
            attempt, TimeoutError(f"ran longer than its timeout of {duration(attempt.timeout_seconds)}")
        )

    def _failed(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        if attempt.control.stop is Stop.LOST:
            return None
        if isinstance(error, TaskStopped | RetryRequested):
            error = RuntimeError(f"{type(error).__name__} was raised by hand")
        spec = attempt.function.spec
        judged = classify(error, rules=spec.rules, now=self._wall_clock(), classifiers=self._classifiers)
        return retry.decide(
            attempt.claimed.fence,
            judged.failure,
            judged.rule,
            attempt.terms(self._loop.time()),
            attempt.claimed.counters,
            self._rng,
        )

    def _succeeded(self, attempt: Attempt, value: Any) -> Outcome | None:
        if attempt.control.stop is Stop.LOST:
            return None
        result = attempt.function.signature.encode_result(value)
        return Succeeded(attempt.claimed.fence, result.data, CODEC)


def _bury(fence: Fence, reason: Reason, message: str, why: str) -> Dead:
    failure = Failure(
        Verdict.PERMANENT, reason, message=message, error_class="tidegate.errors.ArgumentsError", evidence=why
    )
    return Dead(fence, failure, Charge.ATTEMPT, why)
