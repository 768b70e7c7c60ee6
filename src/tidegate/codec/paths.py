"""Formats the place of a part in a value: `doc.tags[3].name`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_KEY_LENGTH = 40
_MSGSPEC_PATH = re.compile(r"^(?P<what>.*) - at `(?P<key>key` in `)?\$(?P<rest>.*)`$", re.DOTALL)


def locate(root: str, keys: Iterable[object]) -> str:
    """Return the path of `keys` under `root`: attributes and plain names with a dot, the rest in brackets."""
    return root + "".join(_segment(key) for key in keys)


def _segment(key: object) -> str:
    if type(key) is str and key.isidentifier() and len(key) <= _KEY_LENGTH:
        return f".{key}"
    text = repr(key)  # escapes NUL and lone surrogates, so that a path can always be stored and printed
    return f"[{text if len(text) <= _KEY_LENGTH else text[:_KEY_LENGTH] + '…'}]"


def relocate(root: str, message: str) -> tuple[str, str]:
    """Split a msgspec message such as ``int expected - at `$.x` `` into a path under `root` and the rest."""
    found = _MSGSPEC_PATH.match(message)
    if found is None:
        return root, message
    path = root + found["rest"]
    return (f"a key of {path}" if found["key"] else path), found["what"]
