"""Converts stored values to plain JSON for clients outside Python: no tags, and numbers that fit a double."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tidegate.codec.result import Unstorable, load_result
from tidegate.codec.shape import Shape
from tidegate.codec.tags import TAG_MARK

LARGEST_EXACT = 2**53 - 1
"""Whole numbers above this become strings."""

_MAY_BE_LARGE = re.compile(rb"\d{16}")
_ANY = Shape()
_LONGEST_STAND_IN = 8_192
"""The most bytes of a stand-in: a name and a reason of at most 500 characters, each escaped."""

to_json = msgspec.json.Encoder(enc_hook=str).encode
"""Encodes a value. A part that JSON has no form for becomes text."""


def is_plain(stored: bytes) -> bool:
    """Return whether a stored value is already plain JSON. The check searches the bytes, which is fast."""
    return TAG_MARK not in stored and not _MAY_BE_LARGE.search(stored)


def unstorable(stored: bytes) -> Unstorable | None:
    """Return the stand-in for a result that could not be stored; None if this is a normal result."""
    if len(stored) > _LONGEST_STAND_IN or TAG_MARK not in stored:
        return None
    value = load_result(_ANY, stored)
    return value if isinstance(value, Unstorable) else None


def plain(stored: bytes) -> msgspec.Raw:
    """Return a stored result or chunk as plain JSON: without tags, large whole numbers as strings.

    Bytes become Base64, sets and tuples become arrays, times and durations become ISO 8601. If `is_plain`
    returns False, the cost grows with the number of values.
    """
    if is_plain(stored):
        return msgspec.Raw(stored)
    value = load_result(_ANY, stored)
    return msgspec.Raw(to_json(_exact(msgspec.to_builtins(value, enc_hook=str, str_keys=True))))


def _exact(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _exact(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_exact(item) for item in tree]
    if isinstance(tree, int) and not isinstance(tree, bool) and abs(tree) > LARGEST_EXACT:
        return str(tree)
    return tree
