"""Rewrite tables, so that nothing deleted is left in their files."""

from __future__ import annotations

from tidegate.store.postgres.database import Database, Work
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_SQL = load("erase_deleted")
_SECONDS = 3_600.0
"""The longest time for one table."""


async def erase_deleted(database: Database) -> str:
    """Rewrite every table with its indexes and statistics; return why not, or an empty text.

    Each table is locked while it is rewritten, one after the other.
    """
    tables = await database.read(lambda db: db.rows(_SQL["tables"], db.schema))
    foreign = [name for name, is_ours in tables if not is_ours]
    if foreign:
        return (
            "only the owner of the tables may rewrite them: as the migrator role, run"
            f" VACUUM (FULL, ANALYZE) for {', '.join(foreign)}"
        )
    for name, _ in tables:
        await database.autocommit(_rewriting(name), seconds=_SECONDS)
    if await database.read(lambda db: db.value(_SQL["may_clean_statistics"])):
        await database.autocommit(lambda db: db.script(_SQL["statistics"]), seconds=_SECONDS)
    return ""


def _rewriting(table: str) -> Work[None]:
    async def rewrite(db: PostgresSession) -> None:
        await db.run(_SQL["rewrite"].replace("one_table", table))

    return rewrite
