"""Turns how a run ended into its one outcome, wherever the body ran."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec

from tidegate.codec import CODEC
from tidegate.context import RetryRequested, Stop, TaskStopped
from tidegate.domain.failure import MESSAGE_LIMIT, Failure, Reason, Verdict
from tidegate.domain.outcome import Cancelled, Charge, Dead, Outcome, Released, Succeeded
from tidegate.domain.spec import Rule
from tidegate.domain.text import presentable
from tidegate.errors import ArgumentsError, ConfigError
from tidegate.policy import retry
from tidegate.policy.charge import charge_for_release
from tidegate.policy.classify import Classifier, classify
from tidegate.policy.crash import cut_short, decide_orphan, given_back, limit_after
from tidegate.policy.describe import class_name_of
from tidegate.policy.words import duration
from tidegate.worker.application import crash_terms
from tidegate.worker.attempt import Attempt
from tidegate.worker.last_resort import undecided
from tidegate.worker.returned import NotAValue, encoded

P = ParamSpec("P")


def _without_fail(
    decide: Callable[Concatenate[Judge, Attempt, P], Outcome | None],
) -> Callable[Concatenate[Judge, Attempt, P], Outcome | None]:
    """Make a decision answer whatever it meets: an error on the way to an outcome is an outcome itself."""

    @functools.wraps(decide)
    def decided(judge: Judge, attempt: Attempt, /, *args: P.args, **kwargs: P.kwargs) -> Outcome | None:
        try:
            return decide(judge, attempt, *args, **kwargs)
        except BaseException as fault:  # options, rules and classifiers are other people's code
            if attempt.control.stop is Stop.LOST:
                return None
            dead = undecided(attempt.claimed.fence, attempt.function.spec, fault)
            return replace(dead, calls=attempt.calls())

    return decided


class Judge:
    """Decides the outcomes of attempts. A lost lease has none: every answer is None then.

    No decision raises. One that cannot be made, because an option, a rule or a classifier is broken, ends the
    task with a failure that names it (`last_resort`).

    Args:
        clock: Monotonic seconds, the same as the attempts'.
        wall_clock: Seconds since the epoch, for HTTP dates in failures only.
        rng: For jitter.
        classifiers: The user's own, asked before ours.
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

    @_without_fail
    def returned(self, attempt: Attempt, value: object) -> Outcome | None:
        """Return the outcome of a body that returned, here in this process."""
        return (
            self.asked(attempt)
            or self.stopped(attempt)
            or self.succeeded(attempt, encoded(attempt.function.spec.name, attempt.function.signature, value))
        )

    @_without_fail
    def refused(self, attempt: Attempt, returned: NotAValue) -> Outcome | None:
        """Return the outcome of a body that returned what can be no result."""
        failure = returned.failure(attempt.function.spec.name)
        return self.asked(attempt) or self.stopped(attempt) or self.understood(attempt, failure, None)

    @_without_fail
    def raised(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        """Return the outcome of a body that raised, here in this process."""
        return self.asked(attempt) or self.stopped(attempt) or self.failed(attempt, error)

    @_without_fail
    def asked(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of `ctx.retry`, if the body called it, whatever it did afterwards."""
        request = attempt.control.retry
        if request is None or attempt.control.stop is Stop.LOST:
            return None
        outcome = retry.on_request(
            attempt.claimed.fence,
            after_seconds=request.after_seconds,
            reason=request.reason,
            charge=request.charge,
            terms=attempt.terms(self._clock()),
            counters=attempt.claimed.counters,
            rng=self._rng,
        )
        return replace(outcome, calls=attempt.calls())

    @_without_fail
    def stopped(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of being asked to stop: it wins over whatever the body did then."""
        fence, why = attempt.claimed.fence, attempt.control.stop
        if why is None or why is Stop.LOST:
            return None
        if why is Stop.CANCEL:
            return Cancelled(fence, calls=attempt.calls())
        if why is Stop.RELEASE:
            if attempt.has_begun and attempt.function.spec.crash_limit == 0:
                return replace(cut_short(fence, why.value), calls=attempt.calls())
            charge = charge_for_release(attempt.claimed.counters, may_have_called=attempt.may_have_called())
            return given_back(fence, why.value, charge, calls=attempt.calls())
        if why is Stop.DEADLINE:
            if not attempt.has_begun:
                return retry.expired(fence, attempt.time_left.first)
            lasted = duration(max(0.0, self._clock() - attempt.started_at))
            expired = retry.expired(fence, attempt.time_left.first, lasted)
            return replace(expired, calls=attempt.calls())
        limit = duration(attempt.timeout_seconds)
        return self.failed(attempt, TimeoutError(f"ran longer than its timeout of {limit}"))

    @_without_fail
    def failed(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        """Return the outcome of an exception."""
        if isinstance(error, TaskStopped | RetryRequested):
            error = RuntimeError(f"{type(error).__name__} was raised by hand")
        spec = attempt.function.spec
        judged = classify(
            error,
            rules=spec.rules,
            now=self._wall_clock(),
            classifiers=self._classifiers,
            provider=spec.provider,
        )
        return self.understood(attempt, judged.failure, judged.rule)

    @_without_fail
    def understood(self, attempt: Attempt, failure: Failure, rule: Rule | None) -> Outcome | None:
        """Return the outcome of a failure that is understood already."""
        if attempt.control.stop is Stop.LOST:
            return None
        try:
            terms, counters = attempt.terms(self._clock()), attempt.claimed.counters
            fence, calls = attempt.claimed.fence, attempt.calls()
            return retry.decide(fence, failure, rule, terms, counters, self._rng, calls)
        except BaseException as fault:  # as in `_without_fail`, and here it is known what the run failed with
            dead = undecided(attempt.claimed.fence, attempt.function.spec, fault, failure)
            return replace(dead, calls=attempt.calls())

    @_without_fail
    def succeeded(self, attempt: Attempt, result: bytes) -> Outcome | None:
        """Return the outcome of an encoded result."""
        if attempt.control.stop is Stop.LOST:
            return None
        return Succeeded(attempt.claimed.fence, result, CODEC, attempt.calls())

    @_without_fail
    def spent(self, attempt: Attempt) -> Outcome | None:
        """Return the end of a task that has no attempt left although its run was claimed; None if it has."""
        return retry.spent(attempt.claimed.fence, attempt.terms(self._clock()), attempt.claimed.counters)

    @_without_fail
    def released(self, attempt: Attempt, why: str) -> Outcome | None:
        """Return the outcome of a run that could not begin, through no fault of the task."""
        if attempt.control.stop is Stop.LOST:
            return None
        return Released(attempt.claimed.fence, why)

    @_without_fail
    def crashed(self, attempt: Attempt, how: str) -> Outcome | None:
        """Return the outcome of a body whose own process died under it."""
        if attempt.control.stop is Stop.LOST:
            return None
        terms = crash_terms(attempt.function.spec)
        return decide_orphan(
            attempt.claimed.fence,
            why=how,
            loss=False,
            cancel_requested=False,
            crash_limit=limit_after(how, terms.crash_limit),
            base_seconds=terms.base_seconds,
            cap_seconds=terms.cap_seconds,
            counters=attempt.claimed.counters,
        )


def misfit(attempt: Attempt, error: ArgumentsError | ConfigError) -> Dead:
    """Return the end of a task whose arguments do not fit the present code; its body is not entered."""
    failure = failure_of_misfit(error)
    return Dead(attempt.claimed.fence, failure, Charge.ATTEMPT, failure.evidence)


def failure_of_misfit(error: ArgumentsError | ConfigError) -> Failure:
    """Return the failure of arguments that do not fit, or of a function that no worker can call."""
    return Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        message=presentable(str(error), MESSAGE_LIMIT),
        error_class=class_name_of(error),
        evidence="arguments do not fit" if isinstance(error, ArgumentsError) else "it cannot be called",
    )
