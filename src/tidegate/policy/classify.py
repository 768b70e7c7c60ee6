"""Classifies exceptions: the user's rules first, then the response, and the class's name last."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.domain.failure import CAPACITY_REASONS, MESSAGE_LIMIT, Failure, Reason, Verdict
from tidegate.domain.spec import Rule
from tidegate.domain.text import redacted_text
from tidegate.errors import (
    ApprovalTimeoutError,
    CallTooLargeError,
    EventTimeoutError,
    KeyConflictError,
    NotAcceptedError,
    ProviderJobFailedError,
    ProviderJobTimeoutError,
    StepError,
    StepInDoubtError,
    StepRejectedError,
    StoreError,
    UnknownScheduleError,
    UnknownUpstreamError,
    UpstreamError,
    UsageError,
)
from tidegate.policy.describe import class_name_of, message_of, traceback_of
from tidegate.providers.evidence import peek
from tidegate.providers.understand import chain, understand
from tidegate.providers.waits import LONGEST_WAIT_SECONDS, clamp_wait
from tidegate.verdicts import Permanent, RetryAfter, Transient

Classifier = Callable[[BaseException], Failure | None]
"""A user's function that classifies an exception. If it returns None or raises, the next classifier is
asked."""

_DEEPEST_GROUP = 10
_MOST_MEMBERS = 1_000
_SHORT = 300


@dataclass(frozen=True, slots=True)
class Classified:
    """A failure and the rule of `retry=[…]` that applies to it."""

    failure: Failure
    rule: Rule | None = None
    """The rule, whose wait and attempts apply to this failure; None if no rule matched."""


@dataclass(frozen=True, slots=True)
class _Options:
    rules: tuple[Rule, ...]
    classifiers: tuple[Classifier, ...]
    now: float
    provider: str


def classify(
    exc: BaseException,
    *,
    rules: Sequence[Rule] = (),
    now: float,
    classifiers: Sequence[Classifier] = (),
    provider: str = "",
    longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
) -> Classified:
    """Return what the exception means for the task. Never raises.

    The first of these decides:

    1. a rule that names a class of the exception;
    2. `Permanent`, `Transient` or `RetryAfter` raised by the task;
    3. the user's classifiers;
    4. the HTTP response that the exception carries, read as its provider means it;
    5. the names of its classes.

    Otherwise the verdict is unknown. Explicit causes are followed for all of these, implicit contexts only
    for the evidence. A rule that names a reason applies to the reason found by the others.

    A rule sets the verdict: `retry=True` makes it transient, `retry=False` permanent. The reason and the wait
    stay. If the task itself raised a verdict, only a rule that names such a class applies, so that
    `on(Exception)` does not retry a task that raised `Permanent`.

    In an ExceptionGroup, cancelled members are ignored. One permanent member makes the group permanent.
    Otherwise one unknown member makes the group unknown; otherwise the member with the longest wait decides.

    Args:
        exc: The exception that the task function raised.
        rules: The task function's rules. The first match applies.
        now: Seconds since the epoch, UTC. Dates in headers are compared with it.
        classifiers: The user's classifiers, called in order.
        provider: The provider that the task's upstream declares (`providers/packs/`).
        longest_wait_seconds: A longer wait that a server names is cut to this.
    """
    options = _Options(tuple(rules), tuple(classifiers), now, provider)
    try:
        found = _classified(exc, options)
    except BaseException as fault:
        # A failure that cannot be classified must still be recorded, and retried as unknown.
        evidence = f"could not be classified: {type(fault).__name__}"
        found = Classified(Failure(Verdict.UNKNOWN, Reason.UNKNOWN, evidence=evidence))
    return Classified(
        _with_bounded_wait(_with_description(found.failure, exc), longest_wait_seconds), found.rule
    )


def _classified(exc: BaseException, options: _Options, depth: int = 0) -> Classified:
    stated = _stated(exc)
    found = _understood(exc, stated, options, depth)
    rules = [rule for rule in options.rules if _applies(rule, stated)]
    rule = next((rule for rule in rules if _matches(rule, exc)), None)
    if rule is None and found.rule is not None:
        return found
    if rule is None:
        rule = next((rule for rule in rules if rule.match is found.failure.reason), None)
    return Classified(_with_rule(found.failure, rule), rule)


def _understood(
    exc: BaseException, stated: Transient | Permanent | None, options: _Options, depth: int
) -> Classified:
    """Return the failure that the exception means before the function's own rules apply.

    A rule in the result belongs to a group's member.
    """
    if stated is not None:
        return Classified(
            _with_stated_verdict(stated, understand(exc, now=options.now, provider=options.provider))
        )
    if (own := _refusal(exc) or _misuse(exc) or _step_failure(exc) or _store_failure(exc)) is not None:
        return Classified(own)
    if (classified := _call_classifiers(exc, options.classifiers)) is not None:
        return Classified(classified)
    observed = understand(exc, now=options.now, provider=options.provider)
    if depth < _DEEPEST_GROUP and (
        isinstance(exc, BaseExceptionGroup) or observed.verdict is Verdict.UNKNOWN
    ):
        causes, _ = chain(exc)
        group = next((link for link in causes if isinstance(link, BaseExceptionGroup)), None)
        if group is not None:
            return _of_members(group, options, depth)
    return Classified(observed)


def _stated(exc: BaseException) -> Transient | Permanent | None:
    """Return the verdict that the task raised, even if another exception wraps it."""
    causes, _ = chain(exc)
    return next((link for link in causes if isinstance(link, Transient | Permanent)), None)


def _with_stated_verdict(stated: Transient | Permanent, observed: Failure) -> Failure:
    # A verdict that the task raised charges an attempt. A capacity reason of the upstream would charge none.
    reason = Reason.UNKNOWN if observed.reason in CAPACITY_REASONS else observed.reason
    failure = replace(observed, reason=reason, is_stated=True, evidence=f"raised {type(stated).__name__}")
    if isinstance(stated, Permanent):
        return replace(failure, verdict=Verdict.PERMANENT, reason=_reason_stated(stated, reason))
    if isinstance(stated, RetryAfter):
        failure = replace(
            failure, reason=Reason.RATE_LIMIT, wait_seconds=_usable_wait(peek(stated, "seconds"))
        )
    return replace(failure, verdict=Verdict.TRANSIENT)


def _reason_stated(stated: Permanent, observed: Reason) -> Reason:
    """Return the reason that the task gave; otherwise that of the error behind it, or `rejected`."""
    named = peek(stated, "reason")
    found = next((reason for reason in Reason if reason == named), observed)
    return Reason.REJECTED if found is Reason.UNKNOWN else found


def _refusal(exc: BaseException) -> Failure | None:
    """Return what a refused call means: the upstream is parked, or the call can never be admitted."""
    causes, _ = chain(exc)
    refusal = next((link for link in causes if isinstance(link, UpstreamError)), None)
    if refusal is None:
        return None
    if isinstance(refusal, CallTooLargeError):
        return Failure(Verdict.PERMANENT, Reason.TOO_LARGE, evidence="larger than the upstream's whole limit")
    # The upstream is parked, for any reason: the task waits without a charged attempt.
    given = refusal.facts.get("reason")
    reason = next((reason for reason in CAPACITY_REASONS if reason == given), Reason.OVERLOADED)
    return Failure(
        Verdict.TRANSIENT,
        reason,
        wait_seconds=_usable_wait(refusal.facts.get("wait_seconds")),
        is_refusal=True,
        upstream=str(refusal.facts.get("upstream", "")),
        evidence=f"upstream {refusal.facts.get('upstream', '')} parked ({given})",
    )


def _misuse(exc: BaseException) -> Failure | None:
    """Return what a wrong call of Tidegate by the task function means: it fails again in every run."""
    causes, _ = chain(exc)
    misuse = next((link for link in causes if isinstance(link, UsageError)), None)
    # These depend on the store or on other processes, so the next run may succeed.
    if misuse is None or isinstance(
        misuse,
        NotAcceptedError | KeyConflictError | UnknownUpstreamError | UnknownScheduleError,
    ):
        return None
    return Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        message=message_of(misuse),
        evidence=f"class {class_name_of(misuse)}",
    )


def _step_failure(exc: BaseException) -> Failure | None:
    """Return the failure of a step that cannot be done: no retry helps."""
    causes, _ = chain(exc)
    error = next((link for link in causes if isinstance(link, StepError)), None)
    if error is None:
        return None
    reason = Reason.INVALID_REQUEST
    if isinstance(error, StepInDoubtError):
        reason = Reason.IN_DOUBT
    elif isinstance(error, StepRejectedError | ProviderJobFailedError):
        reason = Reason.REJECTED
    elif isinstance(error, EventTimeoutError | ProviderJobTimeoutError | ApprovalTimeoutError):
        reason = Reason.TIMEOUT
    return Failure(
        Verdict.PERMANENT, reason, message=message_of(error), evidence=f"class {class_name_of(error)}"
    )


def _store_failure(exc: BaseException) -> Failure | None:
    """Return what an error of the store means: the same run may succeed when the store answers again.

    The reason is unknown, as the error says nothing of the task's upstream.
    """
    causes, _ = chain(exc)
    error = next((link for link in causes if isinstance(link, StoreError)), None)
    if error is None:
        return None
    return Failure(
        Verdict.TRANSIENT,
        Reason.UNKNOWN,
        message=message_of(error),
        evidence=f"class {class_name_of(error)}: the store did not answer",
    )


def _call_classifiers(exc: BaseException, classifiers: Iterable[Classifier]) -> Failure | None:
    causes, _ = chain(exc)
    for classifier in classifiers:
        for link in causes:
            try:
                failure = classifier(link)
                if isinstance(failure, Failure):
                    return _checked(failure, classifier)
            except BaseException:  # noqa: S112 - a classifier must not be able to break recording
                continue
    return None


def _checked(failure: Failure, classifier: Classifier) -> Failure:
    """Return a classifier's failure with storable fields. Raises if a field has a wrong type."""
    name = str(getattr(classifier, "__name__", type(classifier).__name__))
    return Failure(
        Verdict(failure.verdict),
        Reason(failure.reason),
        message=redacted_text(failure.message, MESSAGE_LIMIT),
        wait_seconds=_usable_wait(failure.wait_seconds),
        status=None if failure.status is None else int(failure.status),
        code=redacted_text(failure.code, _SHORT),
        request_id=redacted_text(failure.request_id, _SHORT),
        evidence=redacted_text(failure.evidence, _SHORT) or f"classifier {name}",
    )


def _of_members(group: BaseExceptionGroup[BaseException], options: _Options, depth: int) -> Classified:
    pairs = [(_classified(member, options, depth + 1), member) for member in group.exceptions[:_MOST_MEMBERS]]
    relevant = [pair for pair in pairs if pair[0].failure.reason is not Reason.CANCELLED] or pairs
    found, member = max(relevant, key=lambda pair: _weight(pair[0].failure))
    failure = replace(
        found.failure,
        message=redacted_text(
            f"{message_of(group)}: {class_name_of(member)}: {message_of(member)}", MESSAGE_LIMIT
        ),
        evidence=f"{found.failure.evidence} (in {class_name_of(member)})",
    )
    return replace(found, failure=failure)


def _weight(failure: Failure) -> tuple[int, float]:
    severity = (Verdict.TRANSIENT, Verdict.UNKNOWN, Verdict.PERMANENT).index(failure.verdict)
    return severity, -1.0 if failure.wait_seconds is None else failure.wait_seconds


def _matches(rule: Rule, exc: BaseException) -> bool:
    try:
        return isinstance(rule.match, type) and isinstance(exc, rule.match)
    except Exception:
        # A metaclass can make isinstance raise.
        return False


def _applies(rule: Rule, stated: Transient | Permanent | None) -> bool:
    if stated is None or rule.retry is isinstance(stated, Transient):
        return True
    return isinstance(rule.match, type) and issubclass(rule.match, Transient | Permanent)


def _with_rule(failure: Failure, rule: Rule | None) -> Failure:
    if rule is None:
        return failure
    name = rule.match.value if isinstance(rule.match, Reason) else rule.match.__name__
    evidence = f" ({failure.evidence})" if failure.evidence else ""
    return replace(
        failure,
        verdict=Verdict.TRANSIENT if rule.retry else Verdict.PERMANENT,
        evidence=f"rule on {name}{evidence}",
    )


def _with_description(failure: Failure, exc: BaseException) -> Failure:
    return replace(
        failure,
        message=failure.message or message_of(exc),
        error_class=class_name_of(exc),
        evidence=redacted_text(failure.evidence, _SHORT),
        traceback=traceback_of(exc),
    )


def _with_bounded_wait(failure: Failure, longest_wait_seconds: float) -> Failure:
    """Return the failure with its wait bounded, or without a wait if it is permanent."""
    if failure.verdict is Verdict.PERMANENT or failure.wait_seconds is None:
        return replace(failure, wait_seconds=None)
    return replace(failure, wait_seconds=min(max(0.0, failure.wait_seconds), longest_wait_seconds))


def _usable_wait(wait: object) -> float | None:
    if isinstance(wait, bool) or not isinstance(wait, int | float) or math.isnan(wait):
        return None
    return clamp_wait(wait)
