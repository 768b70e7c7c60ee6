"""Dead letters as people look at them."""

from __future__ import annotations

from tidegate.store.columns import dead_letter
from tidegate.store.common.session import Session
from tidegate.store.filters import filter_parameters
from tidegate.store.rows import DeadLetter, TaskFilter


async def dead_letters(db: Session, which: TaskFilter, after: str | None, limit: int) -> list[DeadLetter]:
    """Return dead letters, the latest failure first, continuing after the id `after`.

    A letter that was redriven still marks its place. One that was purged marks none: the page is the
    first again, so a loop that purges page after page comes to its end.
    """
    if _excludes_dead(which):
        return []
    sql = db.sql("dead_letters")
    last = None if after is None else db.id(after)
    moment = None if last is None else await db.value(sql["moment"], last)
    rows = await db.rows(sql["page"], *filter_parameters(which), moment, last, limit)
    return [dead_letter(row, db.text) for row in rows]


async def count_dead(db: Session, which: TaskFilter) -> int:
    """Return how many dead letters match."""
    if _excludes_dead(which):
        return 0
    found: int = await db.value(db.sql("count_dead")["count"], *filter_parameters(which))
    return found


def _excludes_dead(which: TaskFilter) -> bool:
    return bool(which.states) and "dead" not in which.states
