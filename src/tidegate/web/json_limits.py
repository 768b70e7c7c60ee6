"""Measures JSON before it is parsed: its number of values, its depth, the items of its one array.

The counts use methods of bytes, which run in C, or loop over brackets and commas after these were counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

CONTAINER_CHARS = 4
"""How many values an array or object counts as: to parse and check one costs that much more."""

_STEPS = tuple((byte in b"[{") - (byte in b"]}") for byte in range(256))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},"))
_COMMA = ord(",")
_INSIDE = 2


def structure_of(data: bytes, most: int) -> bytes | None:
    """Return the brackets and commas outside the strings of JSON; None if it has more than `most` values.

    Each comma counts as one value, each `[` and `{` as `CONTAINER_CHARS`.
    """
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 4 * most + 2:  # each value has at most a name and a string
        return None
    outside = b"".join(unescaped.split(b'"')[::2])
    containers = outside.count(b"[") + outside.count(b"{")
    if outside.count(b",") + CONTAINER_CHARS * containers > most:
        return None
    return outside.translate(None, delete=_NOT_STRUCTURE)


def is_deeper(structure: bytes, limit: int) -> bool:
    """Return whether JSON with this structure nests deeper than `limit`."""
    if structure.count(b"[") + structure.count(b"{") <= limit:
        return False
    return max(_depths(structure), default=0) > limit


def has_more_items(structure: bytes, limit: int) -> bool:
    """Return whether an array directly inside the outermost object has more than `limit` items."""
    if structure.count(b",") < limit:
        return False
    commas = sum(
        mark == _COMMA and depth == _INSIDE for mark, depth in zip(structure, _depths(structure), strict=True)
    )
    return commas >= limit


def repeated_member(text: str) -> str | None:
    """Return the name of a member that an object in the JSON has twice; None if there is none.

    Return None also for text that is not JSON: the parser refuses it.
    """
    try:
        _MEMBERS.decode(text)
    except _RepeatedError as repeated:
        return repeated.name
    except (ValueError, RecursionError):
        return None
    return None


class _RepeatedError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _refuse_repeats(members: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in members:
        if name in seen:
            raise _RepeatedError(name)
        seen.add(name)


_MEMBERS = json.JSONDecoder(
    object_pairs_hook=_refuse_repeats, parse_int=len, parse_float=len, parse_constant=len
)


def _depths(structure: bytes) -> Iterator[int]:
    return accumulate(map(_STEPS.__getitem__, structure))
