"""The daily summary of deaths: what it says, and that one process reports each day once."""

from __future__ import annotations

import asyncio
import json

import pytest
from store_build import FAILED, Build, SettableClock, dead, succeeded

from tidegate.alerts.settings import AlertSettings
from tidegate.alerts.sink_settings import LogSink
from tidegate.deadletter.daily_summary import DailySummary, DeathChange, read_summary
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of
from tidegate.operations import failure_groups
from tidegate.policy.daily import DailyTime
from tidegate.store.protocol import Store
from tidegate.worker.maintenance.daily_summary import DailySummaryJob

HOUR, DAY = 3_600.0, 86_400.0
OTHER = Failure(Verdict.PERMANENT, Reason.QUOTA, "no money for Ada", error_class="app.Poor")
EIGHT = DailyTime(8)  # START is 08:00 in UTC


async def end(build: Build, *failures: Failure, successes: int = 0) -> None:
    tasks = await build.running(len(failures) + successes, queue="main")
    await build.done(
        *[dead(task.fence, failure=each) for task, each in zip(tasks, failures, strict=False)],
        *[succeeded(task.fence) for task in tasks[len(failures) :]],
    )


async def test_a_summary_compares_two_days_and_names_what_is_new_reopened_and_unresolved(
    build: Build, clock: SettableClock
) -> None:
    await end(build, FAILED, FAILED, FAILED)
    clock.advance(HOUR)
    await failure_groups.resolve(build.store, fingerprint_of(FAILED).id, by="ada")
    clock.advance(DAY)
    await end(build, FAILED, OTHER, successes=3)
    clock.advance(60)

    found = await read_summary(build.store, clock.now)

    assert (found.deaths, found.day_before) == (2, 3)
    assert found.reasons == (DeathChange("network", 1, 3), DeathChange("quota", 1, 0))
    assert found.functions == (DeathChange("app:work", 2, 3),)
    assert [each.error_class for each in found.new] == ["app.Poor"]
    assert [each.error_class for each in found.reopened] == ["builtins.OSError"]
    assert {each.error_class for each in found.unresolved} == {"app.Poor", "builtins.OSError"}
    assert found.text.startswith(
        "2 deaths in 24 h, 3 the day before; by reason: network 1 (before: 3), quota 1"
    )
    assert "Ada" not in found.text, "messages may be private"


async def test_a_muted_group_is_not_unresolved(build: Build, clock: SettableClock) -> None:
    await end(build, FAILED)
    clock.advance(1)
    await failure_groups.mute(build.store, fingerprint_of(FAILED).id, by="ada")
    found = await read_summary(build.store, clock.now)
    assert (found.deaths, found.unresolved) == (1, ())


async def test_a_store_without_tasks_has_an_empty_summary(store: Store, clock: SettableClock) -> None:
    found = await read_summary(store, clock.now)
    assert found == DailySummary(clock.now - DAY, clock.now, 0, 0, (), (), (), (), (), ())
    assert found.is_empty


async def test_each_day_is_reported_once_to_every_sink_by_one_of_several_processes(
    build: Build, twin: Store, clock: SettableClock
) -> None:
    settings = AlertSettings(sinks=(LogSink("log"), LogSink("second")))
    jobs = [DailySummaryJob(store, settings) for store in (build.store, twin) * 2]
    await end(build, FAILED)
    clock.advance(HOUR)
    assert not await jobs[0].report_if_due(EIGHT), "the store began after the last due moment"
    clock.advance(DAY)

    done = await asyncio.gather(*(job.report_if_due(EIGHT) for job in jobs for _ in range(2)))

    assert done.count(True) == 1
    notices = await build.store.claim_notices(["log", "second"], lease_seconds=30.0, limit=10)
    assert sorted(each.sink for each in notices) == ["log", "second"]
    body = json.loads(notices[0].body)
    assert body["type"] == "summary.daily"
    assert body["data"]["deaths"] == 1
    assert body["data"]["text"].startswith("[summary of 2027-01-16] 1 death in 24 h")
    clock.advance(DAY)
    assert await jobs[0].report_if_due(EIGHT), "the next day"


async def test_a_day_without_deaths_and_open_groups_makes_no_message(
    build: Build, clock: SettableClock
) -> None:
    job = DailySummaryJob(build.store, AlertSettings())
    await end(build, successes=1)
    clock.advance(DAY + HOUR)
    assert await job.report_if_due(EIGHT)
    assert await build.store.claim_notices(["log"], lease_seconds=30.0, limit=10) == []


async def test_a_process_that_is_killed_before_it_reports_leaves_the_day_to_another(
    build: Build, twin: Store, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end(build, FAILED)
    clock.advance(DAY + HOUR)

    async def killed(*args: object, **settings: object) -> bool:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(build.store, "claim_daily_summary", killed)
        with pytest.raises(asyncio.CancelledError):
            await DailySummaryJob(build.store, AlertSettings()).report_if_due(EIGHT)
    assert await DailySummaryJob(twin, AlertSettings()).report_if_due(EIGHT)
