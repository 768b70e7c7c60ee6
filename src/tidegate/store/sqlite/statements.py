"""Load the SQL files of this back end, once. Code never edits them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidegate.store.common.statements import read_statements

FOLDER = Path(__file__).parent / "sql"


def load(operation: str) -> Mapping[str, str]:
    """Return the statements of `sql/<operation>.sql` by their names."""
    return read_statements(FOLDER, operation)
