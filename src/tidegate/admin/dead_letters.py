"""`app.admin.dead_letters`."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterator
from typing import Unpack

from tidegate.admin.deaths import DeathStatistics
from tidegate.admin.tasks import MOST_LISTED
from tidegate.admin.values import DeadLetter, dead_letter, dead_letter_of_task
from tidegate.domain.readers import Seconds, whole_option
from tidegate.operations import dead_letters
from tidegate.operations.bulk import redrive_settings
from tidegate.operations.dead_export import read_letters
from tidegate.operations.dead_letters import DeadLetterChoice, DeadLetterFilters, DeadLetterReport
from tidegate.operations.pauses import current_user
from tidegate.operations.recorded_task import read_recorded
from tidegate.operations.regression_test import write_test
from tidegate.operations.tasks import full_id, read_dead_task
from tidegate.store.protocol import Store
from tidegate.store.short_ids import TaskIds
from tidegate.threads.bridge import run_sync

_HOW_TO_CHOOSE = "give task ids, a filter, or everything=True: one of the three"


class DeadLetterAdmin(DeathStatistics):
    """List, count, group, redrive and purge dead tasks, or write a dead task as a test. Ids may be short."""

    async def list(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[DeadLetterFilters]
    ) -> builtins.list[DeadLetter]:
        """Return dead letters, the latest failure first.

        Args:
            after: The last task id of the page before.
            limit: 1 to 1,000.
            filters: Filters of `DeadLetterFilters`. Without filters: all dead letters.

        Raises:
            OptionError: A value is invalid.
            TaskNotFoundError: No task has the id `after`.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        store = await self._source.opened_store()
        after = None if after is None else await full_id(store, after)
        which = await dead_letters.task_filter(store, filters)
        return [dead_letter(row) for row in await store.list_dead_letters(which, after=after, limit=limit)]

    def list_sync(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[DeadLetterFilters]
    ) -> builtins.list[DeadLetter]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(after=after, limit=limit, **filters))

    async def export(self, **filters: Unpack[DeadLetterFilters]) -> AsyncIterator[DeadLetter]:
        """Yield all matching dead letters, the latest failure first; without a filter, yield all.

        Letters are read a page at a time, so any number fits into memory.

        Raises:
            OptionError: A value is invalid.
        """
        store = await self._source.opened_store()
        async for row in read_letters(store, await dead_letters.task_filter(store, filters)):
            yield dead_letter(row)

    def export_sync(self, **filters: Unpack[DeadLetterFilters]) -> Iterator[DeadLetter]:
        """Same as `export`, from sync code."""
        letters = self.export(**filters)

        async def following() -> DeadLetter | None:
            return await anext(letters, None)

        while (letter := run_sync(following())) is not None:
            yield letter

    async def get(self, task_id: str) -> DeadLetter:
        """Return one dead letter.

        Raises:
            TaskNotFoundError: No task has this id.
            WrongStateError: The task is not dead.
        """
        store = await self._source.opened_store()
        row = await read_dead_task(store, task_id)
        result = await store.get_result(row.id)
        return dead_letter_of_task(row, result)

    def get_sync(self, task_id: str) -> DeadLetter:
        """Same as `get`, from sync code."""
        return run_sync(self.get(task_id))

    async def as_test(self, task_id: str) -> str:
        """Return one dead letter as the source of a pytest that fails in the same way.

        The source contains the arguments, with secrets replaced by stars. Same as `tidegate dead export
        --as-test`.

        Args:
            task_id: The id of the task, or a short id.

        Raises:
            TaskNotFoundError: No task has this id.
            WrongStateError: The task is not dead.
            UnknownFunctionError: This application does not declare the task's function.
            NotAcceptedError: The failure of the task cannot be reproduced in a test.
        """
        store = await self._source.opened_store()
        return write_test(await read_recorded(store, task_id, only_dead=True), self._source).source

    def as_test_sync(self, task_id: str) -> str:
        """Same as `as_test`, from sync code."""
        return run_sync(self.as_test(task_id))

    async def count(self, **filters: Unpack[DeadLetterFilters]) -> int:
        """Return how many dead letters match the filter; without a filter, count all."""
        store = await self._source.opened_store()
        return await store.count_dead_letters(await dead_letters.task_filter(store, filters))

    def count_sync(self, **filters: Unpack[DeadLetterFilters]) -> int:
        """Same as `count`, from sync code."""
        return run_sync(self.count(**filters))

    async def redrive(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        expect: int | None = None,
        by: str = "",
        to_queue: str | None = None,
        keep_attempts: bool = False,
        repeat_doubts: bool = False,
        stop_above: float = 0.2,
        canary_within: Seconds = 600.0,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Send dead letters back to the main queue, as a recorded operation.

        Up to 100 ids are sent immediately. A filter, `everything` or a longer list starts an operation, whose
        id is in the report: maintenance sends a canary first, then small batches. `app.admin.operations`
        follows, aborts and undoes operations. Dead letters whose function no application declares are
        skipped. A redriven task keeps its id and its history.

        Args:
            task_ids: One id or several; cannot be combined with a filter.
            everything: Choose all dead letters; cannot be combined with ids or a filter.
            dry_run: Only count.
            expect: Refuse if the filter matches more letters than this.
            by: Who does this; by default the user of this process.
            to_queue: Send the letters to this queue instead of their own.
            keep_attempts: Keep counting from the attempts charged so far. By default all counters start from
                zero.
            repeat_doubts: Also send letters whose calls may have been processed.
            stop_above: Stop when a larger share of the first attempts than this (0 to 1) fails.
            canary_within: How long the first attempts of the canary may take.
            filters: Filters of `DeadLetterFilters`.

        Raises:
            UsageError: Not exactly one of ids, a filter and `everything` was given.
            OptionError: A value is invalid.
            NotAcceptedError: No application declares the given function, or the function of a given task; a
                given task is in doubt; or more letters match than expected.
        """
        settings = redrive_settings(
            to_queue=to_queue,
            keep_attempts=keep_attempts,
            repeat_doubts=repeat_doubts,
            stop_above=stop_above,
            canary_within=canary_within,
        )
        store, choice = await self._choice(task_ids, filters, everything=everything)
        if dry_run:
            return await dead_letters.preview(store, choice, settings)
        return await dead_letters.redrive(
            store,
            choice,
            self._source.functions,
            by=by or current_user("app.admin"),
            settings=settings,
            expect=expect,
        )

    def redrive_sync(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        expect: int | None = None,
        by: str = "",
        to_queue: str | None = None,
        keep_attempts: bool = False,
        repeat_doubts: bool = False,
        stop_above: float = 0.2,
        canary_within: Seconds = 600.0,
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Same as `redrive`, from sync code."""
        return run_sync(
            self.redrive(
                task_ids,
                everything=everything,
                dry_run=dry_run,
                expect=expect,
                by=by,
                to_queue=to_queue,
                keep_attempts=keep_attempts,
                repeat_doubts=repeat_doubts,
                stop_above=stop_above,
                canary_within=canary_within,
                **filters,
            )
        )

    async def purge(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        by: str = "",
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Delete dead letters for good, with arguments and history: by id, by filter, or all of them.

        Args:
            task_ids: One id or several; cannot be combined with a filter.
            everything: Choose all dead letters; cannot be combined with ids or a filter.
            dry_run: Only count.
            by: Who does this; by default the user of this process.
            filters: Filters of `DeadLetterFilters`.

        Raises:
            UsageError: Not exactly one of ids, a filter and `everything` was given.
        """
        store, choice = await self._choice(task_ids, filters, everything=everything)
        if dry_run:
            return await dead_letters.preview(store, choice)
        return await dead_letters.purge(store, choice, by=by or current_user("app.admin"))

    def purge_sync(
        self,
        task_ids: TaskIds | None = None,
        *,
        everything: bool = False,
        dry_run: bool = False,
        by: str = "",
        **filters: Unpack[DeadLetterFilters],
    ) -> DeadLetterReport:
        """Same as `purge`, from sync code."""
        return run_sync(self.purge(task_ids, everything=everything, dry_run=dry_run, by=by, **filters))

    async def _choice(
        self, task_ids: TaskIds | None, filters: DeadLetterFilters, *, everything: bool
    ) -> tuple[Store, DeadLetterChoice]:
        dead_letters.require_one_choice(task_ids, filters, everything=everything, fix=_HOW_TO_CHOOSE)
        store = await self._source.opened_store()
        return store, await dead_letters.choose(store, task_ids, filters)
