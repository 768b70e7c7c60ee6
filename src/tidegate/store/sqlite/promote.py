"""From the waiting states to the main queue: what is due goes, as far as gates and retry budgets let it."""

from __future__ import annotations

import apsw

from tidegate.policy.promotion import EARLY_LIMIT, Due, Promotion
from tidegate.store.sqlite import gates, query
from tidegate.store.sqlite.statements import load

_SQL = load("promote")


def look(db: apsw.Connection, now: float) -> int | None:
    """Return 0 if nothing is due or may leave early."""
    if query.row(db, _SQL["due"], (now, 1)) is not None:
        return None
    return None if _early(db, now, Promotion(gates.rows(db), now), 1) else 0


def promote(db: apsw.Connection, now: float, limit: int) -> int:
    """Move up to `limit` due tasks to the main queue, or put them off; return how many were due."""
    due = [Due(*row) for row in query.rows(db, _SQL["due"], (now, limit))]
    plan = Promotion(gates.rows(db), now)
    going: list[bytes] = []
    for task in sorted(due, key=lambda task: not task.urgent):
        if not task.spends:
            going.append(task.task_id)
            continue
        tries = plan.may_try(task) and (
            plan.is_overdue(task.upstream) or not _has_ready(db, task.upstream, going, due)
        )
        held = plan.hold(task.upstream, urgent=bool(task.urgent), wanted_as_probe=tries)
        if held is None:
            going.append(task.task_id)
        else:
            db.execute(_SQL["put_off"], (task.task_id, now + held.seconds, held.by))
            if held.by == "gate":
                db.execute(_SQL["stand_still"], (task.task_id, now))
    going += _go_early(db, now, plan)
    if going:
        array = query.array(tuple(going))
        db.execute(_SQL["ready"], (array, now))
        db.execute(_SQL["leave"], (array,))
    gates.save(db, now, plan.changed())
    return len(due)


def _go_early(db: apsw.Connection, now: float, plan: Promotion) -> list[bytes]:
    """Return what may leave before its time, charged; the first one held ends its upstream's turn."""
    going = []
    held: set[str] = set()
    for task in _early(db, now, plan, EARLY_LIMIT):
        if task.upstream in held:
            continue
        if task.spends and plan.hold(task.upstream, urgent=bool(task.urgent)) is not None:
            held.add(task.upstream)
        else:
            going.append(task.task_id)
    return going


def _early(db: apsw.Connection, now: float, plan: Promotion, limit: int) -> list[Due]:
    return [
        Due(*row)
        for upstream, opened_at in plan.reopened().items()
        for row in query.rows(db, _SQL["early"], (upstream, opened_at, now, limit))
    ]


def _has_ready(db: apsw.Connection, upstream: str, going: list[bytes], due: list[Due]) -> bool:
    """Whether a task of this upstream is in the main queue, or goes there in this round."""
    if any(task.upstream == upstream and task.task_id in going for task in due):
        return True
    return bool(query.value(db, _SQL["has_ready"], (upstream,)))
