"""Values of the retention part of the store contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.domain.states import State


class FinalPosition(NamedTuple):
    """Where a list of final tasks continues: the moment and id of its last task."""

    at: float
    task_id: str


@dataclass(frozen=True, slots=True)
class FinalTask:
    """A final task, as retention looks at it."""

    task_id: str
    state: State
    queue: str
    tenant: str
    is_redriven: bool
    """Whether the task was dead before and was redriven."""
    at: float
    """When it became final."""
    age_seconds: float

    @property
    def position(self) -> FinalPosition:
        """Where a list continues after this task."""
        return FinalPosition(self.at, self.task_id)


@dataclass(frozen=True, slots=True)
class ExportedRow:
    """A row that belongs to a task, with all its columns. Ids are text."""

    table: str
    task_id: str
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one table with its indexes."""

    table: str
    rows: int
    bytes: int
    is_estimate: bool
    """Whether `rows` is an estimate."""


@dataclass(frozen=True, slots=True)
class StoreSize:
    """The size of a store."""

    bytes: int
    """The size of all files of the database, or of the whole schema."""
    free_bytes: int
    """Space inside the file that new rows will use; 0 in PostgreSQL, which does not report it cheaply."""
    log_bytes: int
    """The write-ahead log of a SQLite file, which is not part of `bytes`; 0 in PostgreSQL, which has one log
    for all databases."""
    tables: tuple[TableSize, ...]
    """The largest first."""
