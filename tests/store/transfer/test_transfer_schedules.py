"""Schedules move with the tasks: their next ticks, pauses, sets and the ticks that still count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_build import START
from transfer_support import Move

from tidegate.codec.tags import CODEC
from tidegate.domain.schedule import Overlap, ScheduledTask, ScheduleRule
from tidegate.errors import ConfigError
from tidegate.policy.due_ticks import DecidedTick, TickOutcome
from tidegate.store.schedule_rows import FiredTick, Firing, NewSchedule

pytestmark = pytest.mark.anyio

QUEUE = ScheduleRule(cron="* * * * *", overlap=Overlap.QUEUE)
TASK = ScheduledTask(function="app:work", queue="main", args='{"n":1}', codec_tag=CODEC)


async def test_a_schedule_goes_on_at_the_target_where_it_stopped(moving: Move) -> None:
    await moving.old.add_schedule(NewSchedule("line", QUEUE, TASK, START + 60.0))
    await moving.old.add_schedule(NewSchedule("paused", QUEUE, TASK, START + 60.0))
    await moving.old.pause_schedule("paused")
    declared = [NewSchedule("declared", QUEUE, TASK, START + 3_600.0)]
    await moving.old.declare_schedules("app:app", "one", declared, grace_seconds=60.0)
    moving.clock.advance(120.0)
    (due,) = await moving.old.list_due_schedules()
    task = moving.before.new()
    fired = FiredTick(DecidedTick(START + 60.0, START + 60.0, 1, TickOutcome.FIRED), task, True)
    queued = FiredTick(
        DecidedTick(START + 120.0, START + 120.0, 1, TickOutcome.QUEUED, "overlap"), None, False
    )
    await moving.old.fire_schedules([Firing("line", due.row.revision, START + 180.0, [fired, queued])])

    await moving.all()

    rows = {row.name: row for row in await moving.new.list_schedules()}
    assert {name: (row.next_at, row.application) for name, row in rows.items()} == {
        "declared": (START + 3_600.0, "app:app"),
        "line": (START + 180.0, ""),
        "paused": (None, ""),
    }
    assert (rows["line"].rule, rows["line"].task) == (QUEUE, TASK)
    (waiting,) = await moving.new.list_due_schedules()
    assert waiting.queued == (START + 120.0,)
    assert [unfinished.task_id for unfinished in waiting.unfinished] == [task.id]
    again = await moving.new.declare_schedules("app:app", "one", declared, grace_seconds=60.0)
    assert (again.is_in_force, again.generation, again.changed) == (True, 1, ())


async def test_a_sealed_file_fires_no_schedule_and_takes_none(moving: Move) -> None:
    await moving.old.add_schedule(NewSchedule("line", QUEUE, TASK, START + 60.0))
    await moving.all()
    moving.clock.advance(60.0)
    (due,) = await moving.old.list_due_schedules()

    with pytest.raises(ConfigError):
        await moving.old.fire_schedules([Firing("line", due.row.revision, START + 180.0, [])])
    with pytest.raises(ConfigError):
        await moving.old.add_schedule(NewSchedule("other", QUEUE, replace(TASK, queue="q"), None))
