"""Check the integrity of the database."""

from __future__ import annotations

from tidegate.store.common.integrity import INCONSISTENCIES
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_CHECK = load("check_integrity")


async def check_integrity(db: PostgresSession) -> list[str]:
    """Check that the tables are consistent; return a description of each problem."""
    offenders = {name: await db.value(_CHECK[name]) for name in INCONSISTENCIES}
    return [f"{offenders[name]} {what}" for name, what in INCONSISTENCIES.items() if offenders[name]]
