"""Making any text and number storable: the failure path must take whatever a task throws."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec


def storable(value: str) -> str:
    r"""Return the text with lone surrogates shown as `\udc00`; NUL and all else stay as they are."""
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
