"""Orders of people to queues, functions and workers."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.limits.pauses import Pause, PauseKind
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.controls import ControlKind, ControlReport, ControlRow


async def pause(db: Session, kind: PauseKind, name: str, *, by: str, why: str) -> bool:
    """Pause a queue or function; return False if already paused."""
    values = (str(kind), storable(name), db.at, storable(by), storable(why))
    return await db.run(db.sql("controls")["pause"], *values) > 0


async def resume(db: Session, kind: PauseKind, name: str) -> bool:
    """End a pause; return whether there was one."""
    return await db.run(db.sql("controls")["resume"], str(kind), storable(name)) > 0


async def list_pauses(db: Session) -> list[Pause]:
    """Return every pause: first those of queues, then those of functions, each ordered by name."""
    return [Pause(PauseKind(kind), *rest) for kind, *rest in await db.rows(db.sql("controls")["pauses"])]


async def set_control(
    db: Session, kind: ControlKind, name: str, value: int | None, *, by: str, why: str
) -> int:
    """Store an order; return the version of its row."""
    values = (str(kind), storable(name), value, db.at, storable(by), storable(why))
    version: int = await db.value(db.sql("controls")["set"], *values)
    return version


async def list_controls(db: Session) -> list[ControlRow]:
    """Return all orders, ordered by kind and name."""
    return [
        ControlRow(ControlKind(kind), *rest) for kind, *rest in await db.rows(db.sql("controls")["controls"])
    ]


async def report_controls(db: Session, reports: Sequence[ControlReport]) -> None:
    """Store which orders workers have applied. A report on an older version changes nothing."""
    rows = [
        (str(each.kind), storable(each.name), storable(each.reporter), each.version, storable(each.answer))
        for each in reports
    ]
    await db.run_each(db.sql("controls")["report"], rows, db.at)


async def list_control_reports(db: Session, kind: ControlKind, name: str) -> list[ControlReport]:
    """Return the reports on one order, ordered by reporter."""
    rows = await db.rows(db.sql("controls")["reports"], str(kind), storable(name))
    return [
        ControlReport(kind, name, reporter, version, answer, at) for reporter, version, at, answer in rows
    ]


async def set_worker_slots(db: Session, worker_id: str, slots: int) -> None:
    """Record how many tasks a pool process runs at once now."""
    await db.run(db.sql("controls")["set_slots"], storable(worker_id), slots)


async def set_worker_code(db: Session, worker_id: str, code: str) -> None:
    """Record which version of the code a worker process has loaded."""
    await db.run(db.sql("controls")["set_code"], storable(worker_id), code)
