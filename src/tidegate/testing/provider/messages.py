"""What passes between the wire and the model: a request as read, and what is to be sent back."""

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
    """One HTTP answer: a body, or chunks with a pause before each but the first."""

    status: int
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()
    """Sent instead of `body` where there are any."""
    pause_seconds: float = 0.0
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, headers: Mapping[str, str]) -> Reply:
        """Return the reply with more headers; its own win."""
        return replace(self, headers={**headers, **self.headers})


@dataclass(frozen=True, slots=True)
class NoReply:
    """The request is left without an answer."""

    ending: Literal["hang", "reset"]


def json_reply(status: int, content: object, headers: Mapping[str, str] | None = None) -> Reply:
    """Return an answer that holds `content` as JSON."""
    return Reply(status, msgspec.json.encode(content), headers=headers or {})
