"""Passes over a real store: what the rules see there, and who is notified."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from store_build import START, Build, SettableClock, dead, retrying, succeeded

from tidegate.alerts import task_messages
from tidegate.alerts.evaluation import evaluate_if_due
from tidegate.alerts.settings import AlertSettings, default_rules
from tidegate.alerts.sink_settings import LogSink, TaskMessages
from tidegate.alerts.usual import read_usual
from tidegate.codec.tags import CODEC
from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.schedule import ScheduledTask, ScheduleRule
from tidegate.domain.states import State
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.store.alert_rows import ANY, ClaimedNotice, PassResult
from tidegate.store.failure_rows import MarkKind
from tidegate.store.history_rows import HistoryRange
from tidegate.store.protocol import Store
from tidegate.store.schedule_rows import NewSchedule

pytestmark = pytest.mark.anyio

STEP = 15.0
SECRET_TEXT = "sk-live-0123456789abcdef"


class Evaluator:
    """Makes passes, as processes would, and collects the messages."""

    def __init__(self, store: Store, clock: SettableClock, settings: AlertSettings | None = None) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings or AlertSettings()
        self.messages: list[ClaimedNotice] = []
        self._ids = (f"e{number}" for number in itertools.count(1))

    async def step(self, count: int = 1) -> None:
        """Make the next passes, and take their messages."""
        for _ in range(count):
            self.clock.advance(STEP)
            done = await evaluate_if_due(
                self.store, self.settings, evaluator="test", make_id=lambda: next(self._ids)
            )
            assert done is not None
            claimed = await self.store.claim_notices(["log"], lease_seconds=5.0)
            for each in claimed:
                await self.store.finish_notice(each.id)
            self.messages += claimed

    def sent(self, rule: str) -> list[dict[str, Any]]:
        """Return the data of the messages about a rule, each with its `kind`."""
        found = [(each.kind, msgspec.json.decode(each.body)["data"]) for each in self.messages]
        return [data | {"kind": kind} for kind, data in found if data["rule"] == rule]


@pytest.fixture
def passes(store: Store, clock: SettableClock) -> Evaluator:
    return Evaluator(store, clock)


async def fill_dead_letters(build: Build, worker: str, count: int) -> None:
    failure = Failure(
        Verdict.PERMANENT, Reason.SERVER_ERROR, message=f"500 {SECRET_TEXT}", error_class="app.E"
    )
    tasks = await build.running(
        count, worker=worker, queue="main", args=f'{{"key":"{SECRET_TEXT}"}}'.encode()
    )
    await build.done(*(dead(task.fence, failure=failure) for task in tasks))


async def test_a_provider_break_is_one_alert_and_one_end(
    passes: Evaluator, build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=1e6)
    await passes.step(2)
    assert passes.messages == []
    await fill_dead_letters(build, worker, 40)
    await passes.step(8)
    (surge,) = passes.sent("dead_surge")
    assert (surge["kind"], surge["subject"], surge["severity"], surge["value"]) == (
        "alert.opened",
        "main",
        "critical",
        40.0,
    )
    assert surge["since"] == surge["opened_at"]
    await passes.step(60)
    assert [each["kind"] for each in passes.sent("dead_surge")] == ["alert.opened", "alert.ended"]
    assert len({each.id for each in passes.messages}) == len(passes.messages)


async def test_the_deaths_of_a_muted_group_of_failures_are_no_surge_and_those_of_others_are(
    passes: Evaluator, store: Store, build: Build
) -> None:
    worker = await build.worker(lease=1e6)
    await fill_dead_letters(build, worker, 40)
    now = await store.now()
    (group,) = await store.list_failure_groups(HistoryRange(now - 60.0, now + 60.0))
    await store.mark_failure(group.fingerprint, MarkKind.MUTED, by="ada", seconds=60.0)
    await passes.step(2)
    assert passes.sent("dead_surge") == []

    other = Failure(Verdict.PERMANENT, Reason.AUTH, message="no key", error_class="app.F")
    tasks = await build.running(12, worker=worker, queue="main")
    await build.done(*(dead(task.fence, failure=other) for task in tasks))
    await passes.step()
    (surge,) = passes.sent("dead_surge")
    assert surge["value"] == 12.0
    assert "40 deaths of muted groups left out" in surge["text"]

    await passes.step(2)
    (episode,) = [each for each in await store.list_current_episodes() if each.rule == "dead_surge"]
    assert episode.value == 52.0, "the mute has ended"


async def test_the_earlier_deaths_of_a_muted_group_do_not_raise_what_is_usual(
    store: Store, build: Build, clock: SettableClock
) -> None:
    worker = await build.worker(lease=1e6)
    for _ in range(3):
        await fill_dead_letters(build, worker, 30)
        clock.advance(3_600.0)
    now = await store.now()
    (group,) = await store.list_failure_groups(HistoryRange(now - 86_400.0, now + 60.0))
    loud = await read_usual(store, now, ())
    quiet = await read_usual(store, now, {group.fingerprint})
    assert sum(deaths for deaths, _ in loud.deaths["main"]) >= 60
    assert {(deaths, ended) for deaths, ended in quiet.deaths["main"]} == {(0, 0)}


async def test_a_message_names_number_limit_and_command_and_no_argument_or_secret(
    passes: Evaluator, build: Build
) -> None:
    await fill_dead_letters(build, await build.worker(lease=1e6), 40)
    await passes.step()
    (surge,) = passes.sent("dead_surge")
    assert surge["text"].startswith(
        "[critical] queue main: tasks that died in the last ten minutes: 40 (limit "
    )
    assert "since 2027-01-15 08:00 UTC" in surge["text"]
    assert surge["command"] == "tidegate dead groups --queue main --since 1h"
    assert all(SECRET_TEXT not in each.body for each in passes.messages)


async def test_the_failure_rate_counts_runs_of_the_last_ten_minutes(passes: Evaluator, build: Build) -> None:
    worker = await build.worker(lease=1e6)
    tasks = await build.running(19, worker=worker, queue="main")
    await build.done(*(retrying(task.fence, delay=9_000.0) for task in tasks))
    await passes.step()
    assert passes.sent("failure_rate") == []
    (last,) = await build.running(1, worker=worker, queue="main")
    await build.done(succeeded(last.fence))
    await passes.step(12)
    assert passes.sent("failure_rate") == []
    await passes.step()
    (sent,) = passes.sent("failure_rate")
    assert sent["value"] == 0.95
    assert "19 of 20 runs failed" in sent["text"]


async def test_tasks_that_no_live_worker_runs_are_an_alert_and_a_worker_that_comes_ends_it(
    passes: Evaluator, build: Build
) -> None:
    await build.enqueue(100, queue="main")
    await passes.step(4)
    assert passes.messages == []
    await passes.step()
    (sent,) = passes.sent("unserved")
    assert (sent["subject"], sent["value"]) == ("queue main", 100.0)
    assert "no live worker" in sent["text"]
    await build.worker(lease=1e6)
    await passes.step(6)
    assert [each["kind"] for each in passes.sent("unserved")] == ["alert.opened", "alert.ended"]


async def test_a_function_that_no_worker_knows_is_named(
    passes: Evaluator, build: Build, store: Store
) -> None:
    """Case C67: old workers serve the queue, and nobody knows `t3`."""
    await store.save_manifest("shop:app", {"functions": {"app:work": {"queue": "main"}}})
    await build.worker(lease=1e6, application="shop:app")
    await build.enqueue(7, queue="main", function="app:t3")
    await build.enqueue(5, queue="main")
    await passes.step(6)
    (sent,) = passes.sent("unserved")
    assert (sent["subject"], sent["value"]) == ("function app:t3", 7.0)


async def test_tasks_that_are_not_due_or_blocked_raise_no_alert(
    passes: Evaluator, build: Build, store: Store, clock: SettableClock
) -> None:
    """Case C80: one due in ten hours, one retry in two hours, one that runs for hours, and a paused queue."""
    from tidegate.limits.pauses import PauseKind

    worker = await build.worker(lease=1e6)
    await build.one(delay_seconds=36_000.0, queue="main")
    waiting, _running = await build.running(2, worker=worker, queue="main")
    await build.done(retrying(waiting.fence, delay=7_200.0))
    await store.pause(PauseKind.QUEUE, "nightly", by="ada", why="")
    await build.enqueue(10, queue="nightly")
    await passes.step(60)
    assert passes.messages == []


async def test_the_age_alert_opens_at_its_limit_and_ends_once(
    store: Store, build: Build, clock: SettableClock
) -> None:
    """Case C80: the age grows by a second a second; one alert for each episode, with an end."""
    rules = default_rules()
    rules |= {"oldest": replace(rules["oldest"], limit=60.0, clear_seconds=30.0)}
    passes = Evaluator(store, clock, AlertSettings(rules=rules))
    worker = await build.worker(lease=1e6)
    await build.enqueue(100, queue="main")
    await passes.step(4)
    assert passes.sent("oldest") == []
    await passes.step()
    (sent,) = passes.sent("oldest")
    assert sent["value"] == 75.0
    tasks = await build.claim(worker, 100)
    await build.done(*(succeeded(task.fence) for task in tasks))
    await passes.step(20)
    assert [each["kind"] for each in passes.sent("oldest")] == ["alert.opened", "alert.ended"]


async def test_every_worker_that_dies_is_an_alert_also_if_nothing_reaps_it(
    passes: Evaluator, build: Build, clock: SettableClock
) -> None:
    await build.worker(lease=30.0, name="w1", host="box")
    await build.worker(lease=30.0, name="w1", host="box")
    await passes.step()
    assert passes.messages == []
    await passes.step()
    (sent,) = passes.sent("worker_gone")
    assert (sent["subject"], sent["value"]) == ("default", 2.0)
    assert "w1 on box" in sent["text"]
    await passes.step(100)
    assert len(passes.sent("worker_gone")) == 1
    await build.worker(lease=1e6)
    await passes.step(2)
    assert [each["kind"] for each in passes.sent("worker_gone")] == ["alert.opened", "alert.ended"]


async def test_a_pool_that_is_stopped_in_an_orderly_way_is_no_alert(
    passes: Evaluator, build: Build, store: Store
) -> None:
    worker = await build.worker(lease=1e6)
    await passes.step()
    await store.retire_worker(worker, why="stopped", is_loss=False, only_if_expired=False)
    await passes.step(60)
    assert passes.messages == []


async def test_a_gate_that_stays_closed_while_tasks_wait_is_an_alert(
    passes: Evaluator, build: Build, store: Store
) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", Limits())])
    await build.worker(lease=1e6)
    quota = CallFailure(Reason.QUOTA, wait_seconds=7_200.0, message=SECRET_TEXT)
    await store.report_failure("openai", quota)
    await build.enqueue(3, queue="main", upstream="openai")
    await passes.step(40)
    assert passes.sent("gate_parked") == []
    await passes.step()
    (sent,) = passes.sent("gate_parked")
    assert (sent["subject"], sent["value"]) == ("openai", 3.0)
    assert "quota" in sent["text"]
    assert SECRET_TEXT not in sent["text"]


async def test_a_gate_that_a_person_parked_is_no_alert(passes: Evaluator, build: Build, store: Store) -> None:
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai", Limits())])
    await build.worker(lease=1e6)
    await store.park_gate("openai", seconds=None, why="invoice")
    await build.enqueue(3, queue="main", upstream="openai")
    await passes.step(60)
    assert passes.sent("gate_parked") == []


async def test_a_tick_that_nothing_fires_is_an_alert(passes: Evaluator, store: Store) -> None:
    rule, task = ScheduleRule(every_seconds=60), ScheduledTask("app:work", "main", "{}", CODEC)
    await store.add_schedule(NewSchedule("nightly", rule, task, START + 60.0))
    await passes.step(12)
    assert passes.sent("schedule_missed") == []
    await passes.step()
    (sent,) = passes.sent("schedule_missed")
    assert sent["subject"] == "nightly"
    assert "no process has fired it" in sent["text"]


async def test_a_muted_rule_sends_nothing_until_the_mute_ends(
    passes: Evaluator, build: Build, store: Store
) -> None:
    await store.mute_alerts("dead_surge", ANY, 120.0, by="ada", why="deploy")
    await fill_dead_letters(build, await build.worker(lease=1e6), 40)
    await passes.step(7)
    assert passes.sent("dead_surge") == []
    await passes.step()
    assert len(passes.sent("dead_surge")) == 1


async def test_a_slow_pass_that_was_overtaken_sends_nothing(
    store: Store, build: Build, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill_dead_letters(build, await build.worker(lease=1e6), 40)
    quick = Evaluator(store, clock)

    async def slow_mutes() -> Sequence[Any]:
        monkeypatch.undo()
        await quick.step()
        return await store.list_alert_mutes()

    monkeypatch.setattr(store, "list_alert_mutes", slow_mutes)
    slow = await evaluate_if_due(store, AlertSettings(), evaluator="slow", make_id=lambda: "late")
    assert slow is None
    assert len(quick.sent("dead_surge")) == 1
    assert all(each.id != "late" for each in await store.list_current_episodes())


async def test_a_sink_gets_each_final_task_that_it_wants_once(
    store: Store, build: Build, clock: SettableClock
) -> None:
    wanted = TaskMessages(("dead", "succeeded"), functions=("app:work",))
    passes = Evaluator(store, clock, AlertSettings(sinks=(LogSink("log", sends_alerts=False, tasks=wanted),)))
    worker = await build.worker(lease=1e6)
    before = await build.in_state(State.DEAD, queue="main")
    clock.advance(task_messages.OVERLAP_SECONDS)
    await passes.step()
    lost, done = await build.running(2, worker=worker, queue="main", args=b'{"key":"secret"}')
    await build.in_state(State.CANCELLED, queue="main")
    await build.done(dead(lost.fence), succeeded(done.fence))
    await passes.step(20)
    kinds = {(each.kind, msgspec.json.decode(each.body)["data"]["task_id"]) for each in passes.messages}
    assert kinds == {("task.dead", lost.fence.task_id), ("task.succeeded", done.fence.task_id)}
    assert len(passes.messages) == 2
    assert before not in {task_id for _, task_id in kinds}
    assert all("secret" not in each.body and "connection reset" not in each.body for each in passes.messages)
    await store.redrive([lost.fence.task_id])
    (again,) = await build.claim(worker, 1, queues=("main",))
    await build.done(dead(again.fence))
    await passes.step()
    assert len(passes.messages) == 3
    assert len({each.id for each in passes.messages}) == 3


async def test_a_task_that_becomes_final_shortly_before_the_first_pass_is_sent_once(
    store: Store, build: Build, clock: SettableClock
) -> None:
    """A new installation runs tasks before anything evaluates alerts."""
    wanted = TaskMessages(("dead", "succeeded"))
    passes = Evaluator(store, clock, AlertSettings(sinks=(LogSink("log", sends_alerts=False, tasks=wanted),)))
    early = {("task.dead", await build.in_state(State.DEAD, queue="main"))}
    early.add(("task.succeeded", await build.in_state(State.SUCCEEDED, queue="main")))
    await passes.step(20)
    found = [(each.kind, msgspec.json.decode(each.body)["data"]["task_id"]) for each in passes.messages]
    assert len(found) == 2
    assert set(found) == early


async def test_a_task_that_becomes_final_during_a_long_pass_is_sent(
    store: Store, build: Build, clock: SettableClock
) -> None:
    """A pass reads up to its start, so the next one must read on from there, and not from its end."""
    wanted = TaskMessages(("dead",))
    passes = Evaluator(store, clock, AlertSettings(sinks=(LogSink("log", sends_alerts=False, tasks=wanted),)))
    await passes.step()
    clock.advance(STEP)
    begun = await store.begin_alert_pass("slow", interval_seconds=STEP)
    assert begun is not None
    clock.advance(1.0)
    late = await build.in_state(State.DEAD, queue="main")
    clock.advance(2 * task_messages.OVERLAP_SECONDS)
    assert await store.end_alert_pass(begun.number, PassResult())
    await passes.step()
    assert [msgspec.json.decode(each.body)["data"]["task_id"] for each in passes.messages] == [late]


async def test_a_task_that_becomes_final_after_the_clock_was_set_back_is_sent(
    store: Store, build: Build, clock: SettableClock
) -> None:
    wanted = TaskMessages(("dead",))
    passes = Evaluator(store, clock, AlertSettings(sinks=(LogSink("log", sends_alerts=False, tasks=wanted),)))
    await passes.step()
    clock.advance(-3_600.0)
    died = await build.in_state(State.DEAD, queue="main")
    await passes.step()
    assert [msgspec.json.decode(each.body)["data"]["task_id"] for each in passes.messages] == [died]


async def test_final_tasks_of_more_than_a_page_are_all_sent_also_after_a_time_without_passes(
    store: Store, build: Build, clock: SettableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_messages, "_PAGE", 3)
    passes = Evaluator(
        store,
        clock,
        AlertSettings(sinks=(LogSink("log", sends_alerts=False, tasks=TaskMessages(("dead",))),)),
    )
    worker = await build.worker(lease=1e6)
    await passes.step()
    tasks = await build.running(8, worker=worker, queue="main")
    await build.done(*(dead(task.fence) for task in tasks))
    clock.advance(7_200.0)
    await passes.step()
    assert len(passes.messages) == 8
