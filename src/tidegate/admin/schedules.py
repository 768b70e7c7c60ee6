"""`app.admin.schedules`."""

from __future__ import annotations

import builtins
import random
import time
from datetime import datetime
from typing import Any, Unpack

from tidegate.admin.schedule_values import (
    PlannedTick,
    ScheduleStatus,
    TickStatus,
    planned_tick,
    schedule_status,
    tick_status,
)
from tidegate.admin.source import AdminSource
from tidegate.application.task_schedule import ScheduleSettings, changed_task_fields, read_schedule
from tidegate.domain.ids import IdMaker
from tidegate.domain.readers import instant_option, require_names, whole_option, wrong
from tidegate.operations.pauses import current_user
from tidegate.operations.schedules import (
    MOST_PREVIEWED,
    add_schedule,
    edit_schedule,
    find_schedule,
    pause_schedule,
    preview_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from tidegate.schedule.scheduled_tasks import scheduled_task
from tidegate.task import TaskFunction
from tidegate.threads.bridge import run_sync

_PAGE = 200


def _by() -> str:
    return current_user("app.admin")


class ScheduleAdmin:
    """List, add, edit, pause, run and preview schedules.

    Schedules declared in code are changed in the code. Such schedules can be paused, resumed and run here.
    """

    def __init__(self, source: AdminSource) -> None:
        self._source = source
        self._make_id = IdMaker(lambda: time.time_ns() // 1_000_000, random.SystemRandom().getrandbits)

    async def list(self) -> builtins.list[ScheduleStatus]:
        """Return every schedule with its latest tick, by name."""
        store = await self._source.opened_store()
        found: builtins.list[ScheduleStatus] = []
        while page := await store.list_schedules(after=found[-1].name if found else "", limit=_PAGE):
            found += [schedule_status(row) for row in page]
        return found

    def list_sync(self) -> builtins.list[ScheduleStatus]:
        """Same as `list`, from sync code."""
        return run_sync(self.list())

    async def get(self, name: str) -> ScheduleStatus:
        """Return one schedule.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        return schedule_status(await find_schedule(await self._source.opened_store(), name))

    def get_sync(self, name: str) -> ScheduleStatus:
        """Same as `get`, from sync code."""
        return run_sync(self.get(name))

    async def ticks(
        self, name: str, *, before: datetime | None = None, limit: int = 50
    ) -> builtins.list[TickStatus]:
        """Return the outcomes of a schedule's ticks, the newest first.

        Args:
            name: The schedule.
            before: Only ticks planned before this moment; for the next page, `planned_at` of the last tick.
            limit: How many at most.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        store = await self._source.opened_store()
        await find_schedule(store, name)
        moment = None if before is None else instant_option("before", before)
        rows = await store.list_ticks(
            name, before_at=moment, limit=whole_option("limit", limit, most=MOST_PREVIEWED)
        )
        return [tick_status(row) for row in rows]

    def ticks_sync(
        self, name: str, *, before: datetime | None = None, limit: int = 50
    ) -> builtins.list[TickStatus]:
        """Same as `ticks`, from sync code."""
        return run_sync(self.ticks(name, before=before, limit=limit))

    async def unfired(self, since: datetime, *, limit: int = 100) -> builtins.list[TickStatus]:
        """Return the missed and skipped ticks of all schedules, the oldest first.

        Args:
            since: Only ticks that were decided at this moment or later.
            limit: How many at most.
        """
        store = await self._source.opened_store()
        rows = await store.list_unfired_ticks(
            since=instant_option("since", since), limit=whole_option("limit", limit, most=MOST_PREVIEWED)
        )
        return [tick_status(row) for row in rows]

    def unfired_sync(self, since: datetime, *, limit: int = 100) -> builtins.list[TickStatus]:
        """Same as `unfired`, from sync code."""
        return run_sync(self.unfired(since, limit=limit))

    async def preview(self, name: str, count: int = 5) -> builtins.list[PlannedTick]:
        """Return the next ticks of a schedule, marked where the clocks change, as if it were not paused.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        store = await self._source.opened_store()
        number = whole_option("count", count, most=MOST_PREVIEWED)
        return [planned_tick(tick) for tick in await preview_schedule(store, name, number)]

    def preview_sync(self, name: str, count: int = 5) -> builtins.list[PlannedTick]:
        """Same as `preview`, from sync code."""
        return run_sync(self.preview(name, count))

    async def add(
        self,
        function: TaskFunction[..., Any, Any] | str,
        when: str,
        /,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleStatus:
        """Store a schedule. The first tick of the schedule is the next one from now.

        Adding the same schedule again changes nothing. A schedule copies the queue and the other settings
        that the function has now. After a deploy that changes these settings, edit the schedule.

        Args:
            function: A task function of this application, or its name.
            when: Cron, a word such as `@daily`, or an interval such as `every 30s`.
            settings: Settings of `ScheduleSettings`.

        Raises:
            OptionError: There is no such setting, or a value is invalid.
            ArgumentsError: `args` does not fit the function.
            NotAcceptedError: Another schedule has the name.

        Example:
            >>> await app.admin.schedules.add("app:send_report", "0 7 * * 1-5", name="x")  # doctest: +SKIP
        """
        declared = self._source.function(function) if isinstance(function, str) else function
        schedule = read_schedule(declared, when, settings)
        store = await self._source.opened_store()
        task = scheduled_task(schedule.prepare())
        return schedule_status(await add_schedule(store, schedule.name, schedule.rule, task, by=_by()))

    def add_sync(
        self,
        function: TaskFunction[..., Any, Any] | str,
        when: str,
        /,
        **settings: Unpack[ScheduleSettings],
    ) -> ScheduleStatus:
        """Same as `add`, from sync code."""
        return run_sync(self.add(function, when, **settings))

    async def edit(
        self, schedule: str, when: str | None = None, /, **settings: Unpack[ScheduleSettings]
    ) -> ScheduleStatus:
        """Change a schedule; settings that are not given stay the same. The change itself fires no tick.

        If the moments of its ticks change, the next tick is the next one from now.

        Args:
            schedule: The name of the schedule.
            when: Other moments; None: the present ones.
            settings: Settings of `ScheduleSettings` except `name`.

        Raises:
            UnknownScheduleError: No schedule has that name.
            NotAcceptedError: An application declares the schedule.
            OptionError: There is no such setting, or a value is invalid.
            ArgumentsError: `args` does not fit the function.
        """
        given: dict[str, Any] = dict(settings)
        require_names(given, ScheduleSettings.__annotations__)
        if "name" in given:
            raise wrong(
                "name", given["name"], "a schedule keeps its name: add another one, and remove this one"
            )
        store = await self._source.opened_store()
        row = await find_schedule(store, schedule)
        function = self._source.function(row.task.function) if "args" in given else None
        return schedule_status(
            await edit_schedule(
                store,
                schedule,
                when=when,
                settings=given,
                task_fields=changed_task_fields(function, given),
                by=_by(),
            )
        )

    def edit_sync(
        self, schedule: str, when: str | None = None, /, **settings: Unpack[ScheduleSettings]
    ) -> ScheduleStatus:
        """Same as `edit`, from sync code."""
        return run_sync(self.edit(schedule, when, **settings))

    async def remove(self, name: str) -> None:
        """Delete a schedule. The tasks of the schedule and the record of its ticks are kept.

        Raises:
            UnknownScheduleError: No schedule has that name.
            NotAcceptedError: An application declares the schedule.
        """
        await remove_schedule(await self._source.opened_store(), name, by=_by())

    def remove_sync(self, name: str) -> None:
        """Same as `remove`, from sync code."""
        run_sync(self.remove(name))

    async def pause(self, name: str) -> ScheduleStatus:
        """Stop the ticks of a schedule until it is resumed, also over deploys. Waiting ticks are skipped.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        return schedule_status(await pause_schedule(await self._source.opened_store(), name, by=_by()))

    def pause_sync(self, name: str) -> ScheduleStatus:
        """Same as `pause`, from sync code."""
        return run_sync(self.pause(name))

    async def resume(self, name: str) -> ScheduleStatus:
        """Let a paused schedule tick again from its next regular tick on.

        Ticks during the pause are not made up for.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        return schedule_status(await resume_schedule(await self._source.opened_store(), name, by=_by()))

    def resume_sync(self, name: str) -> ScheduleStatus:
        """Same as `resume`, from sync code."""
        return run_sync(self.resume(name))

    async def run(self, name: str) -> str:
        """Enqueue the task of a schedule now, even if the schedule is paused; return the task's id.

        The next tick stays the same. With `overlap="skip"` or `"queue"`, this task counts as an earlier task
        of the schedule.

        Raises:
            UnknownScheduleError: No schedule has that name.
        """
        task = await run_schedule(await self._source.opened_store(), name, self._make_id, by=_by())
        return task.id

    def run_sync(self, name: str) -> str:
        """Same as `run`, from sync code."""
        return run_sync(self.run(name))
