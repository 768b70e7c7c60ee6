"""The requests and replies that pass between the connection and the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

JSON = "application/json"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, whole."""

    method: str
    target: str
    """Path and query, as sent."""
    headers: Mapping[str, str]
    """Names in lower case; of a repeated header the last value."""
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP response: a body, or chunks with a pause between them."""

    status: int
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()
    """Sent instead of `body` if there are any."""
    pause_seconds: float = 0.0
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, headers: Mapping[str, str]) -> Reply:
        """Return the reply with more headers; its own win."""
        return replace(self, headers={**headers, **self.headers})


@dataclass(frozen=True, slots=True)
class NoReply:
    """The request gets no response."""

    ending: Literal["hang", "reset"]


def json_reply(status: int, content: object, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a response with `content` as JSON."""
    return Reply(status, msgspec.json.encode(content), headers=headers or {})
