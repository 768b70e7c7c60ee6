"""The outcome of a run whose normal outcome cannot be decided or stored.

Options, retry rules, classifiers and codecs are user code and values. An error in one of them must never
leave a run open. Such a run is dead, and its failure names the broken option and the function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields

from tidegate.domain.failure import MESSAGE_LIMIT, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Dead, Fence, Outcome
from tidegate.domain.spec import Backoff, Jitter, Rule, TaskSpec
from tidegate.domain.text import redacted_text
from tidegate.policy.describe import class_name_of, message_of, traceback_of

_SHOWN = 200
"""An option's value is cut to this many characters."""


def undecidable_outcome(
    fence: Fence, spec: TaskSpec, fault: BaseException, failure: Failure | None = None
) -> Dead:
    """Return the outcome of a run whose normal outcome could not be decided. Never raises.

    Args:
        fence: The run.
        spec: The settings of its function.
        fault: The error that was raised while the outcome was decided.
        failure: The failure of the run itself, if known.
    """
    cause = _cause(spec, fault)
    return Dead(
        fence,
        undecidable_failure(spec, fault, failure),
        Charge.ATTEMPT,
        redacted_text(
            f"its outcome cannot be decided ({cause}): fix the options, rules or classifiers of "
            f"{spec.name}, then redrive",
            MESSAGE_LIMIT,
        ),
    )


def undecidable_failure(spec: TaskSpec, fault: BaseException, failure: Failure | None = None) -> Failure:
    """Return the failure of a run whose outcome could not be decided. Never raises."""
    before = f"; the run itself failed: {failure.error_class}: {failure.message}" if failure else ""
    return Failure(
        Verdict.PERMANENT,
        Reason.UNKNOWN if failure is None else failure.reason,
        message=redacted_text(
            f"{spec.name}: the outcome of this run cannot be decided ({_cause(spec, fault)}){before}",
            MESSAGE_LIMIT,
        ),
        error_class=class_name_of(fault),
        evidence="deciding the outcome failed",
        traceback=traceback_of(fault),
    )


def _cause(spec: TaskSpec, fault: BaseException) -> str:
    with contextlib.suppress(BaseException):  # an option may be any object, which may raise anything
        if unusable := "; ".join(unusable_options(spec)):
            return unusable
    return f"{class_name_of(fault)}: {message_of(fault)}"


def unwritable_outcome(outcome: Outcome, fault: Exception) -> Dead:
    """Return the outcome of a run whose normal outcome the store cannot write. Never raises."""
    cause = f"{class_name_of(fault)}: {message_of(fault)}"
    message = f"its outcome ({type(outcome).__name__}) cannot be stored: {cause}"
    failure = Failure(
        Verdict.PERMANENT,
        Reason.UNKNOWN,
        message=redacted_text(message, MESSAGE_LIMIT),
        error_class=class_name_of(fault),
        evidence="storing the outcome failed",
        traceback=traceback_of(fault),
    )
    return Dead(outcome.fence, failure, Charge.ATTEMPT, redacted_text(message, MESSAGE_LIMIT))


def unusable_options(spec: TaskSpec) -> Iterator[str]:
    """Yield the name and value of each option that makes it impossible to decide an outcome."""
    yield from _unusable_backoff("backoff", spec.backoff)
    for name in ("timeout", "total_timeout", "max_attempts", "cancel_grace"):
        value = getattr(spec, name)
        if value is not None and not is_duration(value):
            yield f"{name}={_format_value(value)}"
    if not isinstance(spec.rules, tuple):
        yield f"retry rules {_format_value(spec.rules)}"
        return
    for rule in spec.rules:
        if not isinstance(rule, Rule):
            yield f"retry rule {_format_value(rule)}"
        elif rule.wait is not None:
            yield from _unusable_backoff(f"wait of the retry rule on {rule.name}", rule.wait)


def is_duration(value: object) -> bool:
    """Return whether a value is a number that is not NaN and not below 0; infinity is allowed."""
    return isinstance(value, (int, float)) and value >= 0  # false for NaN


def _unusable_backoff(name: str, backoff: object) -> Iterator[str]:
    values = (
        [getattr(backoff, field.name) for field in fields(backoff)]
        if isinstance(backoff, Backoff)
        else [None]
    )
    if not all(is_duration(value) or isinstance(value, Jitter) for value in values):
        yield f"{name}={_format_value(backoff)}"


def _format_value(value: object) -> str:
    try:
        return redacted_text(repr(value), _SHOWN)
    except BaseException as fault:  # `repr` of any object may raise anything
        return f"a {class_name_of(fault)} raised by its repr"
