"""`@app.schedule` and `app.admin.schedules`: what is declared, what is refused, and what operators do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate import (
    ArgumentsError,
    ConfigError,
    Context,
    NotAcceptedError,
    OptionError,
    Tidegate,
    UnknownFunctionError,
    UnknownScheduleError,
    UsageError,
)
from tidegate.domain.schedule import CatchUp, Overlap
from tidegate.internals import core_of
from tidegate.schedule.declared import ScheduleSet

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tmp_path: Path) -> Tidegate:
    return Tidegate(f"sqlite:///{tmp_path}/queue.db")


def declare(app: Tidegate, when: str, name: str = "greet", **settings: Any) -> None:
    @app.schedule(when, **{"args": ("Ada",)} | settings)
    @app.task(name=name, queue="mail")
    async def greet(ctx: Context, word: str, times: int = 1) -> str:
        return word * times


# --- declaring -------------------------------------------------------------------------------------------


def test_a_schedule_stores_the_task_that_the_function_would_enqueue(app: Tidegate) -> None:
    declare(app, "0 7 * * 1-5", timezone="Europe/Berlin", not_later_than="30m", max_attempts=7)

    (schedule,) = core_of(app).declared_schedules()
    assert (schedule.name, schedule.rule.cron, schedule.rule.timezone) == (
        "greet",
        "0 7 * * 1-5",
        "Europe/Berlin",
    )
    assert (schedule.rule.catch_up, schedule.rule.overlap) == (CatchUp.ONE, Overlap.SKIP)
    assert schedule.rule.not_later_than == 1_800.0
    assert (schedule.task.function, schedule.task.queue, schedule.task.max_attempts) == ("greet", "mail", 7)
    assert "Ada" in schedule.task.args


def test_with_all_the_missed_ticks_run_one_after_the_other_by_default(app: Tidegate) -> None:
    declare(app, "@hourly", catch_up="all")

    assert core_of(app).schedules["greet"].rule.overlap is Overlap.QUEUE


def test_a_function_may_have_several_schedules_with_names_of_their_own(app: Tidegate) -> None:
    @app.schedule("@daily", name="eu", args=("eu",))
    @app.schedule("@daily", name="us", args={"region": "us"})
    @app.task(name="report")
    async def report(region: str) -> None: ...

    assert sorted(core_of(app).schedules) == ["eu", "us"]
    assert report.spec.name == "report"


def test_two_schedules_of_one_name_are_refused(app: Tidegate) -> None:
    with pytest.raises(ConfigError, match="two schedules are named report"):

        @app.schedule("@daily")
        @app.schedule("@hourly")
        @app.task(name="report")
        async def report() -> None: ...


def test_a_function_that_is_not_a_task_function_is_refused_with_the_order(app: Tidegate) -> None:
    with pytest.raises(UsageError, match=r"write @app\.task below @app\.schedule"):

        @app.schedule("@daily")  # type: ignore[type-var]
        async def report() -> None: ...


def test_an_annotation_that_names_what_comes_later_does_not_stop_the_declaration(app: Tidegate) -> None:
    @app.schedule("@daily", args=(1,))
    @app.task(name="later")
    async def later(number: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert "later" in core_of(app).schedules


@pytest.mark.parametrize(
    ("when", "settings", "option", "says"),
    [
        ("61 * * * *", {}, "schedule", "the minute is wrong"),
        ("0 0 30 2 *", {}, "schedule", "a date that exists"),
        ("", {}, "schedule", "0 7 * * 1-5"),
        (None, {}, "schedule", "0 7 * * 1-5"),
        ("every 0s", {}, "schedule", "whole seconds"),
        ("every 1500ms", {}, "schedule", "whole seconds"),
        ("every day", {}, "schedule", "whole seconds"),
        ("every 400d", {}, "schedule", "a year at most"),
        ("every 30s", {"timezone": "Europe/Berlin"}, "timezone", "leave it out"),
        ("@daily", {"timezone": "Mars/Base"}, "timezone", "IANA"),
        ("@daily", {"catch_up": "some"}, "catch_up", "none, one, all"),
        ("@daily", {"overlap": "never"}, "overlap", "skip, queue, allow"),
        ("@daily", {"catch_up": "all", "overlap": "skip"}, "overlap", "queue"),
        ("@daily", {"catch_up_limit": 0}, "catch_up_limit", "1"),
        ("@daily", {"catch_up_window": "long"}, "catch_up_window", "30s"),
        ("@daily", {"not_later_than": 0}, "not_later_than", "from 1"),
        ("@daily", {"name": "a/b"}, "name", "slash"),
        ("@daily", {"args": "Ada"}, "args", "tuple"),
        ("@daily", {"colour": "red"}, "colour", "timezone"),
        ("@daily", {"key": "k"}, "key", "timezone"),
        ("@daily", {"deadline": datetime(2030, 1, 1, tzinfo=UTC)}, "deadline", "duration"),
        ("@daily", {"labels": {"tidegate.schedule": "x"}}, "label name", "tidegate."),
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_declared(
    app: Tidegate, when: Any, settings: dict[str, Any], option: str, says: str
) -> None:
    with pytest.raises(OptionError) as caught:
        declare(app, when, **settings)
    assert (caught.value.option, says in caught.value.fix) == (option, True), caught.value
    assert core_of(app).schedules == {}


def test_arguments_that_do_not_fit_are_refused_where_they_are_declared(app: Tidegate) -> None:
    with pytest.raises(ArgumentsError, match="schedule greet"):
        declare(app, "@daily", args=("Ada", 1, 2))


def test_the_manifest_gives_the_same_set_back(app: Tidegate) -> None:
    declare(app, "every 2h", total_timeout=float("inf"), labels={"team": "a"})

    declared = core_of(app).schedule_set()
    read = ScheduleSet.from_manifest(declared.application, core_of(app).manifest())

    assert read == declared
    assert read.fingerprint == declared.fingerprint


def test_a_plain_call_has_no_planned_moment() -> None:
    ctx = Context.detached()
    assert (ctx.schedule, ctx.scheduled_for) == ("", None)


# --- operating -------------------------------------------------------------------------------------------


async def test_an_operator_adds_changes_pauses_runs_and_removes_a_schedule(app: Tidegate) -> None:
    declare(app, "@daily", name="greet")
    admin = app.admin.schedules

    added = await admin.add("greet", "0 9 * * *", name="mine", args={"word": "hi"}, overlap="allow")
    assert (added.name, added.application, added.description) == ("mine", None, "At 09:00 every day")
    assert (added.queue, added.overlap) == ("mail", Overlap.ALLOW)
    again = await admin.add(
        app.function("greet"), "0 9 * * *", name="mine", args={"word": "hi"}, overlap="allow"
    )
    assert again == added
    with pytest.raises(NotAcceptedError):
        await admin.add("greet", "@daily", name="mine", args=("no",))

    edited = await admin.edit("mine", "every 90s", args=("Eve",), priority="bulk")
    assert (edited.when, edited.priority.word, edited.overlap) == ("every 90s", "bulk", Overlap.ALLOW)
    assert edited.next_at is not None
    paused = await admin.pause("mine")
    assert (paused.next_at, paused.paused_at is not None) == (None, True)
    task_id = await admin.run("mine")
    assert (await app.status(task_id)).state.value == "ready"
    (tick,) = await admin.ticks("mine")
    assert (tick.reason, tick.task_id) == ("by hand", task_id)
    assert (await admin.get("mine")).last_tick == tick
    assert await admin.unfired(datetime.now(UTC) - timedelta(hours=1)) == []
    assert len(await admin.preview("mine", 7)) == 7
    assert (await admin.resume("mine")).next_at is not None
    assert [row.name for row in await admin.list()] == ["mine"]
    await admin.remove("mine")
    with pytest.raises(UnknownScheduleError, match="stored here: none"):
        await admin.get("mine")


async def test_a_schedule_keeps_its_name_and_knows_only_declared_functions(app: Tidegate) -> None:
    declare(app, "@daily")
    with pytest.raises(UnknownFunctionError):
        await app.admin.schedules.add("nope", "@daily")
    await app.admin.schedules.add("greet", "@daily", name="mine", args=("x",))
    with pytest.raises(OptionError, match="keeps its name"):
        await app.admin.schedules.edit("mine", name="other")


def test_sync_code_has_the_same_methods(app: Tidegate) -> None:
    declare(app, "@daily")
    app.admin.schedules.add_sync("greet", "@hourly", name="mine", args=("x",))
    assert app.admin.schedules.pause_sync("mine").paused_at is not None
    assert app.admin.schedules.preview_sync("mine", 1)[0].mark == ""


async def test_an_embedded_worker_stores_and_fires_the_schedules(app: Tidegate) -> None:
    declare(app, "every 1s", overlap="allow")
    async with app.worker():
        (row,) = await app.admin.schedules.list()
        assert row.application is not None
        watcher = core_of(app).task_watcher(core_of(app).store)
        while not (ticks := await app.admin.schedules.ticks("greet")):
            await core_of(app).store.wait_for_change(0.5)
        assert ticks[-1].task_id is not None
        await watcher.final(ticks[-1].task_id)
    assert await app.result(ticks[-1].task_id) == "Ada"
