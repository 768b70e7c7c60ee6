"""Decides the one outcome of a run, whether its function ran here or in a child process."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec

from tidegate.codec import CODEC
from tidegate.context import RetryRequested, StopReason, TaskStopped, TaskSuspended
from tidegate.domain.failure import MESSAGE_LIMIT, Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Dead, Outcome, Released, Retrying, Succeeded
from tidegate.domain.provider_job import CANCELLING_LABEL, CancelCause
from tidegate.domain.spec import Rule
from tidegate.domain.text import format_duration, redacted_text
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.policy import retry
from tidegate.policy.charge import charge_for_release
from tidegate.policy.classify import Classifier, classify
from tidegate.policy.crash import crash_limit_after, dead_if_run_once, decide_orphan, release_run
from tidegate.policy.describe import class_name_of
from tidegate.policy.suspension import suspend
from tidegate.worker.application import crash_terms
from tidegate.worker.engine.fallback_outcome import undecidable_outcome
from tidegate.worker.engine.return_value import UnusableResult, encode_return_value
from tidegate.worker.engine.task_run import TaskRun

P = ParamSpec("P")


ARGUMENTS_DO_NOT_FIT = "arguments do not fit"
"""The evidence of a failure before the function was called: the code has other parameters."""
FUNCTION_NOT_DECLARED = "function not declared"
"""The evidence of a failure in a child process whose code has no such function."""


def _never_raising(
    decide: Callable[Concatenate[OutcomeDecider, TaskRun, P], Outcome | None],
) -> Callable[Concatenate[OutcomeDecider, TaskRun, P], Outcome | None]:
    """Turn an error that a method raises while it decides an outcome into an outcome."""

    @functools.wraps(decide)
    def decided(
        decider: OutcomeDecider, task_run: TaskRun, /, *args: P.args, **kwargs: P.kwargs
    ) -> Outcome | None:
        try:
            return decide(decider, task_run, *args, **kwargs)
        except BaseException as fault:  # options, rules and classifiers are user code
            return _undecidable(task_run, fault)

    return decided


def _undecidable(task_run: TaskRun, fault: BaseException) -> Outcome | None:
    """Return the outcome of a run whose outcome could not be decided because of this error."""
    if task_run.control.stop is StopReason.LOST:
        return None
    dead = undecidable_outcome(task_run.claimed.fence, task_run.function.spec, fault)
    return replace(dead, calls=task_run.calls())


class OutcomeDecider:
    """Decides the outcomes of runs. After a lost lease there is no outcome: every method returns None.

    No method raises. If an option, a rule or a classifier is broken, the task is dead with a failure that
    names it (see `fallback_outcome`).

    Args:
        clock: Monotonic seconds, the same clock as the runs'.
        wall_clock: Seconds since the epoch, for HTTP dates in failures only.
        rng: For jitter.
        classifiers: The user's classifiers, called before ours.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        rng: random.Random,
        classifiers: Sequence[Classifier] = (),
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = rng
        self._classifiers = classifiers

    def on_return(self, task_run: TaskRun, value: object) -> Outcome | None:
        """Return the outcome of a function that returned in this process."""
        # Every successful run passes here, so the error is caught here instead of by the decorator.
        try:
            control, function = task_run.control, task_run.function
            if control.retry is not None or control.stop is not None or control.suspension is not None:
                asked = self._on_request(task_run)
                if asked is not None:
                    return asked
            result = encode_return_value(function.spec.name, function.signature, value)
            return self._succeeded(task_run, result)
        except BaseException as fault:
            return _undecidable(task_run, fault)

    @_never_raising
    def on_unusable_result(self, task_run: TaskRun, returned: UnusableResult) -> Outcome | None:
        """Return the outcome of a function whose return value cannot be a result."""
        failure = returned.failure(task_run.function.spec.name)
        return self._on_request(task_run) or self.from_failure(task_run, failure, None)

    @_never_raising
    def on_exception(self, task_run: TaskRun, error: BaseException) -> Outcome | None:
        """Return the outcome of a function that raised in this process."""
        return self._on_request(task_run) or self.from_exception(task_run, error)

    def _on_request(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome if the function asked for another run, or was asked to stop; otherwise None."""
        control = task_run.control
        if control.retry is None and control.stop is None and control.suspension is None:
            return None
        return self.on_retry_request(task_run) or self.on_suspension(task_run) or self.on_stop(task_run)

    @_never_raising
    def on_retry_request(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome of `ctx.retry` if the function called it, even if it went on afterwards."""
        request = task_run.control.retry
        if request is None or task_run.control.stop is StopReason.LOST:
            return None
        outcome = retry.decide_requested_retry(
            task_run.claimed.fence,
            after_seconds=request.after_seconds,
            reason=request.reason,
            charge=request.charge,
            terms=task_run.terms(self._clock()),
            counters=task_run.claimed.counters,
            rng=self._rng,
        )
        return replace(outcome, calls=task_run.calls())

    @_never_raising
    def on_suspension(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome if the function suspended itself, even if it went on afterwards; else None."""
        request, stop = task_run.control.suspension, task_run.control.stop
        if request is None or stop in (StopReason.LOST, StopReason.CANCEL, StopReason.DEADLINE):
            return None
        return suspend(
            task_run.claimed.fence,
            delay_seconds=request.delay_seconds,
            why=request.why,
            wait_keys=request.wait_keys,
            child_ids=request.child_ids,
            cache_waits=request.cache_waits,
            time_left=task_run.time_left.after(self._clock() - task_run.received_at),
            calls=task_run.calls(),
        )

    @_never_raising
    def on_stop(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome of a run that was asked to stop, no matter what its function did then."""
        fence, why = task_run.claimed.fence, task_run.control.stop
        if why is None or why is StopReason.LOST:
            return None
        if why is StopReason.CANCEL:
            return Cancelled(fence, calls=task_run.calls())
        if why is StopReason.RELEASE:
            if task_run.has_started and task_run.function.spec.crash_limit == 0:
                return replace(dead_if_run_once(fence, why.value), calls=task_run.calls())
            charge = charge_for_release(task_run.claimed.counters, may_have_called=task_run.may_have_called())
            return release_run(fence, why.value, charge, calls=task_run.calls())
        if why is StopReason.DEADLINE:
            if not task_run.has_started:
                return retry.expired(fence, task_run.time_left.first)
            elapsed = format_duration(max(0.0, self._clock() - task_run.started_at))
            expired = retry.expired(fence, task_run.time_left.first, elapsed)
            return replace(expired, calls=task_run.calls())
        limit = format_duration(task_run.timeout_seconds)
        return self.from_exception(task_run, TimeoutError(f"ran longer than its timeout of {limit}"))

    @_never_raising
    def from_exception(self, task_run: TaskRun, error: BaseException) -> Outcome | None:
        """Return the outcome of an exception."""
        if isinstance(error, TaskStopped | TaskSuspended | RetryRequested):
            error = RuntimeError(f"{type(error).__name__} was raised by hand")
        spec = task_run.function.spec
        classified = classify(
            error,
            rules=spec.rules,
            now=self._wall_clock(),
            classifiers=self._classifiers,
            provider=spec.provider,
        )
        return self.from_failure(task_run, classified.failure, classified.rule)

    @_never_raising
    def from_failure(self, task_run: TaskRun, failure: Failure, rule: Rule | None) -> Outcome | None:
        """Return the outcome of a failure that has already been classified."""
        if task_run.control.stop is StopReason.LOST:
            return None
        try:
            terms, counters = task_run.terms(self._clock()), task_run.claimed.counters
            fence, calls = task_run.claimed.fence, task_run.calls()
            return retry.decide(fence, failure, rule, terms, counters, self._rng, calls)
        except BaseException as fault:  # same as `_never_raising`, but here the run's own failure is known
            dead = undecidable_outcome(task_run.claimed.fence, task_run.function.spec, fault, failure)
            return replace(dead, calls=task_run.calls())

    @_never_raising
    def on_success(self, task_run: TaskRun, result: bytes) -> Outcome | None:
        """Return the outcome of an encoded result."""
        return self._succeeded(task_run, result)

    @staticmethod
    def _succeeded(task_run: TaskRun, result: bytes) -> Outcome | None:
        if task_run.control.stop is StopReason.LOST:
            return None
        return Succeeded(task_run.claimed.fence, result, CODEC, task_run.calls())

    def of_cancelling(self, task_run: TaskRun, outcome: Outcome | None) -> Outcome | None:
        """Return the outcome of a run that may only have had to cancel provider jobs: then its task ends.

        A run that a shutdown or a crash ended is repeated.
        """
        if (
            outcome is None
            or not task_run.control.is_cancelling
            or task_run.control.stop is StopReason.RELEASE
        ):
            return outcome
        if isinstance(outcome, Retrying | Dead) and outcome.charge in (Charge.CRASH, Charge.LOSS):
            return outcome
        fence = task_run.claimed.fence
        if task_run.claimed.labels.get(CANCELLING_LABEL, "").startswith(CancelCause.DEADLINE):
            return replace(retry.expired(fence, task_run.time_left.first), calls=outcome.calls)
        return Cancelled(fence, calls=outcome.calls)

    @_never_raising
    def on_attempts_exhausted(self, task_run: TaskRun) -> Outcome | None:
        """Return the outcome of a claimed task that has no attempt left; None if the task has one."""
        return retry.spent(task_run.claimed.fence, task_run.max_attempts, task_run.claimed.counters)

    @_never_raising
    def on_release(self, task_run: TaskRun, why: str) -> Outcome | None:
        """Return the outcome of a run that could not start for a reason outside the task."""
        if task_run.control.stop is StopReason.LOST:
            return None
        return Released(task_run.claimed.fence, why)

    @_never_raising
    def on_crash(self, task_run: TaskRun, how: str) -> Outcome | None:
        """Return the outcome of a function whose child process died."""
        if task_run.control.stop is StopReason.LOST:
            return None
        terms = crash_terms(task_run.function.spec)
        return decide_orphan(
            task_run.claimed.fence,
            why=how,
            loss=False,
            cancel_requested=False,
            crash_limit=crash_limit_after(how, terms.crash_limit),
            base_seconds=terms.base_seconds,
            cap_seconds=terms.max_seconds,
            counters=task_run.claimed.counters,
        )


def bad_arguments_outcome(task_run: TaskRun, error: ArgumentsError | ConfigError) -> Dead:
    """Return the outcome of a task whose arguments do not fit the current code; its function does not run."""
    failure = bad_arguments_failure(error)
    return Dead(task_run.claimed.fence, failure, Charge.ATTEMPT, failure.evidence)


def bad_arguments_failure(error: ArgumentsError | ConfigError) -> Failure:
    """Return the failure of arguments that do not fit, or of a function that cannot be called."""
    return Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        message=redacted_text(str(error), MESSAGE_LIMIT),
        error_class=class_name_of(error),
        evidence=ARGUMENTS_DO_NOT_FIT if isinstance(error, ArgumentsError) else "it cannot be called",
    )
