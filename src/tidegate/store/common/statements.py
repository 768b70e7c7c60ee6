"""Load SQL files: one per operation, each statement after a `-- name:` line.

Conditions that several statements of a file share are written once, after a `-- shared: conditions` line
before the first statement. A statement includes them by the comment `/*conditions*/`. Code makes no other
change to the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_NAME = "-- name: "
_SHARED = "-- shared: "


@cache
def read_statements(folder: Path, operation: str) -> Mapping[str, str]:
    """Return the statements of `<operation>.sql` in a folder by their names.

    The text before the first `-- name:` line is the file's head comment and the shared conditions.
    """
    head, *parts = (folder / f"{operation}.sql").read_text(encoding="utf-8").split(_NAME)
    shared = _by_name(head.split(_SHARED)[1:])
    statements = _by_name(parts)
    for name, text in shared.items():
        statements = {key: each.replace(f"/*{name}*/", text) for key, each in statements.items()}
    return MappingProxyType(statements)


def _by_name(parts: Iterable[str]) -> dict[str, str]:
    """Return texts by the name in their first line."""
    named = (part.split("\n", 1) for part in parts)
    return {name.strip(): text.strip() for name, text in named}
