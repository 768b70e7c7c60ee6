"""List and count dead letters."""

from __future__ import annotations

from tidegate.store.common.columns import StoredDeadLetter, build_dead_letter
from tidegate.store.common.filters import dead_letter_parameters
from tidegate.store.common.session import Session
from tidegate.store.operation_rows import RedriveTerms
from tidegate.store.rows import DeadLetterRow, TaskFilter


async def list_dead_letters(
    db: Session,
    task_filter: TaskFilter,
    *,
    after: str | None = None,
    after_failed_at: float | None = None,
    limit: int = 50,
) -> list[DeadLetterRow]:
    """Return dead letters, latest failure first, starting after the id `after`.

    `after` may be a task that was redriven since. If that task was purged and `after_failed_at` is not given,
    the first page is returned again, so that a loop that purges each page reaches every letter.
    """
    if _excludes_dead(task_filter):
        return []
    sql = db.sql("list_dead_letters")
    last = None if after is None else db.id(after)
    moment = after_failed_at
    if moment is None and last is not None:
        moment = await db.value(sql["moment"], last)
    rows = await db.rows(sql["page"], *dead_letter_parameters(task_filter), moment, last, limit)
    return [build_dead_letter(row, db.text) for row in map(StoredDeadLetter._make, rows)]


async def count_dead_letters(db: Session, task_filter: TaskFilter, *, in_doubt: bool = False) -> int:
    """Return how many dead letters match; with `in_doubt`, only those whose calls may have been processed."""
    if _excludes_dead(task_filter):
        return 0
    statement = db.sql("count_dead_letters")["count_in_doubt" if in_doubt else "count"]
    found: int = await db.value(statement, *dead_letter_parameters(task_filter))
    return found


def history_note(terms: RedriveTerms, *, has_new_args: bool) -> str:
    """Return the text about a redrive for the history of its task."""
    return ", ".join(filter(None, (terms.note, "with new arguments" if has_new_args else "")))


def _excludes_dead(task_filter: TaskFilter) -> bool:
    return bool(task_filter.states) and "dead" not in task_filter.states
