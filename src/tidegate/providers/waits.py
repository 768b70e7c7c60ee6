"""Reads how long a server asked us to wait, from the headers and body of its response.

It only reads. Other modules decide what to do with the wait; `clamp_wait` bounds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tidegate.providers._bodies import Document, as_document, error_part, members, message_text
from tidegate.providers._moments import (
    read_duration,
    read_moment,
    read_number,
    read_reset,
    read_spoken_reset,
    read_spoken_wait,
)

Headers = Mapping[str, str] | Iterable[tuple[str, str]]

LONGEST_WAIT_SECONDS = 86_400.0
"""A longer wait is cut to this: one day. This is our choice; no specification sets a limit."""

_MILLISECOND_HEADERS = ("retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after")
_BODY_SECONDS = (
    "retry_after",
    "retryAfter",
    "retry_after_seconds",
    "retryAfterSeconds",
    "retry-after",
    "estimated_time",
)
_BODY_RESETS = (
    "resets_in_seconds",
    "reset_in_seconds",
    "resets_in",
    "reset_after",
    "reset_after_seconds",
    "resets_at",
    "reset_at",
    "resetsAt",
    "resetAt",
    "reset_time",
    "resetTime",
    "quotaResetDelay",
    "quotaResetTimeStamp",
)
"""Used by OpenAI's plans, gateways, and Google's `ErrorInfo`. The value is seconds, a duration, or a time."""
_BODY_MILLISECONDS = ("retry_after_ms", "retryAfterMs", "retry-after-ms")
_BARE_RESETS = ("x-ratelimit-reset", "ratelimit-reset")
_MOST_HEADERS = 500
_LONGEST_VALUE = 4_096
_RATELIMIT_ITEM = re.compile(
    r"""\s*(?:"(?:[^"\\]|\\.)*"|[A-Za-z*][\w!#$%&'*+.^`|~:/-]*)"""
    r"""(?P<parameters>(?:\s*;\s*[a-z*][a-z0-9_*.-]*(?:=(?:"(?:[^"\\]|\\.)*"|[^;,"\s]+))?)*)\s*(?:,|$)""",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Answer:
    headers: dict[str, list[str]]
    document: Document
    now: float
    """The server's own time if it sends one, because its dates are by that clock."""


def server_wait(headers: Headers, *, now: float, body: object = None) -> float | None:
    """Return the shortest wait in seconds that the server asked for; None if it named no usable wait.

    0.0 means that the server explicitly asks for no wait. The first usable evidence decides, in this order:
    headers in milliseconds; `Retry-After` (RFC 9110 section 10.2.3; numbers, fractions and dates); fields of
    the body; exhausted items of the IETF draft's `RateLimit`; a "try again in …" or "resets at …" in the
    error's text; the latest reset among the limits with 0 remaining. If a value is given twice, the largest
    valid one is used. The wait is not bounded: see `clamp_wait`.

    Args:
        headers: A mapping or pairs. Names may be in any case and may be repeated. Values that are not text
            are converted to text.
        now: Seconds since the epoch, UTC. A `Date` header is preferred to it.
        body: The error's body: a JSON object, or its text.

    Never raises, for any input.
    """
    answer = _answer(headers, now, body)
    for evidence in _ORDER:
        wait = _guarded(evidence, answer)
        if wait is not None and math.isfinite(wait) and wait >= 0:
            return wait
    return None


def clamp_wait(seconds: float) -> float:
    """Return the wait, bounded to 0 and `LONGEST_WAIT_SECONDS`. NaN counts as 0."""
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS)


def header_pairs(headers: object) -> list[tuple[str, str]]:
    """Return the readable headers as (lower-case name, value). Unreadable headers are left out."""
    pairs: list[tuple[str, str]] = []
    try:
        listing = getattr(headers, "items", None)
        source: Any = listing() if callable(listing) else headers
        for name, value in islice(source, _MOST_HEADERS):
            pairs.extend((_text(name).strip().lower(), text) for text in _texts(value))
    except Exception:
        # A foreign iterable can raise at any item. The headers read until then are kept.
        return pairs
    return pairs


def _answer(headers: object, now: float, body: object) -> _Answer:
    by_name: dict[str, list[str]] = {}
    for name, value in header_pairs(headers):
        by_name.setdefault(name, []).append(value)
    dates = (read_moment(text, now=now) for text in by_name.get("date", ()))
    return _Answer(by_name, as_document(body) or {}, next((date for date in dates if date is not None), now))


def _guarded(evidence: Callable[[_Answer], float | None], answer: _Answer) -> float | None:
    try:
        return evidence(answer)
    except Exception:
        # One malformed value must not hide the rest of the response, and a failure must always be recorded.
        return None


def _milliseconds(answer: _Answer) -> float | None:
    for name in _MILLISECOND_HEADERS:
        wait = _largest(read_number(part) for part in _parts(answer, name))
        if wait is not None:
            return wait / 1_000
    return None


def _retry_after(answer: _Answer) -> float | None:
    return _largest(_number_or_date(part, answer.now) for part in _parts(answer, "retry-after"))


def _body_hint(answer: _Answer) -> float | None:
    error = error_part(answer.document)
    details = list(members(error, "details"))
    nested = [metadata for detail in details for metadata in members(detail, "metadata")]
    for part in (answer.document, error, *members(error, "metadata"), *details, *nested):
        wait = _largest(_hints(part, answer.now))
        if wait is not None:
            return wait
    return None


def _hints(part: Document, now: float) -> Iterator[float | None]:
    for name in _BODY_SECONDS:
        yield _number_or_date(_text(part.get(name)), now)
    for name in _BODY_MILLISECONDS:
        milliseconds = read_number(_text(part.get(name)))
        yield None if milliseconds is None else milliseconds / 1_000
    for name in _BODY_RESETS:
        yield read_reset(_text(part.get(name)), now=now)
    # google.rpc.RetryInfo, a duration such as "34.07s"
    yield read_duration(_text(part.get("retryDelay")))
    if isinstance(inner := part.get("headers"), dict):
        yield server_wait(inner, now=now)


def _ratelimit_field(answer: _Answer) -> float | None:
    return _largest(exhausted_items(",".join(answer.headers.get("ratelimit", ()))))


def exhausted_items(field: str) -> Iterator[float]:
    """Yield `t` of the items with `r=0`; nothing if any part is malformed, as the draft requires."""
    position, waits = 0, []
    while position < len(field):
        item = _RATELIMIT_ITEM.match(field, position)
        if item is None:
            return
        position = item.end()
        parameters = dict(_parameters(item["parameters"]))
        wait = read_number(parameters.get("t", ""))
        if parameters.get("r") == "0" and wait is not None:
            waits.append(wait)
    yield from waits


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    for parameter in text.split(";")[1:]:
        name, _, value = parameter.partition("=")
        yield name.strip(), value.strip()


def _spoken(answer: _Answer) -> float | None:
    text = message_text(answer.document)
    wait = read_spoken_wait(text)
    return read_spoken_reset(text, now=answer.now) if wait is None else wait


def _resets(answer: _Answer) -> float | None:
    """Return the latest reset among the limits with nothing remaining.

    A reset is the time until the limit is full, which is longer than needed, so it is the last evidence.
    A remaining amount of `-1` means unknown. A reset without any remaining amount is used.
    """
    remainders = {
        name: values
        for name, values in answer.headers.items()
        if "remaining" in name and "ratelimit" in name.replace("-", "")
    }
    names = [
        name.replace("remaining", "reset")
        for name, values in remainders.items()
        if any(read_number(value) == 0 for value in values)
    ]
    if not remainders:
        names.extend(_BARE_RESETS)
    return _largest(
        read_reset(text, now=answer.now) for name in names for text in answer.headers.get(name, ())
    )


_ORDER = (_milliseconds, _retry_after, _body_hint, _ratelimit_field, _spoken, _resets)


def _number_or_date(text: str, now: float) -> float | None:
    number = read_number(text)
    if number is not None:
        return number
    moment = read_moment(text, now=now)
    return None if moment is None else max(0.0, moment - now)


def _parts(answer: _Answer, name: str) -> Iterator[str]:
    # HTTP libraries join repeated headers with a comma. A date's own comma only cuts off its weekday.
    for value in answer.headers.get(name, ()):
        yield from value.split(",")


def _largest(waits: Iterable[float | None]) -> float | None:
    return max((wait for wait in waits if wait is not None), default=None)


def _texts(value: object) -> Iterator[str]:
    for item in value if isinstance(value, list | tuple) else [value]:
        yield _text(item)


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value[:_LONGEST_VALUE]).decode("latin-1")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(float(value), ".6f")
    return value[:_LONGEST_VALUE] if isinstance(value, str) else ""
