"""Forgets a task or a tenant: removes its bytes from the store, from the archive and from their files."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from tidegate.domain.ids import id_or_none
from tidegate.domain.readers import name_option
from tidegate.domain.states import FINAL
from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError, TaskNotFoundError, UsageError
from tidegate.operations.pauses import record
from tidegate.operations.tasks import full_id
from tidegate.store.archive import Archive, ArchivedRow
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter, TaskRow

CANCEL_SECONDS = 60.0
"""How long `cancel` waits for running tasks to end."""
_CHUNK = 200
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """The result of `forget`; with `dry_run`, what it would do."""

    tasks: int
    """How many tasks in the store were forgotten."""
    unfinished: int = 0
    """How many of these tasks were not final. Without `cancel`, such tasks prevent the forgetting."""
    other_rows: int = 0
    """How many other rows about the tenant were removed or cleared."""
    archived_rows: int = 0
    """How many rows were removed from the archive of this machine."""
    not_erased: str = ""
    """Why deleted bytes may still be in the database's files; empty if they are gone."""
    is_dry_run: bool = False


async def forget(
    store: Store,
    *,
    task_id: str | None = None,
    tenant: str | None = None,
    archive: Archive | None = None,
    by: str = "",
    role: str = "",
    cancel: bool = False,
    dry_run: bool = False,
) -> ForgetReport:
    """Forget one task or all tasks of a tenant. Safe to repeat.

    Args:
        store: Holds the tasks.
        task_id: The task; a task that is deleted already is named by its full id.
        tenant: The tenant.
        archive: The archive of this machine; its files are rewritten.
        by: Who does this, for the audit log.
        role: The role of their token; empty without one.
        cancel: Whether to cancel tasks that are not final, and wait until they have ended.
        dry_run: Only count.

    Raises:
        UsageError: Neither or both of a task and a tenant are given.
        NotAcceptedError: Some tasks are not final. Nothing was forgotten.
        TaskNotFoundError: The short id names no task.
        ArchiveError: The archive cannot be rewritten. Forget again after it was repaired.
    """
    if (task_id is None) == (tenant is None):
        raise UsageError("it is not clear what to forget", fix="give a task or a tenant, one of them")
    if tenant is not None:
        tenant = name_option("tenant", tenant)
    ids = [] if task_id is None else [await _known_id(store, task_id)]
    tasks, unfinished = await _count(store, ids, tenant)
    report = ForgetReport(tasks, len(unfinished), is_dry_run=dry_run)
    if dry_run:
        return report
    if unfinished:
        await _end(store, unfinished, cancel=cancel)
    with ExitStack() as stack:
        if archive is not None:
            await asyncio.to_thread(stack.enter_context, archive.alone())
        done = await _forget_tasks(store, ids, tenant)
        others = 0 if tenant is None else await store.forget_tenant(tenant)
        archived = 0
        if archive is not None:
            archived = await asyncio.to_thread(archive.forget, partial(_is_of, frozenset(ids), tenant))
    target = ids[0] if tenant is None else f"tenant {_digest(tenant)}"
    answer = f"{counted(done, 'task')}, {counted(archived, 'archived row')}"
    await record(store, by, "forget", target, answer, role=role)
    not_erased = await store.erase_deleted()
    return replace(report, tasks=done, other_rows=others, archived_rows=archived, not_erased=not_erased)


def _digest(tenant: str) -> str:
    """Return the digest that stands for a forgotten tenant in the audit log.

    The digest can be computed from the name.
    """
    return f"sha256:{hashlib.sha256(tenant.encode()).hexdigest()[:16]}"


async def _known_id(store: Store, task_id: str) -> str:
    """Return the full id. A task that is deleted already is accepted by its full id."""
    try:
        return await full_id(store, task_id)
    except TaskNotFoundError:
        known = id_or_none(task_id)
        if known is None:
            raise
        return known


async def _count(store: Store, ids: Sequence[str], tenant: str | None) -> tuple[int, list[str]]:
    """Return the number of tasks, and the tasks that are not final."""
    if tenant is None:
        rows = list((await store.read_tasks(ids)).values())
        return len(rows), _unfinished(rows)
    count, unfinished, after = 0, list[str](), None
    while rows := await store.list_tasks(TaskFilter(tenant=tenant), after=after, limit=_PAGE):
        count += len(rows)
        unfinished += _unfinished(rows)
        after = rows[-1].id
    return count, unfinished


def _unfinished(rows: Sequence[TaskRow]) -> list[str]:
    return [row.id for row in rows if row.state not in FINAL]


async def _end(store: Store, unfinished: Sequence[str], *, cancel: bool) -> None:
    """Cancel these tasks and wait until they are final.

    Raises:
        NotAcceptedError: The tasks may not be cancelled, or some still run.
    """
    if not cancel:
        raise NotAcceptedError(
            f"{counted(len(unfinished), 'task')} {'is' if len(unfinished) == 1 else 'are'} not final;"
            " nothing was forgotten",
            fix="wait for them or cancel them first: --cancel, or cancel=True",
        )
    for start in range(0, len(unfinished), _CHUNK):
        await store.cancel(unfinished[start : start + _CHUNK], why="to be forgotten")
    left = list(unfinished)
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            while left := _unfinished(list((await store.read_tasks(left)).values())):
                await store.wait_for_change(1.0)
    except TimeoutError:
        raise NotAcceptedError(
            f"{counted(len(left), 'task')} still running {CANCEL_SECONDS:g} s after the cancel; nothing was"
            " forgotten",
            fix="wait until they have ended, or cancel them by force: tidegate tasks cancel ID --force",
            running=len(left),
        ) from None


async def _forget_tasks(store: Store, ids: Sequence[str], tenant: str | None) -> int:
    """Forget the tasks in chunks; return how many tasks there were."""
    if tenant is None:
        there = len(await store.read_tasks(ids))
        await store.forget_tasks(ids)
        return there
    done = 0
    while rows := await store.list_tasks(TaskFilter(tenant=tenant), limit=_CHUNK):
        gone = await store.forget_tasks([row.id for row in rows])
        done += len(gone)
        if len(gone) < len(rows):
            raise NotAcceptedError(
                f"tasks of the tenant were enqueued meanwhile; {counted(done, 'task')} forgotten",
                fix="stop what enqueues them, then forget again",
            )
    return done


def _is_of(ids: frozenset[str], tenant: str | None, row: ArchivedRow) -> bool:
    return row.task_id in ids if tenant is None else row.tenant == tenant
