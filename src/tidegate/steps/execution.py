"""One step of a run: the records before and after it, and its result."""

from __future__ import annotations

import contextvars
import functools
import hashlib
import logging
import time
import typing
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from tidegate.codec import CODEC, Shape, encode
from tidegate.domain.failure import Failure, Reason
from tidegate.domain.outcome import Fence
from tidegate.domain.step import CACHED_BYTES, OnDoubt, StepState, idempotency_key
from tidegate.domain.text import redacted_text, storable
from tidegate.errors import ArgumentsError, StepChangedError, StepError, StepInDoubtError, StepRejectedError
from tidegate.events import StepOutcome
from tidegate.policy.classify import classify
from tidegate.steps.cache import cache_terms
from tidegate.steps.current import CurrentStep, current_step, enter_step
from tidegate.steps.options import StepOptions
from tidegate.steps.run_steps import RunSteps
from tidegate.steps.waits import Wait
from tidegate.store.step_rows import (
    BeginStatus,
    BegunStep,
    CacheTerms,
    EndedStep,
    EndStatus,
    StepBegin,
    StepEnd,
)

ARGUMENT_BYTES = 64 * 2**20
"""The most bytes of a step's encoded arguments. Only the fingerprint of the arguments is stored."""
_CAUSE_LENGTH = 500

_log = logging.getLogger("tidegate.steps")
_too_large: set[tuple[str, str]] = set()
"""The steps, by function and name, of which a warning says that a result is too large for the cache."""


class StepLost(BaseException):
    """The run is no longer the task's current one, or the task is gone. Turned into `TaskStopped` at once."""


class StepRefused(BaseException):
    """The run begins no new step. Turned into `TaskStopped` at once."""


class Recorded(NamedTuple):
    """The result of a step that was done before."""

    value: Any


class StepExecution:
    """One step of a run, while it is done.

    Args:
        steps: The steps of the run.
        name: The step's name.
        function: What the step calls.
        args: The arguments with which the function is called.
        options: The step's options.

    Raises:
        ArgumentsError: The arguments cannot be encoded, and the step has no key; or it is inside itself.
    """

    def __init__(
        self,
        steps: RunSteps,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: StepOptions,
    ) -> None:
        self._steps = steps
        self._name = name
        self._options = options
        self._shape = _result_shape(function)
        self.key = steps.identify(name, _fingerprint(name, args, options), has_key=options.key is not None)
        self._arguments = _arguments_digest(name, args) if options.on_change == "error" else ""
        self.attempt = 0
        self.current = CurrentStep(idempotency_key(steps.fence.task_id, self.key))
        self._started_at: float | None = None
        """When the function was called; None while it is not called."""
        self._has_waited = False
        """Whether the last begin found another task at the same work. It does not count as an attempt."""
        outer = current_step()
        self._cache: CacheTerms | None = None
        if options.cache is not None:
            self._cache = cache_terms(name, function, args, options.cache, steps.tenant)._replace(
                may_wait=outer is None  # a step that waits inside another one could wait for its own end
            )
        if outer is not None and outer.idempotency_key == self.current.idempotency_key:
            raise ArgumentsError(
                f"step {name!r} with key {options.key!r} was used inside itself", fix="give it another key"
            )

    @property
    def _fence(self) -> Fence:
        return self._steps.fence

    def recorded(self) -> Recorded | None:
        """Return the result, if an earlier run recorded it and it was read with the others."""
        row = self._steps.recorded(self.key, self._name)
        if self._steps.is_cancelling and (row is None or row.state is not StepState.DONE):
            raise StepRefused
        if row is None or row.state is not StepState.DONE or row.data is None:
            return None
        self._require_same_arguments(row.arguments)
        self._steps.emit_finished(self._name, self.key, StepOutcome.REPLAYED)
        return Recorded(self._decoded(row.data))

    def release(self) -> None:
        """Let the next equal step of the run repeat this one, which has no result.

        A step with a key is always the same one.
        """
        if self._options.key is None:
            self._steps.release(self.key)

    def begin(self, on_doubt: OnDoubt | None = None) -> Future[BegunStep]:
        """Record that the step is about to be done."""
        if not self._has_waited:
            self.attempt = self._steps.next_attempt(self.key)
        self.current = CurrentStep(self.current.idempotency_key)
        return self._steps.port.begin(
            StepBegin(
                self._fence,
                self.key,
                self.attempt,
                self._name,
                on_doubt or self._options.on_doubt,
                self._steps.upstream,
                arguments=self._arguments,
                cache=self._cache,
            )
        )

    def without_wait(self) -> StepExecution:
        """Do the work also if another task does it: the step must not be asked about again."""
        if self._cache is not None:
            self._cache = self._cache._replace(may_wait=False)
        return self

    def wait_after(self, begun: BegunStep) -> Wait:
        """Return the wait of a step whose work another task does. The next begin continues this one."""
        assert self._cache is not None
        self._has_waited = True
        self._cache = self._cache._replace(has_waited=True)
        whose = f"task {begun.leader_id}" if begun.leader_id else "another task"
        return Wait(
            None,
            f"waits for step {self._name!r} of {whose}",
            cached=(self._cache.digest, self._cache.seconds),
        )

    def answer(self, begun: BegunStep) -> Recorded | None:
        """Return the result of a step that is done already; None if the run may do it now.

        Raises:
            StepInDoubtError: A person must decide.
            StepRejectedError: A person decided that it must not be done again.
            StepChangedError: The step was done with other arguments, and `on_change` is `error`.
            StepLost: The run is no longer the current one.
        """
        self._has_waited = False
        if begun.status is BeginStatus.BEGUN:
            return None
        if begun.status is BeginStatus.DONE:
            self._require_same_arguments(begun.arguments)
            outcome = StepOutcome.CACHED if begun.is_cached else StepOutcome.REPLAYED
            self._steps.emit_finished(self._name, self.key, outcome)
            return Recorded(self._decoded(begun.data))
        if begun.status is BeginStatus.FENCED:
            raise StepLost
        raise refusal_of(begun.status, self._name, self._fence.task_id)

    def finish(self, value: Any) -> Future[EndedStep]:
        """Record the result.

        Raises:
            ArgumentsError: It cannot be stored.
        """
        data = self._encoded(value)
        if self._cache is not None and len(data) > CACHED_BYTES:
            self._report_too_large(len(data))
        return self._end(EndStatus.DONE, data=data, codec=CODEC, cache=self._cache)

    def fail(self, error: BaseException, *, has_started: bool = True) -> Future[EndedStep]:
        """Record that the step failed, and whether it may have been done all the same."""
        in_doubt = has_started and self._may_be_done(error)
        self._emit_end(StepOutcome.IN_DOUBT if in_doubt else StepOutcome.FAILED, error)
        return self._end(
            EndStatus.IN_DOUBT if in_doubt else EndStatus.FAILED,
            cause=storable(redacted_text(f"{type(error).__name__}: {error}", _CAUSE_LENGTH), _CAUSE_LENGTH),
            upstream=self.current.upstream,
            request_id=self.current.request_id,
        )

    def result(self, value: Any, ended: EndedStep) -> Any:
        """Return the step's result in the form that every later run gets.

        Raises:
            StepLost: The task is gone.
        """
        self._emit_end(StepOutcome.LOST if ended.status is EndStatus.GONE else StepOutcome.DONE)
        if ended.status is EndStatus.GONE:
            raise StepLost
        if ended.status is EndStatus.ALREADY:
            return self._decoded(ended.data)
        return self._decoded(self._encoded(value))

    def _report_too_large(self, size: int) -> None:
        step = (self._steps.function, self._name)
        if step not in _too_large:
            _too_large.add(step)
            _log.warning(
                "%s: a result of step %r has %d bytes, and is not cached: the most is %d. Keep large results "
                "in a file or a bucket, and return where they are",
                *step,
                size,
                CACHED_BYTES,
            )

    def enter(self, context: contextvars.Context) -> None:
        """Mark the code that runs in this context as part of the step: its function is called next."""
        context.run(enter_step, self.current)
        self._started_at = time.monotonic()
        context.run(self._steps.emit_started, self._name, self.key)

    def _emit_end(self, outcome: StepOutcome, error: BaseException | None = None) -> None:
        """Emit the end of a step whose function was called."""
        if self._started_at is None:
            return
        how: dict[str, Any] = {"seconds": time.monotonic() - self._started_at}
        self._started_at = None
        if error is not None:
            how["error_class"] = type(error).__qualname__
            how["message"] = storable(redacted_text(str(error), _CAUSE_LENGTH), _CAUSE_LENGTH)
        self._steps.emit_finished(self._name, self.key, outcome, **how)

    def _require_same_arguments(self, recorded: str) -> None:
        if self._arguments and recorded and recorded != self._arguments:
            raise StepChangedError(
                f"step {self._name!r} with key {self._options.key!r} was done with other arguments",
                fix="give it another key, or on_change='rerun'",
                step=self._name,
            )

    def _end(self, status: EndStatus, **facts: Any) -> Future[EndedStep]:
        if (used := self.current.used) is not None:
            facts |= {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
        return self._steps.port.end(StepEnd(self._fence, self.key, self.attempt, status, **facts))

    def _may_be_done(self, error: BaseException) -> bool:
        """Whether a step that raised this error may have had its effect."""
        if self.current.calls:
            return self.current.has_doubt or self.current.in_flight > 0
        if getattr(error, "leaves_no_doubt", False):
            return False
        if not isinstance(error, Exception | SystemExit):  # it was stopped: cancelled, or out of time
            return True
        return _has_no_answer(classify(error, now=time.time()).failure)

    def _encoded(self, value: Any) -> bytes:
        path = f"the result of step {self._name!r}"
        try:
            return self._shape.encode(value, path=path)
        except ArgumentsError:
            return Shape().encode(value, path=path)

    def _decoded(self, data: bytes) -> Any:
        path = f"the result of step {self._name!r}"
        try:
            return self._shape.decode(data, path=path)
        except ArgumentsError:
            return Shape().decode(data, path=path)


def refusal_of(status: BeginStatus, name: str, task_id: str) -> StepError:
    """Return the error for a step that may not be done now, because it is in doubt or was rejected."""
    if status is BeginStatus.REJECTED:
        return StepRejectedError(
            f"a person decided that step {name!r} must not be done again",
            fix="enqueue a new task, if the work is still wanted",
            step=name,
        )
    return StepInDoubtError(
        f"step {name!r} was begun before and has no recorded answer: it may have been done",
        fix=f"find out, then: tidegate doubts ls --task {task_id}",
        step=name,
    )


def unwrapped(function: Any) -> Any:
    """Return the function that a partial calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _has_no_answer(failure: Failure) -> bool:
    """Whether a failure of a call leaves open whether the call was processed."""
    return (
        failure.status is None
        and failure.reason in (Reason.TIMEOUT, Reason.NETWORK)
        and not failure.is_unsent
    )


def key_fingerprint(key: str) -> bytes:
    """Return the fingerprint of a step with an explicit key."""
    return b"key\0" + key.encode()


def _fingerprint(name: str, args: tuple[Any, ...], options: StepOptions) -> bytes:
    if options.key is None:
        return fingerprint_of_arguments(name, args)
    key = key_fingerprint(options.key)
    return key + b"\0" + fingerprint_of_arguments(name, args) if options.on_change == "rerun" else key


def _arguments_digest(name: str, args: tuple[Any, ...]) -> str:
    return hashlib.sha256(fingerprint_of_arguments(name, args)).hexdigest()[:32]


def fingerprint_of_arguments(name: str, args: tuple[Any, ...]) -> bytes:
    """Return what identifies the arguments of a step: their encoded form.

    Raises:
        ArgumentsError: They cannot be encoded, or are too large.
    """
    try:
        return encode(list(args), path=f"the arguments of step {name!r}", limit=ARGUMENT_BYTES)
    except ArgumentsError as error:
        raise ArgumentsError(
            error.message, fix="give the step a key= that names its work, or pass plain values", **error.facts
        ) from error


def _result_shape(function: Any) -> Shape:
    """Return the form of a function's results, by its annotation; the free form if that is of no use."""
    declared = unwrapped(function)
    try:
        known = _shapes.get(declared)
        if known is None:
            hints = typing.get_type_hints(declared, include_extras=True)
            known = _shapes[declared] = Shape(hints.get("return", Any))
    except Exception:  # annotations are user code, and not every callable can be referred to weakly
        return Shape()
    return known


_shapes: WeakKeyDictionary[Any, Shape] = WeakKeyDictionary()
"""The shapes of results, by function. The keys are weak, so the table keeps no closure alive."""
