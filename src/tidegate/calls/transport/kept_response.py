"""A response that is kept with its task: how it is stored, and how it is given to a client again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.providers.evidence import REQUEST_ID_HEADERS

KEPT_CODEC = "http/1"
"""The name of the stored form: a line of JSON with the status and the headers, then the body."""
REPLAYED_HEADER = "x-tidegate-replayed"
"""The header that marks a response which comes from the record."""
_KEPT_HEADERS = frozenset({"content-type", "content-encoding", *REQUEST_ID_HEADERS})
"""What SDKs read of a response. Rate limits and cookies would be out of date, or secret."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that was received before."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes
    """The bytes as the provider sent them: compressed, or the text of a stream."""

    @classmethod
    def of(cls, response: Any, body: bytes) -> KeptResponse:
        """Return what is kept of a response."""
        headers = [pair for pair in response.headers.multi_items() if pair[0].lower() in _KEPT_HEADERS]
        return cls(response.status_code, headers, body)

    @classmethod
    def load(cls, data: bytes, codec: str) -> KeptResponse:
        """Return a stored response. A result that a person gave is the JSON body of a response."""
        if codec != KEPT_CODEC:
            return cls(200, [("content-type", "application/json")], data)
        head, _, body = data.partition(b"\n")
        fields = json.loads(head)
        return cls(fields["status"], [(name, value) for name, value in fields["headers"]], body)

    def dump(self) -> bytes:
        """Return the stored form."""
        head = json.dumps({"status": self.status, "headers": self.headers}, separators=(",", ":"))
        return head.encode() + b"\n" + self.body

    def response(self, library: Any, request: Any) -> Any:
        """Return it as a response of the client's library."""
        headers = [*self.headers, ("content-length", str(len(self.body))), (REPLAYED_HEADER, "true")]
        return library.Response(
            self.status, headers=headers, stream=library.ByteStream(self.body), request=request
        )
