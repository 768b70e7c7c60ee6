"""From the waiting states to the main queue: what is due goes, as far as gates and retry budgets let it."""

from __future__ import annotations

from tidegate.domain.upstream import GateKind
from tidegate.policy.promotion import EARLY_LIMIT, Due, Held, Promotion
from tidegate.store.postgres import gates
from tidegate.store.postgres.clock import moment
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load

_SQL = load("promote")


async def promote(database: Database, limit: int) -> int:
    """Move up to `limit` due tasks to the main queue, or put them off; return how many were due.

    The gates are locked first, so that two stewards spend a budget one after the other.
    """
    if not await database.once(_has_work):
        return 0
    return await database.transact(lambda db: _promote(db, limit))


async def _has_work(db: Session) -> bool:
    if await db.value(_SQL["is_due"], db.at):
        return True
    now = await moment(db)
    for upstream, opened_at in Promotion(await gates.rows(db), now).reopened().items():
        if await db.value(_SQL["is_early"], upstream, opened_at, now):
            return True
    return False


async def _promote(db: Session, limit: int) -> int:
    rows = await gates.locked_rows(db)
    now = await moment(db)
    plan = Promotion(rows, now)
    due = [Due(*row) for row in await db.rows(_SQL["due"], db.at, limit)]
    going: list[Due] = []
    held: list[tuple[Due, Held]] = []
    for task in sorted(due, key=lambda task: not task.urgent):
        holds = await _hold(db, plan, task, going) if task.spends else None
        if holds is None:
            going.append(task)
        else:
            held.append((task, holds))
    if held:
        moments = [now + holds.seconds for _, holds in held]
        await db.run(_SQL["put_off"], [task.task_id for task, _ in held], moments, [h.by for _, h in held])
        parked = [task.task_id for task, holds in held if holds.by == "gate"]
        await db.run(_SQL["stand_still"], parked, now)
    going += await _early(db, plan, now)
    if going:
        await db.run(_SQL["go"], [task.task_id for task in going], now)
    changed = plan.changed()
    for row in changed:
        if row.kind is GateKind.SYSTEM:
            await gates.made(db, now, row)  # nobody may have declared it
    await gates.save(db, now, changed)
    return len(due)


async def _hold(db: Session, plan: Promotion, task: Due, going: list[Due]) -> Held | None:
    tries = plan.may_try(task) and (
        plan.is_overdue(task.upstream)
        or not (
            any(other.upstream == task.upstream for other in going)
            or await db.value(_SQL["has_ready"], task.upstream)
        )
    )
    return plan.hold(task.upstream, urgent=bool(task.urgent), wanted_as_probe=tries)


async def _early(db: Session, plan: Promotion, now: float) -> list[Due]:
    """Return what may leave before its time, charged; the first one held ends its upstream's turn."""
    going = []
    for upstream, opened_at in plan.reopened().items():
        for row in await db.rows(_SQL["early"], upstream, opened_at, now, EARLY_LIMIT):
            task = Due(*row)
            if task.spends and plan.hold(task.upstream, urgent=bool(task.urgent)) is not None:
                break
            going.append(task)
    return going
