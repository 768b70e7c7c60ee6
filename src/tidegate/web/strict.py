"""JSON as it goes over the wire: strict, and fit for readers whose numbers are doubles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec

from tidegate.codec import Shape, load_result
from tidegate.codec.tags import TAG_MARK

LARGEST_EXACT = 2**53 - 1
"""Whole numbers beyond this travel as strings."""

_MAY_BE_LARGE = re.compile(rb"\d{16}")
# A string that never ends counts to the end of the text: else each quote in it would be tried in turn.
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.|\\\Z)*+(?:"|\Z)', re.S)
_STEPS = tuple((byte in b"[{") - (byte in b"]}") for byte in range(256))
_NO_MARKS = bytes(set(range(256)) - set(b"[]{},"))
_COMMA = ord(",")
_INSIDE = 2
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
    return max(_depths(_marks(data)), default=0) > limit


def has_more_items(data: bytes, limit: int) -> bool:
    """Return whether an array right inside the outermost object has more than `limit` items."""
    if data.count(b",") < limit:
        return False
    marks = _marks(data)
    commas = sum(
        mark == _COMMA and depth == _INSIDE for mark, depth in zip(marks, _depths(marks), strict=True)
    )
    return commas >= limit


def _marks(data: bytes) -> bytes:
    """Return the brackets and commas of JSON, those within strings left out."""
    return _STRINGS.sub(b"", data).translate(None, delete=_NO_MARKS)


def _depths(marks: bytes) -> Iterator[int]:
    return accumulate(map(_STEPS.__getitem__, marks))


def _exact(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _exact(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_exact(item) for item in tree]
    if isinstance(tree, int) and not isinstance(tree, bool) and abs(tree) > LARGEST_EXACT:
        return str(tree)
    return tree
