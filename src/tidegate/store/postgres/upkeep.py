"""The database's own care: looking for what does not fit together."""

from __future__ import annotations

from tidegate.store.faults import FAULTS
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load

_CHECK = load("check")


async def check(db: PostgresSession) -> list[str]:
    """Return what is wrong between the tables, in words; nothing if it is sound."""
    offenders = {name: await db.value(_CHECK[name]) for name in FAULTS}
    return [f"{offenders[name]} {what}" for name, what in FAULTS.items() if offenders[name]]
