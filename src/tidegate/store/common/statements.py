"""SQL in files of its own: one file an operation, its statements under `-- name:` marks, never edited."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_MARK = "-- name: "


@cache
def read_statements(folder: Path, operation: str) -> Mapping[str, str]:
    """Return the statements of `<operation>.sql` in a folder by their names.

    What stands before the first mark is the file's head comment.
    """
    parts = (folder / f"{operation}.sql").read_text(encoding="utf-8").split(_MARK)[1:]
    named = (part.split("\n", 1) for part in parts)
    return MappingProxyType({name.strip(): body.strip() for name, body in named})
