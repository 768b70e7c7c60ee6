"""The part of the store contract for schedules and their ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.store.rows import NewTask
from tidegate.store.schedule_rows import (
    DeclaredSet,
    DueSchedule,
    Firing,
    NewSchedule,
    ScheduleAnswer,
    ScheduleRow,
    TickRow,
)


class Schedules(Protocol):
    """Schedules: added by people or declared by applications, and fired by any process.

    A schedule has a `revision`, which rises at each firing and each change. A firing that was planned from an
    older revision does nothing. So any number of processes may fire, and each tick has one task.
    """

    async def list_due_schedules(
        self, *, after: tuple[float, str] | None = None, limit: int = 200
    ) -> list[DueSchedule]:
        """Return at most `limit` schedules with a due tick, by (`next_at`, name), starting after `after`.

        The first page also has all schedules with a tick that waits for an earlier task.
        """

    async def fire_schedules(self, firings: Sequence[Firing]) -> int:
        """Store what became of due ticks, and enqueue the tasks of ticks that fire; return how many tasks.

        One transaction. A firing is left out if its schedule has another revision. A tick that is decided
        already is left out too, unless it was queued. Safe to repeat.
        """

    async def declare_schedules(
        self, application: str, fingerprint: str, declared: Sequence[NewSchedule], *, grace_seconds: float
    ) -> DeclaredSet:
        """Store the set of schedules that an application declares; schedules not in it are removed.

        A set that the store has not seen before is the newest and comes into force. A set that it has seen
        returns only if no live worker has the set in force, and the set in force was declared more than
        `grace_seconds` ago. So a worker with old code that restarts during a rolling deploy changes nothing,
        and a rollback takes effect.

        A schedule keeps its next tick unless it ticks at other moments than before. A paused schedule stays
        paused. If a schedule of another application has the same name, this set takes it over. Safe to
        repeat.
        """

    async def add_schedule(self, schedule: NewSchedule) -> ScheduleAnswer:
        """Store a person's schedule: `DONE`, or `EXISTS`. Adding an equal schedule again is `DONE`."""

    async def edit_schedule(self, schedule: NewSchedule) -> ScheduleAnswer:
        """Replace a person's schedule: `DONE`, `UNKNOWN` or `DECLARED`. The change fires no tick."""

    async def remove_schedule(self, name: str) -> ScheduleAnswer:
        """Delete a person's schedule: `DONE`, `UNKNOWN` or `DECLARED`.

        The tasks and ticks of the schedule are kept.
        """

    async def pause_schedule(self, name: str) -> ScheduleAnswer:
        """Pause a schedule: `DONE` or `UNKNOWN`. Queued ticks are skipped."""

    async def resume_schedule(self, name: str, next_at: float | None) -> ScheduleAnswer:
        """Let a paused schedule tick again from `next_at` on: `DONE` or `UNKNOWN`.

        A schedule that is not paused keeps its next tick.
        """

    async def run_schedule(self, name: str, task: NewTask, *, counts: bool) -> ScheduleAnswer:
        """Enqueue the task of a schedule now, even if it is paused: `DONE` or `UNKNOWN`. Safe to repeat.

        A tick is recorded as fired by hand.

        Args:
            name: The schedule.
            task: The task.
            counts: Whether the task counts as unfinished for the next ticks until it is final.
        """

    async def list_schedules(self, *, after: str = "", limit: int = 100) -> list[ScheduleRow]:
        """Return at most `limit` schedules in the order of their names, starting after the name `after`."""

    async def get_schedule(self, name: str) -> ScheduleRow | None:
        """Return the schedule with this name; None if it does not exist."""

    async def list_ticks(
        self, schedule: str, *, before_at: float | None = None, limit: int = 50
    ) -> list[TickRow]:
        """Return at most `limit` ticks of a schedule, newest first, planned before `before_at`."""

    async def list_unfired_ticks(self, *, since: float, limit: int = 100) -> list[TickRow]:
        """Return at most `limit` missed and skipped ticks, decided at `since` or later, oldest first."""

    async def list_last_successes(self) -> Mapping[str, float]:
        """Return for each schedule when the latest successful task of its last 20 ticks ended.

        A schedule without such a task is not in the result.
        """
