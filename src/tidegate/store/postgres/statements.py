"""Load the SQL files of this back end, once.

A table is written `/*schema*/task`. The marker keeps the file valid SQL, and is replaced by the schema's
name. `search_path` would be simpler, but a pooler in transaction mode loses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tidegate.store.common.statements import read_statements

FOLDER = Path(__file__).parent / "sql"
_MARK = "/*schema*/"


def load(operation: str) -> Mapping[str, str]:
    """Return the statements of `sql/<operation>.sql` by their names, without the schema's name."""
    return read_statements(FOLDER, operation)


@lru_cache(maxsize=1024)
def in_schema(statement: str, schema: str) -> str:
    """Return a statement with the tables of this schema."""
    return statement.replace(_MARK, f'"{schema}".')
