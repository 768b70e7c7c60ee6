"""List and export final tasks, and remove parts of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tidegate.domain.retention import Data, FinalTable
from tidegate.domain.states import State
from tidegate.store.common.session import Session
from tidegate.store.retention_rows import ExportedRow, FinalPosition, FinalTask
from tidegate.store.task_tables import REMOVED, TaskTable, statement_for, tables_of

_BEFORE_ALL = FinalPosition(-1.0, "00000000-0000-0000-0000-000000000000")


async def list_final_tasks(
    db: Session,
    table: FinalTable,
    *,
    older_than_seconds: float,
    after: FinalPosition | None = None,
    limit: int,
) -> list[FinalTask]:
    """Return final tasks that became final longer ago, the oldest first."""
    start = after or _BEFORE_ALL
    statement = db.sql("list_final_tasks")[table]
    rows = await db.rows(statement, start.at, db.id(start.task_id), db.at, older_than_seconds, limit)
    return [
        FinalTask(db.text(task_id), State(state), queue, tenant, bool(is_redriven), at, age)
        for task_id, state, queue, tenant, is_redriven, at, age in rows
    ]


async def export_tasks(db: Session, task_ids: Sequence[str], data: Collection[Data]) -> list[ExportedRow]:
    """Return all rows of these kinds of data that belong to these tasks, without those marked as removed."""
    stored = [found for task_id in task_ids if (found := db.id(task_id)) is not None]
    rows: list[ExportedRow] = []
    for table in tables_of(data) if stored else ():
        found = await db.records(_statement(db, table, "export"), db.array(stored))
        rows += [
            _exported(db, table, columns)
            for columns in found
            if not table.is_marked or columns["codec_tag"] != REMOVED
        ]
    return rows


async def list_tasks_with_parts(
    db: Session, task_ids: Sequence[str], parts: Collection[Data]
) -> frozenset[str]:
    """Return which of these tasks are finished and have any of these parts."""
    stored = [found for task_id in task_ids if (found := db.id(task_id)) is not None]
    holders: set[str] = set()
    for table in tables_of(parts) if stored else ():
        name = "with_unmarked_part" if table.is_marked else "with_part"
        holders |= {db.text(task) for task in await db.column(_statement(db, table, name), db.array(stored))}
    return frozenset(holders)


async def delete_task_parts(db: Session, task_ids: Sequence[str], parts: Collection[Data]) -> int:
    """Remove some of the data of finished tasks; return how many rows were removed."""
    stored = db.array(sorted(found for task_id in task_ids if (found := db.id(task_id)) is not None))
    removed = 0
    for table in tables_of(parts):
        name = "mark_part" if table.is_marked else "delete_part"
        removed += await db.run(_statement(db, table, name), stored)
    return removed


def _statement(db: Session, table: TaskTable, name: str) -> str:
    return statement_for(table, db.sql("task_tables")[name])


def _exported(db: Session, table: TaskTable, columns: Mapping[str, Any]) -> ExportedRow:
    plain = {name: _plain(db, name, value) for name, value in columns.items()}
    return ExportedRow(table.name, plain[table.key], plain)


def _plain(db: Session, name: str, value: Any) -> Any:
    """Return a value in the form that both back ends share: ids as text."""
    is_id = name.endswith("id") and value is not None and not isinstance(value, str | int)
    return db.text(value) if is_id else value
