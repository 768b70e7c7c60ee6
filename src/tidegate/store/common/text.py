"""Make any text and number storable: a failure may contain any text."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec


def storable(value: str) -> str:
    r"""Return the text with NUL written as `\x00` and lone surrogates as `\udc00`; the rest is unchanged.

    PostgreSQL accepts neither. SQLite accepts a NUL, but a text should read the same in both.
    """
    if "\0" in value:
        value = value.replace("\0", r"\x00")
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "backslashreplace").decode()
    return value


def finite(value: float, otherwise: float) -> float:
    """Return the number, or `otherwise` for NaN and infinities (SQLite stores NaN as NULL)."""
    return value if math.isfinite(value) else otherwise


def to_json(values: Mapping[str, object]) -> str | None:
    """Return a mapping as a JSON object; None for an empty one."""
    return msgspec.json.encode(values).decode() if values else None
