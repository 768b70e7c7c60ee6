"""What tasks died of, by time and by group: the part of `app.admin.dead_letters` that counts deaths."""

from __future__ import annotations

from typing import Unpack

from tidegate.admin.history_values import DeathCount, FailureGroup, death_count, failure_group
from tidegate.admin.source import AdminSource
from tidegate.admin.tasks import MOST_LISTED
from tidegate.deadletter.daily_summary import DailySummary, read_summary
from tidegate.deadletter.surges import DEFAULT_WINDOW, GroupSurge, SurgeBy, find_surges
from tidegate.domain.readers import Seconds, choice_option, whole_option
from tidegate.operations import failure_groups, history
from tidegate.operations.history import DeathFilters, GroupFilters, Step
from tidegate.operations.pauses import current_user
from tidegate.policy.failure_state import FailureState
from tidegate.threads.bridge import run_sync


class DeathStatistics:
    """Count and group deaths, and mark groups of failures. Deaths are counted when they happen.

    Args:
        source: Opens the store.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source

    async def statistics(self, *, step: Step = "hour", **filters: Unpack[DeathFilters]) -> list[DeathCount]:
        """Return how many tasks died by period, queue, function and reason, oldest first.

        Deaths are counted when they happen: a redrive or a purge does not change the counts.

        Args:
            step: The length of a period: `"minute"`, `"hour"` or `"day"`, in UTC. Deaths are kept by the
                minute for two days, by the hour for 35 days, and by the day for 400.
            filters: Filters of `DeathFilters`. Default: the last 24 hours. With a tenant, its tasks that are
                still dead are counted.

        Raises:
            OptionError: A value is invalid, or there would be more than 3,000 periods.
        """
        store = await self._source.opened_store()
        return [death_count(row) for row in await history.count_deaths(store, filters, step=step)]

    def statistics_sync(self, *, step: Step = "hour", **filters: Unpack[DeathFilters]) -> list[DeathCount]:
        """Same as `statistics`, from sync code."""
        return run_sync(self.statistics(step=step, **filters))

    async def groups(
        self, *, limit: int = 50, state: str | None = None, **filters: Unpack[GroupFilters]
    ) -> list[FailureGroup]:
        """Return what tasks died of, the most deaths first.

        A group has one error class, one message without its numbers, ids and quoted texts, and one innermost
        frame of your code.

        Args:
            limit: 1 to 1,000.
            state: Only groups in this state: `"open"`, `"resolved"` or `"muted"`.
            filters: Filters of `GroupFilters`. Default: the last 24 hours.

        Raises:
            OptionError: A value is invalid.
        """
        limit = whole_option("limit", limit, most=MOST_LISTED)
        chosen = None if state is None else FailureState(choice_option("state", state, FailureState))
        store = await self._source.opened_store()
        return [
            failure_group(each)
            for each in await failure_groups.list_groups(store, filters, limit=limit, state=chosen)
        ]

    def groups_sync(
        self, *, limit: int = 50, state: str | None = None, **filters: Unpack[GroupFilters]
    ) -> list[FailureGroup]:
        """Same as `groups`, from sync code."""
        return run_sync(self.groups(limit=limit, state=state, **filters))

    async def resolve(self, fingerprint: str, *, note: str = "", by: str = "") -> None:
        """Mark a group of failures as resolved. The group opens again when another task dies of it.

        Args:
            fingerprint: The group's fingerprint, or its first digits.
            note: The reason, for the next person.
            by: Who does this; by default the user of this process.

        Raises:
            OptionError: There is no such group.
        """
        store = await self._source.opened_store()
        await failure_groups.resolve(store, fingerprint, by=by or current_user("app.admin"), note=note)

    def resolve_sync(self, fingerprint: str, *, note: str = "", by: str = "") -> None:
        """Same as `resolve`, from sync code."""
        return run_sync(self.resolve(fingerprint, note=note, by=by))

    async def mute(
        self, fingerprint: str, *, duration: Seconds | None = None, note: str = "", by: str = ""
    ) -> None:
        """Mute a group of failures: the alert about a surge of deaths leaves it out.

        Its deaths are counted, but the daily summary does not list it as unresolved.

        Args:
            fingerprint: The group's fingerprint, or its first digits.
            duration: How long the mute lasts; None: for ever.
            note: The reason, for the next person.
            by: Who does this; by default the user of this process.

        Raises:
            OptionError: There is no such group, or the duration is invalid.
        """
        store = await self._source.opened_store()
        by = by or current_user("app.admin")
        await failure_groups.mute(store, fingerprint, by=by, note=note, duration=duration)

    def mute_sync(
        self, fingerprint: str, *, duration: Seconds | None = None, note: str = "", by: str = ""
    ) -> None:
        """Same as `mute`, from sync code."""
        return run_sync(self.mute(fingerprint, duration=duration, note=note, by=by))

    async def reopen(self, fingerprint: str) -> bool:
        """Open a group of failures that was resolved or muted; return False if it was open.

        Raises:
            OptionError: There is no such group.
        """
        return await failure_groups.reopen(await self._source.opened_store(), fingerprint)

    def reopen_sync(self, fingerprint: str) -> bool:
        """Same as `reopen`, from sync code."""
        return run_sync(self.reopen(fingerprint))

    async def summary(self) -> DailySummary:
        """Return the deaths of the last 24 hours compared with the day before, as in the daily summary."""
        store = await self._source.opened_store()
        return await read_summary(store, await store.now())

    def summary_sync(self) -> DailySummary:
        """Same as `summary`, from sync code."""
        return run_sync(self.summary())

    async def surges(
        self,
        *,
        by: SurgeBy = "function",
        window: Seconds = DEFAULT_WINDOW,
        queue: str | None = None,
        function: str | None = None,
        reason: str | None = None,
        fingerprint: str | None = None,
        limit: int = 50,
    ) -> list[GroupSurge]:
        """Compare the deaths of the last hour with those of the same hours of earlier days.

        Args:
            by: How the deaths are grouped: `"function"`, `"queue"`, `"reason"` or `"fingerprint"`.
            window: A different length of the present period: a minute to a day.
            queue: Only deaths in this queue.
            function: Only deaths of this function.
            reason: Only deaths with this reason.
            fingerprint: Only deaths with this fingerprint.
            limit: 1 to 1,000.

        Returns:
            The groups that had a death, surges first.

        Raises:
            OptionError: A value is invalid.
        """
        return await find_surges(
            await self._source.opened_store(),
            by=by,
            window=window,
            queue=queue,
            function=function,
            reason=reason,
            fingerprint=fingerprint,
            limit=whole_option("limit", limit, most=MOST_LISTED),
        )

    def surges_sync(
        self,
        *,
        by: SurgeBy = "function",
        window: Seconds = DEFAULT_WINDOW,
        queue: str | None = None,
        function: str | None = None,
        reason: str | None = None,
        fingerprint: str | None = None,
        limit: int = 50,
    ) -> list[GroupSurge]:
        """Same as `surges`, from sync code."""
        return run_sync(
            self.surges(
                by=by,
                window=window,
                queue=queue,
                function=function,
                reason=reason,
                fingerprint=fingerprint,
                limit=limit,
            )
        )
