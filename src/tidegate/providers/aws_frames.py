"""Converts the frames of AWS's binary event streams to lines, which are searched like other streams.

Source: the event stream encoding of the AWS SDKs (botocore 1.44.8 `eventstream.py`). The SDK that reads the
stream verifies the checksums.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_PRELUDE_BYTES = 12
_CHECKSUM_BYTES = 4
_STRING = 7
"""The type of every header that Bedrock sends."""
_LONGEST_FRAME = 16_777_216


class AwsFrames:
    """Splits a binary event stream into lines: the name of each event, and its payload."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines of the frames that these bytes complete.

        Raises:
            ValueError: The bytes are not frames of an event stream.
        """
        self._rest += piece
        while len(self._rest) >= _PRELUDE_BYTES:
            length = int.from_bytes(self._rest[:4], "big")
            headers_end = _PRELUDE_BYTES + int.from_bytes(self._rest[4:8], "big")
            if not headers_end + _CHECKSUM_BYTES <= length <= _LONGEST_FRAME:
                message = "not a frame of an AWS event stream"
                raise ValueError(message)
            if len(self._rest) < length:
                return
            headers = dict(_headers(self._rest[_PRELUDE_BYTES:headers_end]))
            payload = self._rest[headers_end : length - _CHECKSUM_BYTES]
            self._rest = self._rest[length:]
            yield from _lines(headers, payload)


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        if data[name_end : name_end + 1] != bytes([_STRING]):
            return
        value_start = name_end + 3
        value_end = value_start + int.from_bytes(data[name_end + 1 : value_start], "big")
        yield (
            data[at + 1 : name_end].decode("utf-8", "replace"),
            data[value_start:value_end].decode("utf-8", "replace"),
        )
        at = value_end


def _lines(headers: dict[str, str], payload: bytes) -> Iterator[bytes]:
    if error := headers.get(":exception-type") or headers.get(":error-code"):
        message = payload.decode("utf-8", "replace")[:4_000]
        yield json.dumps({"error": {"code": error, "message": message}}).encode()
        return
    yield b":event-type " + headers.get(":event-type", "").encode()
    yield _unwrapped(payload)


def _unwrapped(payload: bytes) -> bytes:
    """Return the model's own event if the payload wraps one, otherwise the payload."""
    if not payload.startswith(b'{"bytes"'):
        return payload
    try:
        return base64.b64decode(json.loads(payload)["bytes"])
    except (ValueError, KeyError, TypeError):
        return payload
