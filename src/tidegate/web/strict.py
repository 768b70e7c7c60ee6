"""JSON as it goes over the wire: strict, and fit for readers whose numbers are doubles."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tidegate.codec import Shape, load_result
from tidegate.codec.tags import TAG_MARK

LARGEST_EXACT = 2**53 - 1
"""Whole numbers beyond this travel as strings."""

_MAY_BE_LARGE = re.compile(rb"\d{16}")
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_FLAT = re.compile(rb"[\[{][^\[\]{}]*+[\]}]")
_ANY = Shape()

encode = msgspec.json.Encoder(enc_hook=str).encode


def plain(stored: bytes) -> msgspec.Raw:
    """Return a stored result or chunk as plain JSON: without tags, large whole numbers as strings."""
    if TAG_MARK not in stored and not _MAY_BE_LARGE.search(stored):
        return msgspec.Raw(stored)
    value = load_result(_ANY, stored)
    return msgspec.Raw(encode(_exact(msgspec.to_builtins(value, enc_hook=str, str_keys=True))))


def is_deeper(data: bytes, limit: int) -> bool:
    """Return whether JSON nests deeper than `limit`, without parsing it."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    left = _STRINGS.sub(b"0", data)
    for _ in range(limit):
        left, done = _FLAT.subn(b"0", left)
        if not done:
            return False  # flat by now, or no JSON: the parser will say
    return _FLAT.search(left) is not None or left.count(b"[") + left.count(b"{") > limit


def _exact(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _exact(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_exact(item) for item in tree]
    if isinstance(tree, int) and not isinstance(tree, bool) and abs(tree) > LARGEST_EXACT:
        return str(tree)
    return tree
