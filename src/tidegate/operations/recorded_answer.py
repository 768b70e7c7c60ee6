"""A provider's response to a failed call, as far as the task's history kept it.

A history has the status, the provider's code, the request id and the error's text, but not the response. The
clients of OpenAI, Anthropic and others quote the body in the error's text, so the body is taken from there.
Otherwise a body is made from the code and the text.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from tidegate.domain.failure import Reason
from tidegate.domain.redaction import STARS
from tidegate.store.rows import HistoryRow

_QUOTED = re.compile(r"Error code: (?P<status>\d{3}) - (?P<rest>.*)$", re.DOTALL)
"""The error text of clients that Stainless generates: openai, anthropic, groq and others. The rest is the
body as a Python literal, or the body's message (openai 3)."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A provider's response, or what came instead of a response."""

    status: int = 0
    body: Any = None
    """The body of the response as JSON values."""
    request_id: str = ""
    error: str = ""
    """`timeout`: no response came in time. `connection`: no connection could be made. Empty: neither."""
    is_quoted: bool = False
    """Whether the error's text quotes the body, so that the same client makes the same text from this
    body."""


def recorded_answer(failed: HistoryRow) -> RecordedAnswer | None:
    """Return the provider's response in a failed run; None if it is unknown whether a call failed."""
    if failed.status is not None:
        quoted = _quoted(failed)
        if isinstance(quoted, dict):
            return RecordedAnswer(failed.status, quoted, failed.request_id, is_quoted=True)
        made = {"error": {"message": quoted or failed.message, "code": failed.code or None}}
        return RecordedAnswer(failed.status, made, failed.request_id, is_quoted=quoted is not None)
    if failed.reason == Reason.TIMEOUT:
        return RecordedAnswer(error="timeout")
    if failed.reason == Reason.NETWORK:
        return RecordedAnswer(error="connection")
    return None


def _quoted(failed: HistoryRow) -> dict[str, Any] | str | None:
    """Return the body that the error's text quotes, or the body's message; None if it quotes neither."""
    found = _QUOTED.search(failed.message)
    if found is None or int(found["status"]) != failed.status or STARS in found["rest"]:
        return None  # the masked part may be needed to understand the error
    try:
        body = ast.literal_eval(found["rest"])
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # there is no body, or it was cut
        return None if found["rest"].startswith(("{", "'", "<")) else found["rest"]
    return body if isinstance(body, dict) else None
