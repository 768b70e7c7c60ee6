"""What people want of queues, functions and workers."""

from __future__ import annotations

from tidegate.limits.pauses import Pause, PauseKind
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable


async def pause(db: Session, kind: PauseKind, name: str, *, by: str, why: str) -> bool:
    """Pause a queue or function; return whether it was not paused before."""
    values = (str(kind), storable(name), db.at, storable(by), storable(why))
    return await db.run(db.sql("controls")["pause"], *values) > 0


async def resume(db: Session, kind: PauseKind, name: str) -> bool:
    """End a pause; return whether there was one."""
    return await db.run(db.sql("controls")["resume"], str(kind), storable(name)) > 0


async def list_pauses(db: Session) -> list[Pause]:
    """Return every pause: those of queues first, each kind by name."""
    return [Pause(PauseKind(kind), *rest) for kind, *rest in await db.rows(db.sql("controls")["pauses"])]
