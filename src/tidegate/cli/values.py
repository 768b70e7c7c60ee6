"""Converts the text of options and arguments to values. Text that cannot be converted is a usage error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from tidegate.domain.ids import SHORTEST, id_or_none, id_range
from tidegate.domain.readers import instant_from_text, name_option, seconds_option, shown
from tidegate.domain.spec import Priority
from tidegate.errors import OptionError
from tidegate.options import priority_option

T = TypeVar("T")


def as_task_id(text: str) -> str:
    """Return a task id in its canonical form, or a short id in lower case. A type for click."""
    found = id_or_none(text)
    if found is None and id_range(text) is None:
        what = f"is not a task id (a UUID, or at least {SHORTEST} of its first digits)"
        raise click.BadParameter(f"{shown(text)} {what}")
    return found or text.strip().lower()


def as_seconds(text: str) -> float:
    """Return the seconds of `90`, `15m` or `1h`. A type for click."""
    return _checked(lambda: seconds_option("duration", text), text)


def as_deadline(text: str) -> float | datetime:
    """Return the seconds of `15m`, or the time of an ISO 8601 text. A type for click."""
    if text[:4].isdigit() and text[4:5] == "-":
        return _checked(lambda: instant_from_text("deadline", text), text)
    return as_seconds(text)


def as_moment(text: str) -> datetime:
    """Return the time of an ISO 8601 text. A type for click."""
    return instant_from_text("run_at", text)


def as_priority(text: str) -> Priority:
    """Return a priority by its name. A type for click."""
    return _checked(lambda: priority_option("priority", text), text)


def as_named_value(text: str) -> tuple[str, str]:
    """Return the two parts of `name=value`. A type for click."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{shown(text)}: write name=value")
    return name, value


def _checked(read: Callable[[], T], text: str) -> T:
    try:
        return read()
    except OptionError as error:
        raise click.BadParameter(f"{shown(text)}: {error.fix}") from None


def as_labels(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return labels from repeated `--label` options."""
    return {name_option("label name", name): text for name, text in pairs}


def as_age_or_moment(text: str) -> float | datetime:
    """Return the seconds of an age such as `7d`, or the time of an ISO 8601 text. A type for click.

    Raises:
        OptionError: The text is neither.
    """
    try:
        return seconds_option("before", text)
    except OptionError:
        return instant_from_text("before", text)


def json_or_text(text: str) -> Any:
    """Return the JSON value of a text, or the text itself if it is not JSON."""
    try:
        return strict_json(text)
    except ValueError:
        return text


def strict_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: The text is not JSON. NaN and Infinity are not JSON.
    """
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
