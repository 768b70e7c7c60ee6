"""The SQL files beside this module, read once.

A table is written `/*schema*/task`: valid SQL as it stands, and the one mark at which the schema's name is
put in. `search_path` would do the same for less, but a pooler in transaction mode forgets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tidegate.store.common.statements import read_statements

FOLDER = Path(__file__).parent / "sql"
_MARK = "/*schema*/"


def load(operation: str) -> Mapping[str, str]:
    """Return the statements of `sql/<operation>.sql` by their names, without a schema's name yet."""
    return read_statements(FOLDER, operation)


@lru_cache(maxsize=1024)
def in_schema(statement: str, schema: str) -> str:
    """Return a statement whose tables are those of this schema."""
    return statement.replace(_MARK, f'"{schema}".')
