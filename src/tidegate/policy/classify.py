"""What a failure means: one decision, from the user's rules down to the name of a class."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.domain.failure import CAPACITY_REASONS, MESSAGE_LIMIT, Failure, Reason, Verdict
from tidegate.domain.spec import Rule
from tidegate.domain.text import presentable
from tidegate.errors import (
    CallTooLargeError,
    KeyConflictError,
    NotAcceptedError,
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
"""A user's own judgement of an exception; None leaves it to the next. One that raises is passed over."""

_DEEPEST_GROUP = 10
_MOST_MEMBERS = 1_000
_SHORT = 300


@dataclass(frozen=True, slots=True)
class Classified:
    """A failure, understood, and the rule of `retry=[…]` that applies to it."""

    failure: Failure
    rule: Rule | None = None
    """Its wait and its own count of attempts hold for this failure; None when no rule matched."""


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

    In this order: the first rule that names a class of the exception; `Permanent`, `Transient` and
    `RetryAfter` raised by the task; the user's classifiers; the HTTP answer the exception carries, as its
    provider means it; the names of its classes; unknown. Explicit causes are walked throughout, implicit
    contexts only for the evidence. A rule that names a reason applies to what the others found.

    A rule turns the verdict: `retry=True` to transient, `retry=False` to permanent; reason and wait stay
    as found. Against a verdict the task itself raised only a rule that names such a class counts, so that
    `on(Exception)` does not repeat what raised `Permanent`.

    Of an ExceptionGroup the cancelled members are ignored; one permanent member makes it permanent, else
    one unknown makes it unknown, else the member with the longest wait stands for it.

    Args:
        exc: What the body raised.
        rules: The task function's, the first match counts.
        now: Seconds since the epoch, UTC; dates in headers are measured against it.
        classifiers: Asked in order.
        provider: Whom the task's upstream declares to call (`providers/packs/`).
        longest_wait_seconds: A server that asks for more is believed this much.
    """
    options = _Options(tuple(rules), tuple(classifiers), now, provider)
    try:
        found = _classified(exc, options)
    except BaseException as fault:
        # A failure that is not understood must still be recorded, and retried as unknown.
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
    """Return what the exception means before its own rules; a rule here is that of a group's member."""
    if stated is not None:
        return Classified(
            _with_stated_verdict(stated, understand(exc, now=options.now, provider=options.provider))
        )
    if (refused := _refusal(exc) or _misuse(exc)) is not None:
        return Classified(refused)
    if (judged := _ask_classifiers(exc, options.classifiers)) is not None:
        return Classified(judged)
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
    """Return the verdict the task raised, be it behind a wrapper."""
    causes, _ = chain(exc)
    return next((link for link in causes if isinstance(link, Transient | Permanent)), None)


def _with_stated_verdict(stated: Transient | Permanent, observed: Failure) -> Failure:
    # What a task says charges an attempt, which a fact about the upstream would not.
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
    """Return the reason a task gave, else that of the error behind it, else that the task said so."""
    named = peek(stated, "reason")
    found = next((reason for reason in Reason if reason == named), observed)
    return Reason.REJECTED if found is Reason.UNKNOWN else found


def _refusal(exc: BaseException) -> Failure | None:
    """Return what a call means that was not made: the upstream is parked, or it can never be let through."""
    causes, _ = chain(exc)
    refusal = next((link for link in causes if isinstance(link, UpstreamError)), None)
    if refusal is None:
        return None
    if isinstance(refusal, CallTooLargeError):
        return Failure(Verdict.PERMANENT, Reason.TOO_LARGE, evidence="larger than the upstream's whole limit")
    # Whatever parked it is a fact about the upstream: the task waits, uncharged.
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
    """Return what a wrong call of Tidegate by the body means: the same call is refused in every run."""
    causes, _ = chain(exc)
    misuse = next((link for link in causes if isinstance(link, UsageError)), None)
    # What the store holds, or another process declares, may be different next time.
    if misuse is None or isinstance(misuse, NotAcceptedError | KeyConflictError | UnknownUpstreamError):
        return None
    return Failure(
        Verdict.PERMANENT,
        Reason.INVALID_REQUEST,
        message=message_of(misuse),
        evidence=f"class {class_name_of(misuse)}",
    )


def _ask_classifiers(exc: BaseException, classifiers: Iterable[Classifier]) -> Failure | None:
    causes, _ = chain(exc)
    for classifier in classifiers:
        for link in causes:
            try:
                judged = classifier(link)
                if isinstance(judged, Failure):
                    return _checked(judged, classifier)
            except BaseException:  # noqa: S112 - a classifier must not be able to break recording
                continue
    return None


def _checked(judged: Failure, classifier: Classifier) -> Failure:
    """Return a user's failure with fields that can be stored; raises where they are of another kind."""
    name = str(getattr(classifier, "__name__", type(classifier).__name__))
    return Failure(
        Verdict(judged.verdict),
        Reason(judged.reason),
        message=presentable(judged.message, MESSAGE_LIMIT),
        wait_seconds=_usable_wait(judged.wait_seconds),
        status=None if judged.status is None else int(judged.status),
        code=presentable(judged.code, _SHORT),
        request_id=presentable(judged.request_id, _SHORT),
        evidence=presentable(judged.evidence, _SHORT) or f"classifier {name}",
    )


def _of_members(group: BaseExceptionGroup[BaseException], options: _Options, depth: int) -> Classified:
    judged = [
        (_classified(member, options, depth + 1), member) for member in group.exceptions[:_MOST_MEMBERS]
    ]
    relevant = [pair for pair in judged if pair[0].failure.reason is not Reason.CANCELLED] or judged
    found, member = max(relevant, key=lambda pair: _weight(pair[0].failure))
    failure = replace(
        found.failure,
        message=presentable(
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
        # A metaclass may answer isinstance as it likes.
        return False


def _applies(rule: Rule, stated: Transient | Permanent | None) -> bool:
    if stated is None or rule.retry is isinstance(stated, Transient):
        return True
    return isinstance(rule.match, type) and issubclass(rule.match, Transient | Permanent)


def _with_rule(failure: Failure, rule: Rule | None) -> Failure:
    if rule is None:
        return failure
    name = rule.match.value if isinstance(rule.match, Reason) else rule.match.__name__
    beside = f" ({failure.evidence})" if failure.evidence else ""
    return replace(
        failure,
        verdict=Verdict.TRANSIENT if rule.retry else Verdict.PERMANENT,
        evidence=f"rule on {name}{beside}",
    )


def _with_description(failure: Failure, exc: BaseException) -> Failure:
    return replace(
        failure,
        message=failure.message or message_of(exc),
        error_class=class_name_of(exc),
        evidence=presentable(failure.evidence, _SHORT),
        traceback=traceback_of(exc),
    )


def _with_bounded_wait(failure: Failure, longest_wait_seconds: float) -> Failure:
    """Return the failure with its wait bounded; a permanent one has nothing to wait for."""
    if failure.verdict is Verdict.PERMANENT or failure.wait_seconds is None:
        return replace(failure, wait_seconds=None)
    return replace(failure, wait_seconds=min(max(0.0, failure.wait_seconds), longest_wait_seconds))


def _usable_wait(wait: object) -> float | None:
    if isinstance(wait, bool) or not isinstance(wait, int | float) or math.isnan(wait):
        return None
    return clamp_wait(wait)
