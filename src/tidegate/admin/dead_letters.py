"""`app.admin.dead_letters`."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict, Unpack

from tidegate._bridge import run_sync
from tidegate.admin.source import (
    AdminSource,
    TaskIds,
    before_option,
    known_functions,
    require_names,
    whole_ids,
)
from tidegate.admin.tasks import MOST_LISTED
from tidegate.admin.values import DeadLetter, DeadLetterReport, dead_letter, dead_letter_of_task
from tidegate.deadletter.redrive import (
    BulkResult,
    purge_matching,
    purge_tasks,
    redrive_matching,
    redrive_tasks,
    require_declared,
)
from tidegate.domain.states import State
from tidegate.errors import UsageError
from tidegate.operations.tasks import full_id, read_dead_task
from tidegate.readers import Seconds, whole_option
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter


class DeadLetterFilters(TypedDict, total=False):
    """Which dead letters; every given one must match."""

    queue: str | None
    function: str | None
    """The full name of the task function."""
    tenant: str | None
    reason: str | None
    """A word of `Reason`: `content_policy`, `crash`…"""
    error_class: str | None
    """Dotted name of the exception class."""
    labels: Mapping[str, str] | None
    before: datetime | Seconds | None
    """Only failed before this moment; a duration is an age: `"7d"` for longer than a week ago."""


class DeadLetterAdmin:
    """List, count, redrive and purge dead tasks, by id or by filter. Ids may be short."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[DeadLetterFilters]
    ) -> builtins.list[DeadLetter]:
        """Return dead letters, the latest failure first.

        Args:
            after: The last task id of the page before.
            limit: 1 to 1,000.
            filters: Those of `DeadLetterFilters`; without any: all dead letters.

        Raises:
            OptionError: A value cannot work.
            TaskNotFoundError: No task has the id `after`.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        store = await self._source.opened_store()
        after = None if after is None else await full_id(store, after)
        task_filter = await _task_filter(store, filters)
        return [
            dead_letter(row) for row in await store.list_dead_letters(task_filter, after=after, limit=limit)
        ]

    def list_sync(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[DeadLetterFilters]
    ) -> builtins.list[DeadLetter]:
        """As `list`, from sync code."""
        return run_sync(self.list(after=after, limit=limit, **filters))

    async def get(self, task_id: str) -> DeadLetter:
        """Return one dead letter.

        Raises:
            TaskNotFoundError: No task has this id.
            WrongStateError: The task is not dead.
        """
        store = await self._source.opened_store()
        row = await read_dead_task(store, task_id)
        result = await store.get_result(row.id)
        return dead_letter_of_task(row, "" if result is None else result.error_class)

    def get_sync(self, task_id: str) -> DeadLetter:
        """As `get`, from sync code."""
        return run_sync(self.get(task_id))

    async def count(self, **filters: Unpack[DeadLetterFilters]) -> int:
        """Return how many dead letters match; without a filter: all."""
        store = await self._source.opened_store()
        return await store.count_dead_letters(await _task_filter(store, filters))

    def count_sync(self, **filters: Unpack[DeadLetterFilters]) -> int:
        """As `count`, from sync code."""
        return run_sync(self.count(**filters))

    async def redrive(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Send dead letters back to the main queue: by id, by filter, or all of them.

        Only those whose function some application declares. By filter they go in chunks, and one that fails
        again meanwhile is not taken twice. Its counters start from zero; the history stays.

        Args:
            task_ids: One or several; then no filter.
            everything: All dead letters; then neither ids nor a filter.
            dry_run: Only count.
            filters: Those of `DeadLetterFilters`.

        Raises:
            UsageError: Neither ids nor a filter nor `everything` is given, or more than one of them.
            NotAcceptedError: The named function, or that of a named task, is declared by no application.
        """
        chosen = _require_choice(task_ids, filters, everything=everything)
        store = await self._source.opened_store()
        task_filter = await _task_filter(store, filters)
        if dry_run:
            return await _preview(store, chosen, task_filter)
        declared = await known_functions(self._source, store)
        if chosen is not None:
            ids = await whole_ids(store, chosen)
            return _report_of_ids(await redrive_tasks(store, ids, declared))
        if task_filter.function is not None:
            require_declared({task_filter.function}, declared)
        return _report_of_bulk(await redrive_matching(store, task_filter, declared))

    def redrive_sync(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """As `redrive`, from sync code."""
        return run_sync(self.redrive(task_ids, everything=everything, dry_run=dry_run, **filters))

    async def purge(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Delete dead letters for good, with arguments and history: by id, by filter, or all of them.

        Args:
            task_ids: One or several; then no filter.
            everything: All dead letters; then neither ids nor a filter.
            dry_run: Only count.
            filters: Those of `DeadLetterFilters`.

        Raises:
            UsageError: Neither ids nor a filter nor `everything` is given, or more than one of them.
        """
        chosen = _require_choice(task_ids, filters, everything=everything)
        store = await self._source.opened_store()
        task_filter = await _task_filter(store, filters)
        if dry_run:
            return await _preview(store, chosen, task_filter)
        if chosen is not None:
            return _report_of_ids(await purge_tasks(store, await whole_ids(store, chosen)))
        return _report_of_bulk(await purge_matching(store, task_filter))

    def purge_sync(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """As `purge`, from sync code."""
        return run_sync(self.purge(task_ids, everything=everything, dry_run=dry_run, **filters))


async def _task_filter(store: Store, filters: DeadLetterFilters) -> TaskFilter:
    require_names(filters, DeadLetterFilters.__annotations__)
    return TaskFilter(
        queue=filters.get("queue"),
        function=filters.get("function"),
        tenant=filters.get("tenant"),
        reason=filters.get("reason"),
        error_class=filters.get("error_class"),
        labels=filters.get("labels") or {},
        before=before_option(filters.get("before"), await store.now()),
    )


def _require_choice(
    task_ids: TaskIds | None, filters: DeadLetterFilters, *, everything: bool
) -> builtins.list[str] | None:
    """Return the ids if some were given; None: a filter, or everything.

    Raises:
        UsageError: It is not clear which: an empty filter would be everything.
    """
    ids = [task_ids] if isinstance(task_ids, str) else None if task_ids is None else list(task_ids)
    is_filtered = any(value not in (None, {}) for value in filters.values())
    if (ids is not None) + is_filtered + everything != 1:
        raise UsageError(
            "it is not clear which dead letters are meant",
            fix="give task ids, a filter, or everything=True: one of the three",
        )
    return ids


async def _preview(
    store: Store, task_ids: builtins.list[str] | None, task_filter: TaskFilter
) -> DeadLetterReport:
    if task_ids is None:
        return DeadLetterReport(await store.count_dead_letters(task_filter), is_dry_run=True)
    ids = await whole_ids(store, task_ids)
    rows = await store.read_tasks(ids)
    dead = sum(row.state is State.DEAD for row in rows.values())
    return DeadLetterReport(dead, refused=len(rows) - dead, unknown=len(ids) - len(rows), is_dry_run=True)


def _report_of_ids(answers: Mapping[str, ActionStatus]) -> DeadLetterReport:
    given = list(answers.values())
    done = given.count(ActionStatus.DONE)
    return DeadLetterReport(
        matched=done,
        done=done,
        refused=given.count(ActionStatus.REFUSED),
        unknown=given.count(ActionStatus.UNKNOWN),
        answers=answers,
    )


def _report_of_bulk(result: BulkResult) -> DeadLetterReport:
    undeclared = dict(result.undeclared)
    matched = result.done + result.refused + sum(undeclared.values())
    return DeadLetterReport(matched, result.done, result.refused, undeclared=undeclared)
