"""`app.admin.doubts`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, Unpack

from tidegate.admin.doubt_values import Doubt, doubt
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.domain.readers import choice_option, whole_option
from tidegate.domain.step import DoubtState
from tidegate.operations import doubts
from tidegate.operations.doubts import Decision, DoubtFilters, DoubtReport
from tidegate.operations.pauses import current_user
from tidegate.threads.bridge import run_sync

DoubtIds = int | Iterable[int]
"""The number of one doubt, or several."""


class DoubtAdmin:
    """List calls that were sent and have no definite answer, and decide about them.

    When each doubt is decided that made a task a dead letter, the task goes on.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def list(
        self,
        *,
        state: DoubtState | str | None = DoubtState.OPEN,
        after: int | None = None,
        limit: int = 50,
        **filters: Unpack[DoubtFilters],
    ) -> builtins.list[Doubt]:
        """Return doubts, the oldest first.

        Args:
            state: Only doubts in this state; None: in any.
            after: The last number of the page before.
            limit: 1 to 1,000.
            filters: Filters of `DoubtFilters`. Without filters: all doubts.

        Raises:
            OptionError: A value is invalid.
        """
        rows = await doubts.list_doubts(
            await self._source.opened_store(),
            filters,
            state=None if state is None else DoubtState(choice_option("state", state, DoubtState)),
            after=after,
            limit=whole_option("limit", limit, most=MOST_LISTED),
        )
        return [doubt(row) for row in rows]

    def list_sync(
        self,
        *,
        state: DoubtState | str | None = DoubtState.OPEN,
        after: int | None = None,
        limit: int = 50,
        **filters: Unpack[DoubtFilters],
    ) -> builtins.list[Doubt]:
        """Same as `list`, from sync code."""
        return run_sync(self.list(state=state, after=after, limit=limit, **filters))

    async def get(self, doubt_id: int) -> Doubt:
        """Return one doubt.

        Raises:
            DoubtNotFoundError: No doubt has this number.
        """
        return doubt(await doubts.get_doubt(await self._source.opened_store(), doubt_id))

    def get_sync(self, doubt_id: int) -> Doubt:
        """Same as `get`, from sync code."""
        return run_sync(self.get(doubt_id))

    async def repeat(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Let the next run do these steps again. A call that was processed is then paid twice.

        Args:
            doubt_ids: The number of one doubt, or several; cannot be combined with a filter.
            note: Why; kept with the decision.
            by: Who decides; by default the user of this process.
            filters: Filters of `DoubtFilters`. They choose open doubts.

        Raises:
            UsageError: Both or neither of numbers and a filter are given.
            OptionError: A value is invalid.
        """
        return await self._resolve(doubt_ids, filters, doubts.REPEAT, note, by)

    def repeat_sync(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Same as `repeat`, from sync code."""
        return run_sync(self.repeat(doubt_ids, note=note, by=by, **filters))

    async def accept(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        result: Any,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Record results for these steps, because their work was done.

        Args:
            doubt_ids: The number of one doubt, or several; cannot be combined with a filter.
            result: The result, as the step's function would have returned it.
            note: Why; kept with the decision.
            by: Who decides; by default the user of this process.
            filters: Filters of `DoubtFilters`. They choose open doubts.

        Raises:
            UsageError: Both or neither of numbers and a filter are given.
            ArgumentsError: The result cannot be stored.
            OptionError: A value is invalid.
        """
        return await self._resolve(doubt_ids, filters, doubts.accept(result), note, by)

    def accept_sync(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        result: Any,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Same as `accept`, from sync code."""
        return run_sync(self.accept(doubt_ids, result=result, note=note, by=by, **filters))

    async def fail(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Forbid that these steps are done again. In the next run of its task, the step raises an error.

        Args:
            doubt_ids: The number of one doubt, or several; cannot be combined with a filter.
            note: Why; kept with the decision.
            by: Who decides; by default the user of this process.
            filters: Filters of `DoubtFilters`. They choose open doubts.

        Raises:
            UsageError: Both or neither of numbers and a filter are given.
            OptionError: A value is invalid.
        """
        return await self._resolve(doubt_ids, filters, doubts.FAIL, note, by)

    def fail_sync(
        self,
        doubt_ids: DoubtIds | None = None,
        *,
        note: str = "",
        by: str = "",
        **filters: Unpack[DoubtFilters],
    ) -> DoubtReport:
        """Same as `fail`, from sync code."""
        return run_sync(self.fail(doubt_ids, note=note, by=by, **filters))

    async def _resolve(
        self, doubt_ids: DoubtIds | None, filters: DoubtFilters, decision: Decision, note: str, by: str
    ) -> DoubtReport:
        ids = [doubt_ids] if isinstance(doubt_ids, int) else doubt_ids
        store = await self._source.opened_store()
        choice = await doubts.choose(store, None if ids is None else list(ids), filters)
        return await doubts.resolve_recorded(
            store, choice, decision, by=by or current_user("app.admin"), note=note
        )
