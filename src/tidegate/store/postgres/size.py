"""Report the sizes of the tables. The statement counts no rows, so it is quick."""

from __future__ import annotations

from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.retention_rows import StoreSize, TableSize

_SQL = load("get_sizes")


async def get_sizes(db: PostgresSession) -> StoreSize:
    """Return the sizes of the tables with their indexes; the numbers of rows are the planner's estimates."""
    tables = tuple(
        TableSize(name, rows, size, is_estimate=True)
        for name, rows, size in await db.rows(_SQL["tables"], db.schema)
    )
    return StoreSize(sum(each.bytes for each in tables), 0, 0, tables)
