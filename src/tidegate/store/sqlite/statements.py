"""The SQL files beside this module, read once and never edited."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).parent / "sql"
_MARK = "-- name: "


@cache
def load(operation: str) -> Mapping[str, str]:
    """Return the statements of `sql/<operation>.sql` by their `-- name:` marks.

    What stands before the first mark is the file's head comment.
    """
    parts = (FOLDER / f"{operation}.sql").read_text(encoding="utf-8").split(_MARK)[1:]
    named = (part.split("\n", 1) for part in parts)
    return MappingProxyType({name.strip(): body.strip() for name, body in named})
