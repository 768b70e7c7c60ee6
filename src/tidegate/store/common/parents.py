"""Tasks that wait until other tasks, their parents, have succeeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.domain.states import State
from tidegate.errors import TaskNotFoundError
from tidegate.store.common.session import Session
from tidegate.store.parent_rows import AdmittedChildren, EndedParents, ParentRow
from tidegate.store.rows import NewTask

DELETED = "deleted"
_FIRST = "00000000-0000-0000-0000-000000000000"


async def hold_new(db: Session, tasks: Sequence[NewTask]) -> None:
    """Hold those of these tasks that wait for others. They were stored in this transaction.

    Raises:
        TaskNotFoundError: A parent does not exist, is of another tenant, or comes later in the same enqueue.
    """
    waiting = [task for task in tasks if task.after]
    if not waiting:
        return
    await _require_parents(db, tasks, waiting)
    sql = db.sql("enqueue")
    ids = [found for task in waiting if (found := db.id(task.id)) is not None]
    await db.run(sql["hold"], db.array(ids))
    await db.run(sql["leave_ready"], db.array(ids))
    edges = [
        (db.id(task.id), db.id(parent), task.on_parent_failure) for task in waiting for parent in task.after
    ]
    await db.run_each(db.sql("admit")["add_parent"], edges)


async def _require_parents(db: Session, tasks: Sequence[NewTask], waiting: Sequence[NewTask]) -> None:
    parents = {parent: db.id(parent) for task in waiting for parent in task.after}
    given = [found for found in parents.values() if found is not None]
    rows = await db.rows(db.sql("admit")["known"], db.array(given))
    tenants = {db.text(task_id): tenant for task_id, tenant in rows}
    places = {task.id: place for place, task in enumerate(tasks)}
    for task in waiting:
        for parent in task.after:
            stored = parents[parent]
            tenant = None if stored is None else tenants.get(db.text(stored))
            comes_later = places.get(parent, -1) >= places[task.id]
            if tenant is None or comes_later or (task.tenant and tenant != task.tenant):
                raise TaskNotFoundError(
                    f"after: there is no task {parent}",
                    fix="enqueue it first; a final task is deleted when its retention time is over",
                    task_id=parent,
                )


async def find_ended_parents(db: Session, after: str | None, limit: int) -> EndedParents:
    """Look at a page of the parents that some task waits for; return those whose end changes something."""
    sql = db.sql("admit")
    page = list(await db.column(sql["parents"], db.id(after or _FIRST), limit))
    if not page:
        return EndedParents(None, (), ())
    ends: dict[Any, str] = {row[0]: row[1] for row in await db.rows(sql["ends"], db.array(page))}
    succeeded = [parent for parent, end in ends.items() if end == State.SUCCEEDED]
    failed = [parent for parent, end in ends.items() if end != State.SUCCEEDED]
    if failed:
        failed = list(await db.column(sql["waits_on"], db.array(failed)))
    return EndedParents(
        db.text(page[-1]) if len(page) == limit else None,
        tuple([db.text(parent) for parent in succeeded]),
        tuple([db.text(parent) for parent in failed]),
    )


async def admit(db: Session, succeeded: Sequence[str], failed: Sequence[str]) -> AdmittedChildren:
    """Remove parents that ended, and make tasks ready that have none left, in one transaction.

    A parent that runs again since it was looked at counts as it was.
    """
    sql = db.sql("admit")
    good, bad = _stored(db, succeeded), _stored(db, failed)
    children = list(await db.column(sql["lock_children"], db.array([*good, *bad])))
    if not children:
        return AdmittedChildren(0, {})
    if good:
        await db.run(sql["remove_succeeded"], db.array(good))
    to_cancel: Mapping[str, str] = {}
    if bad:
        await db.run(sql["remove_failed"], db.array(bad))
        rows = await db.rows(sql["to_cancel"], db.array(bad))
        to_cancel = {db.text(task): db.text(parent) for task, parent in rows}
    return AdmittedChildren(await _make_ready(db, children), to_cancel)


async def admit_left_behind(db: Session, limit: int = 500) -> int:
    """Make held tasks ready that wait for no task any more; return how many."""
    found = list(await db.column(db.sql("admit")["left_behind"], limit))
    return await _make_ready(db, found) if found else 0


async def remove_parents(db: Session, task_ids: Sequence[str]) -> None:
    """Forget what these tasks wait for; they are final."""
    await db.run(db.sql("admit")["remove_all"], db.array(_stored(db, task_ids)))


async def list_parents(db: Session, task_id: str, limit: int = 100) -> list[ParentRow]:
    """Return the tasks that a task waits for, with their states."""
    rows = await db.rows(db.sql("admit")["of_task"], db.id(task_id), limit)
    return [ParentRow(db.text(parent), None if state is None else State(state)) for parent, state in rows]


async def _make_ready(db: Session, children: Sequence[Any]) -> int:
    sql = db.sql("admit")
    free = list(await db.column(sql["free"], db.array(children)))
    if free:
        await db.run(sql["ready"], db.array(free), await db.now())
        await db.run(sql["leave"], db.array(free))
    return len(free)


def _stored(db: Session, task_ids: Sequence[str]) -> list[Any]:
    return [found for task_id in task_ids if (found := db.id(task_id)) is not None]
