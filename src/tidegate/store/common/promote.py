"""Move due tasks from the waiting states to the main queue, as far as gates and retry budgets allow."""

from __future__ import annotations

from tidegate.limits.promotion import MAX_EARLY, DueTask, HeldBack, Promotion
from tidegate.limits.settings import GateKind
from tidegate.store.common import cached, gates, task_waits
from tidegate.store.common.session import Session


async def has_work(db: Session) -> bool:
    """Return whether any task is due or may leave early."""
    sql = db.sql("promote")
    if (
        await db.value(sql["is_due"], db.at)
        or await task_waits.has_ended(db)
        or await cached.has_wakeable(db)
    ):
        return True
    now = await db.now()
    for upstream, opened_at in Promotion(await gates.rows(db), now).reopened().items():
        if await db.value(sql["is_early"], upstream, opened_at, now):
            return True
    return False


async def promote(db: Session, limit: int) -> int:
    """Move up to `limit` due tasks to the main queue, or postpone them; return how many were due.

    The transaction locks the gates first, so that two processes do not spend the same budget.
    """
    sql = db.sql("promote")
    rows = await gates.locked_rows(db)
    now = await db.now()
    await task_waits.wake_ended(db, now)
    await cached.wake(db, now)
    plan = Promotion(rows, now)
    due = [DueTask(*row) for row in await db.rows(sql["due"], db.at, limit)]
    going: list[DueTask] = []
    held: list[tuple[DueTask, HeldBack]] = []
    for task in sorted(due, key=lambda task: not task.urgent):
        holds = await _hold(db, plan, task, going) if task.spends else None
        if holds is None:
            going.append(task)
        else:
            held.append((task, holds))
    await db.run_each(
        sql["postpone"], [(task.task_id, now + holds.seconds, holds.by) for task, holds in held]
    )
    await db.run_each(
        sql["pause_deadline"], [(task.task_id,) for task, holds in held if holds.by == "gate"], now
    )
    going += await _early(db, plan, now)
    if going:
        tasks = [task.task_id for task in going]
        await db.run(sql["ready"], db.array(tasks), now)
        await db.run(sql["leave"], db.array(tasks))
    changed = plan.changed()
    for row in changed:
        if row.kind is GateKind.SYSTEM:
            await gates.ensure_row(db, now, row)  # no application may have declared it
    await gates.save(db, now, changed)
    return len(due)


async def _hold(db: Session, plan: Promotion, task: DueTask, going: list[DueTask]) -> HeldBack | None:
    tries = plan.may_probe(task) and (
        plan.is_probe_overdue(task.upstream)
        or not (
            any(other.upstream == task.upstream for other in going)
            or await db.value(db.sql("promote")["has_ready"], task.upstream)
        )
    )
    return plan.charge_or_hold(task.upstream, urgent=bool(task.urgent), is_probe=tries)


async def _early(db: Session, plan: Promotion, now: float) -> list[DueTask]:
    """Return tasks that may leave early, and charge them.

    A task that must wait stops its upstream's later tasks.
    """
    going = []
    for upstream, opened_at in plan.reopened().items():
        for row in await db.rows(db.sql("promote")["early"], upstream, opened_at, now, MAX_EARLY):
            task = DueTask(*row)
            if task.spends and plan.charge_or_hold(task.upstream, urgent=bool(task.urgent)) is not None:
                break
            going.append(task)
    return going
