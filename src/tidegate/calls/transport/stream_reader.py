"""Reads a stream while it is passed on: its usage, errors inside it, and whether it is complete."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tidegate.calls.settings import CallSettings
from tidegate.calls.transport.responses import parse_object
from tidegate.domain.failure import Failure
from tidegate.domain.usage import Usage
from tidegate.providers._bodies import is_error
from tidegate.providers.aws_frames import AwsFrames
from tidegate.providers.packs import pack_for
from tidegate.providers.streams import StreamEnd
from tidegate.providers.understand import understand_answer
from tidegate.providers.usage import later, usage_of

_MAX_LINE_BYTES = 4_000_000
_MARKERS = (b"usage", b"error", b"eval_count", b"failed")
"""The texts that make a line of a stream worth parsing. Lines without any of them are skipped."""


class StreamReader:
    """Reads usage, errors and the end of a stream: server-sent events, lines of JSON, or AWS's frames.

    Args:
        settings: The settings of the call.
        host: The host that answers.
        readable: False if the bytes are compressed. Nothing is read then.
        frames: Splits a binary stream into frames; None for text.
        is_document: Whether the response's content type is JSON.
        is_event_stream: Whether the request asked for a stream and the content type is `text/event-stream`.
    """

    def __init__(
        self,
        settings: CallSettings,
        host: str,
        *,
        readable: bool = True,
        frames: AwsFrames | None = None,
        is_document: bool = False,
        is_event_stream: bool = False,
    ) -> None:
        self._settings = settings
        self._host = host
        self._readable = readable
        self._frames = frames
        self._is_event_stream = is_event_stream
        self._whole: bytes | None = b"" if is_document else None
        self._rest = b""
        self._end = StreamEnd(pack_for(host=host, provider=settings.provider_name).name)
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        """The error that the stream itself reported; None if it reported none."""

    def feed(self, piece: bytes) -> None:
        """Read the next bytes. Never raises."""
        if not self._readable:
            return
        if self._whole is not None:
            self._whole = self._whole + piece if len(self._whole) < _MAX_LINE_BYTES else None
        try:
            for line in self._lines(piece):
                self._read(line)
        except ValueError:
            self._give_up()
        if len(self._rest) > _MAX_LINE_BYTES:
            self._give_up()

    def finish(self) -> None:
        """Read the last line, which may have no line end, and a JSON document of several lines."""
        rest, self._rest = self._rest, b""
        self._read(rest)
        if self._whole is not None and self.usage is None and self.failure is None:
            self._read_document(self._whole)

    @property
    def has_ended(self) -> bool:
        """Whether the end of the stream's protocol came."""
        return self._end.has_ended

    @property
    def missing_end(self) -> str:
        """Why a stream that has ended is incomplete; empty if it is complete, or if this cannot be known."""
        if not self._readable:
            return ""
        if self._end.missing:
            return f"the stream is incomplete: the end of its protocol ({self._end.missing}) is missing"
        if self._is_event_stream and self._end.is_empty:
            return "the requested stream is empty"
        return ""

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        if self._frames is not None:
            yield from self._frames.feed(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from lines

    def _give_up(self) -> None:
        self._readable, self._rest, self._whole = False, b"", None

    def _read(self, line: bytes) -> None:
        self._end.feed(line)
        text = line.removeprefix(b"data:").strip()
        if text.startswith((b"{", b"[")) and any(word in text for word in _MARKERS):
            self._read_document(text)

    def _read_document(self, text: bytes) -> None:
        document = parse_object(text)
        if document is None:
            return
        self.usage = later(self.usage, usage_of(document))
        inner = document.get("response")
        for found in (document, inner if isinstance(inner, dict) else None):
            if found is not None and is_error(found):
                self.failure = understand_answer(
                    None, (), found, now=time.time(), provider=self._settings.provider_name, host=self._host
                )
