"""What an answer tells: its limits, its usage, and whether it is a failure after all."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from tidegate.domain.failure import Failure
from tidegate.domain.permit import CallEnd
from tidegate.domain.usage import SeenLimit, Usage
from tidegate.providers.limits import seen_limits
from tidegate.providers.packs import pack_for
from tidegate.providers.understand import understand_answer
from tidegate.providers.usage import later, usage_of
from tidegate.providers.waits import Headers
from tidegate.upstream._endings import is_in_doubt
from tidegate.upstream.settings import CallSettings

_LONGEST_LINE = 4_000_000
_TELLING = (b"usage", b"error", b"eval_count", b"failed")
"""Pieces of a stream that hold none of these are not looked into."""


def limits_of(headers: Headers, *, status: int | None, host: str, provider: str) -> tuple[SeenLimit, ...]:
    """Return what the headers of an answer show of limits.

    A 429 names its wait, or the gate looks for itself: its resets, often of a full bucket, add nothing.

    Args:
        headers: A mapping or pairs.
        status: Of the answer; None: not known, and taken for a good one.
        host: Who answered; empty: not known.
        provider: Whose meanings to go by where the host tells nothing.
    """
    seen = seen_limits(headers, now=time.time(), pack=pack_for(host=host, provider=provider))
    if status != HTTPStatus.TOO_MANY_REQUESTS:
        return seen
    return tuple(replace(limit, reset_seconds=None) for limit in seen)


def is_read_whole(response: Any) -> bool:
    """Return whether the answer is read before it is handed on: errors and JSON are, streams are not."""
    kind: str = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    status: int = response.status_code
    return status >= 400 or kind == "application/json" or kind.endswith("+json")


def end_of_answer(
    response: Any, body: bytes, settings: CallSettings, host: str, *, seconds: float
) -> CallEnd:
    """Return how a call ended whose whole answer is there. Gives the answer the status it really has.

    Some providers answer 200 with an error whose code is the status they meant. It gets that status, so
    that the SDK raises instead of handing on an answer without content.
    """
    document = _parsed(body)
    status: int = response.status_code
    failure = None
    if status >= 400 or _tells_error(document):
        failure = understand_answer(
            status,
            response.headers.multi_items(),
            body if document is None else document,
            now=time.time(),
            provider=settings.meant_by,
            host=host,
        )
    if status < 400 and failure is not None and (meant := _meant_status(document)) is not None:
        response.status_code = meant
    if response.status_code >= 400:
        response.headers["x-should-retry"] = "false"
    usage = None if document is None else usage_of(document)
    return CallEnd(failure, status, usage, seconds, in_doubt=is_in_doubt(status))


class StreamReader:
    """Reads usage and errors out of a stream while it passes: server-sent events, or JSON a line.

    Args:
        settings: Of the call.
        host: Who answers.
        readable: False where the bytes are compressed; nothing is read then.
    """

    def __init__(self, settings: CallSettings, host: str, *, readable: bool = True) -> None:
        self._settings = settings
        self._host = host
        self._readable = readable
        self._rest = b""
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        """What the stream itself told of an error."""

    def feed(self, piece: bytes) -> None:
        """Look at the next bytes. Never raises."""
        if not self._readable:
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._read(line)
        if len(self._rest) > _LONGEST_LINE:
            self._readable, self._rest = False, b""

    def finish(self) -> None:
        """Look at what came last, without an end of line."""
        rest, self._rest = self._rest, b""
        self._read(rest)

    def _read(self, line: bytes) -> None:
        text = line.removeprefix(b"data:").strip()
        if not text.startswith((b"{", b"[")) or not any(word in text for word in _TELLING):
            return
        document = _parsed(text)
        if document is None:
            return
        self.usage = later(self.usage, usage_of(document))
        inner = document.get("response")
        for told in (document, inner if isinstance(inner, dict) else None):
            if _tells_error(told):
                self.failure = understand_answer(
                    None, (), told, now=time.time(), provider=self._settings.meant_by, host=self._host
                )


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, list) and document:
        document = document[0]
    return document if isinstance(document, dict) else None


def _tells_error(document: dict[str, Any] | None) -> bool:
    """Return whether a document is an error, whatever the status beside it."""
    return document is not None and bool(document.get("error") or document.get("status") == "failed")


def _meant_status(document: dict[str, Any] | None) -> int | None:
    error = None if document is None else document.get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code <= 599 else None
