"""Archived rows as lines of JSON, readable without Tidegate."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tidegate.store.retention_rows import ExportedRow

_BYTES = "$base64"
"""The key of bytes that are not UTF-8: `{"$base64": "…"}`."""


class ArchivedRow(msgspec.Struct, frozen=True):
    """A row in the archive."""

    archived_at: float
    """When the row was written, just before its removal from the store."""
    table: str
    task_id: str
    tenant: str
    row: dict[str, Any]
    """The columns of the table. Bytes, such as arguments and results, are text if they are UTF-8."""


class NewRow(NamedTuple):
    """A row to be archived."""

    tenant: str
    row: ExportedRow


def encode_line(new: NewRow, archived_at: float) -> bytes:
    """Return a row as one line."""
    row = new.row
    columns = {name: _plain(value) for name, value in row.columns.items()}
    return msgspec.json.encode(ArchivedRow(archived_at, row.table, row.task_id, new.tenant, columns)) + b"\n"


_decoder = msgspec.json.Decoder(ArchivedRow)


def decode_line(line: bytes) -> ArchivedRow:
    """Return the row of a line.

    Raises:
        msgspec.DecodeError: The text is not a line of an archive.
    """
    return _decoder.decode(line)


def value_bytes(value: str | Mapping[str, str]) -> bytes:
    """Return bytes that a column of a line holds."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value[_BYTES])


def _plain(value: Any) -> Any:
    if not isinstance(value, bytes | memoryview):
        return value
    raw = bytes(value)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {_BYTES: base64.b64encode(raw).decode()}
