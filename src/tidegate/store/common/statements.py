"""Load SQL files: one per operation, each statement after a `-- name:` line. Code never edits the SQL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_MARK = "-- name: "


@cache
def read_statements(folder: Path, operation: str) -> Mapping[str, str]:
    """Return the statements of `<operation>.sql` in a folder by their names.

    The text before the first `-- name:` line is the file's head comment.
    """
    parts = (folder / f"{operation}.sql").read_text(encoding="utf-8").split(_MARK)[1:]
    named = (part.split("\n", 1) for part in parts)
    return MappingProxyType({name.strip(): body.strip() for name, body in named})
