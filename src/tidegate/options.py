"""What a caller may say of one task when it is enqueued, checked here and turned into plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidegate.domain.spec import Priority
from tidegate.errors import OptionError
from tidegate.readers import (
    Deadline,
    Seconds,
    attempts_option,
    instant_option,
    key_option,
    limit_option,
    name_option,
    positive_option,
    require_before_deadline,
    seconds_option,
    wrong,
)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one enqueue; what is not given is the task function's own."""

    queue: str | None = None
    priority: Priority | None = None
    tenant: str = ""
    delay_seconds: float = 0.0
    run_at: float | None = None
    total_timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    """From the enqueue; infinite: none, though the function has one."""
    deadline_at: float | None = None
    """A moment the caller named."""
    timeout_seconds: float | None = None
    max_attempts: int | None = None
    key: str | None = None
    key_seconds: float = 7 * 86_400.0
    unique_seconds: float | None = None
    unique: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def make_options(
    *,
    queue: str | None = None,
    priority: Priority | str | None = None,
    tenant: str | None = None,
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    total_timeout: Seconds | None = None,
    deadline: Deadline | None = None,
    timeout: Seconds | None = None,
    max_attempts: int | None = None,
    key: str | None = None,
    key_kept: Seconds | None = None,
    unique: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Options:
    """Check what a caller gave; see `TaskFunction.using` for the meaning of each.

    Raises:
        OptionError: A value cannot work; it names the option, the value and the fix.
    """
    if delay is not None and run_at is not None:
        raise OptionError(
            "both delay and run_at are given", fix="give one of them", option="delay", value=delay
        )
    delay_seconds = 0.0 if delay is None else seconds_option("delay", delay)
    deadline_at = instant_option("deadline", deadline) if isinstance(deadline, datetime) else None
    deadline_seconds = None
    if deadline is not None and not isinstance(deadline, datetime):
        deadline_seconds = limit_option("deadline", deadline)
    require_before_deadline(delay_seconds, deadline_seconds)
    return Options(
        queue=None if queue is None else name_option("queue", queue),
        priority=None if priority is None else priority_option(priority),
        tenant="" if tenant is None else name_option("tenant", tenant),
        delay_seconds=delay_seconds,
        run_at=None if run_at is None else instant_option("run_at", run_at),
        total_timeout_seconds=None if total_timeout is None else limit_option("total_timeout", total_timeout),
        deadline_seconds=deadline_seconds,
        deadline_at=deadline_at,
        timeout_seconds=None if timeout is None else positive_option("timeout", timeout),
        max_attempts=None if max_attempts is None else attempts_option(max_attempts),
        key=None if key is None else key_option("key", key),
        key_seconds=7 * 86_400.0 if key_kept is None else positive_option("key_kept", key_kept),
        unique=unique is not None,
        unique_seconds=None if unique is None else _unique_seconds(unique),
        labels=_labels(labels or {}),
    )


def priority_option(value: Priority | str) -> Priority:
    """Return the priority of that name."""
    if isinstance(value, Priority):
        return value
    try:
        return Priority[value.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(priority.word for priority in Priority)
        raise wrong("priority", value, f"use one of {names}: the most urgent first") from None


def _unique_seconds(value: str) -> float | None:
    """Return how long equal tasks are refused; None for until the final state."""
    if value == "until_final":
        return None
    try:
        return positive_option("unique", value)
    except OptionError as error:
        fix = 'use "until_final", or a time above 0 such as 90s, 15m, 1h, 7d; a century at most'
        raise OptionError(error.message, fix=fix, **error.facts) from None


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise wrong("labels", labels, 'give names and values: {"document": "7"}')
    if len(labels) > 32:
        raise OptionError(
            f"{len(labels)} labels",
            fix="use 32 at most; put data into the arguments",
            option="labels",
            value=labels,
        )
    return {
        name_option("label name", name): name_option(f"label {name}", value) for name, value in labels.items()
    }
