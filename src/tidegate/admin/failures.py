"""`app.admin.failures`."""

from __future__ import annotations

from typing import Unpack

from tidegate.admin.history_values import UnknownFailureGroup, unknown_failure_group
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.domain.readers import whole_option
from tidegate.operations import failure_groups
from tidegate.operations.history import HistoryFilters
from tidegate.operations.pauses import current_user
from tidegate.threads.bridge import run_sync


class FailureAdmin:
    """List failures that no rule classifies, and mark them as reviewed."""

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def unknown(
        self, *, limit: int = 50, with_reviewed: bool = False, **filters: Unpack[HistoryFilters]
    ) -> list[UnknownFailureGroup]:
        """Return the attempts whose failure no rule classifies, by fingerprint, the most first.

        The attempts of all stored tasks count, even if the task succeeded later.

        Args:
            limit: 1 to 1,000.
            with_reviewed: Also return groups that were reviewed.
            filters: Filters of `HistoryFilters` except `queue`. Default: the last 24 hours.

        Raises:
            OptionError: A value is invalid.
        """
        found = await failure_groups.list_unknown(
            await self._source.opened_store(),
            filters,
            limit=whole_option("limit", limit, most=MOST_LISTED),
            with_reviewed=with_reviewed,
        )
        return [unknown_failure_group(each) for each in found]

    def unknown_sync(
        self, *, limit: int = 50, with_reviewed: bool = False, **filters: Unpack[HistoryFilters]
    ) -> list[UnknownFailureGroup]:
        """Same as `unknown`, from sync code."""
        return run_sync(self.unknown(limit=limit, with_reviewed=with_reviewed, **filters))

    async def mark_reviewed(self, fingerprint: str, *, note: str = "", by: str = "") -> None:
        """Mark a group as reviewed.

        The same failure from a different frame of your code is a different group.

        Args:
            fingerprint: The group's fingerprint, or its first digits.
            note: What was found.
            by: Who does this; by default the user of this process.

        Raises:
            OptionError: There is no such group.
        """
        store = await self._source.opened_store()
        by = by or current_user("app.admin")
        await failure_groups.mark_reviewed(store, [fingerprint], by=by, note=note)

    def mark_reviewed_sync(self, fingerprint: str, *, note: str = "", by: str = "") -> None:
        """Same as `mark_reviewed`, from sync code."""
        return run_sync(self.mark_reviewed(fingerprint, note=note, by=by))
