"""The metrics that are computed from a store, as Prometheus reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from store_build import START, Build, SettableClock, dead, expire, retrying, succeeded

from tidegate.domain.calls import CallSummary, EndedCalls
from tidegate.domain.outcome import Cancelled, Released
from tidegate.domain.spec import Window
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals
from tidegate.limits.pauses import PauseKind
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.monitor.exposition import expose
from tidegate.monitor.reading import read_metrics
from tidegate.store.common import gates
from tidegate.store.common.session import Session
from tidegate.store.history_rows import EventKind, HistoryRange
from tidegate.store.protocol import Store
from tidegate.store.sqlite.store import SqliteStore
from tidegate.store.upstream_rows import UpstreamRow

pytestmark = pytest.mark.anyio

Labels = frozenset[tuple[str, str]]


class Scrape:
    """What Prometheus reads of one scrape."""

    def __init__(self, text: str) -> None:
        self._values: dict[tuple[str, Labels], float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self._values[f"tidegate_{name}", frozenset(labels.items())]

    def by(self, label: str, name: str, **labels: str) -> Mapping[str, float]:
        """Return the values that are not 0, by one label."""
        found = {}
        for (metric, given), value in self._values.items():
            others = dict(given)
            if metric == f"tidegate_{name}" and label in others:
                key = others.pop(label)
                if others == labels and value:
                    found[key] = value
        return found


async def scrape(store: Store) -> Scrape:
    return Scrape(expose(await read_metrics(store)).body.decode())


async def test_depth_is_shown_by_queue_and_state(build: Build, store: Store) -> None:
    for n, state in enumerate((State.SCHEDULED, State.RETRYING, State.DEAD, State.RUNNING, State.READY), 1):
        for _ in range(n):
            await build.in_state(state, queue="main")
    found = await scrape(store)
    assert found.by("state", "queue_tasks", queue="main") == {
        "scheduled": 1,
        "retrying": 2,
        "dead": 3,
        "running": 4,
        "ready": 5,
    }
    assert found.value("queue_runnable_tasks", queue="main") == 5


async def test_age_and_drain_follow_the_store_clock(build: Build, store: Store, clock: SettableClock) -> None:
    await build.worker(lease=10_000)
    await build.one(queue="main")
    clock.advance(7)
    found = await scrape(store)
    assert found.value("queue_oldest_runnable_age_seconds", queue="main") == 7
    assert math.isnan(found.value("queue_drain_seconds", queue="main")), "nothing to estimate from"
    await build.done(*[succeeded(task.fence) for task in await build.running(6, queue="other")])
    await build.enqueue(3, queue="other")
    clock.advance(60)
    found = await scrape(store)
    assert found.value("queue_drain_seconds", queue="other") == pytest.approx(30, rel=0.05)
    clock.advance(1_200)
    assert (await scrape(store)).value("queue_drain_seconds", queue="other") == math.inf


async def test_blocked_tasks_are_shown_with_the_reason_and_are_not_runnable(
    build: Build, store: Store
) -> None:
    await build.one(queue="nobody")
    assert (await scrape(store)).by("reason", "queue_blocked_tasks", queue="nobody") == {"worker": 1}
    await build.worker()
    await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, "openai")])
    await store.park_gate("openai", seconds=None, why="no money")
    await build.enqueue(2, queue="calls", upstream="openai")
    await build.enqueue(3, queue="off")
    await store.pause(PauseKind.QUEUE, "off", by="ada", why="bad prompt")
    found = await scrape(store)
    assert found.by("reason", "queue_blocked_tasks", queue="calls") == {"upstream": 2}
    assert found.by("reason", "queue_blocked_tasks", queue="off") == {"paused": 3}
    assert found.value("queue_paused", queue="off") == 1
    assert found.value("queue_runnable_tasks", queue="off") == 0
    assert found.value("queue_runnable_tasks", queue="nobody") == 1


async def test_workers_are_counted_by_pool_with_their_slots(
    build: Build, store: Store, clock: SettableClock
) -> None:
    worker = await build.worker(pool="gpu", slots=4)
    await build.running(3, worker=worker)
    await build.worker(pool="gpu", slots=2)
    clock.advance(5)
    found = await scrape(store)
    assert found.by("state", "workers", pool="gpu") == {"live": 2}
    assert found.value("worker_slots", pool="gpu") == 6
    assert found.value("worker_slots_busy", pool="gpu") == 3
    assert found.value("worker_last_heartbeat_timestamp_seconds", pool="gpu") == START
    clock.advance(15)
    assert (await scrape(store)).by("state", "workers", pool="gpu") == {"late": 2}
    clock.advance(15)
    assert (await scrape(store)).by("state", "workers", pool="gpu") == {"lost": 2}


async def test_gates_limits_and_retry_budgets_are_shown_by_upstream(build: Build, store: Store) -> None:
    limits = Limits(windows=(Window("requests_per_minute", 600, 60.0),), max_in_flight=5)
    await store.declare_limits(
        [LimitDeclaration(GateKind.UPSTREAM, name, limits) for name in ("openai", "openai#team-a")]
    )
    await build.running(2, upstream="openai")
    await store.park_gate("openai#team-a", seconds=60, why="")
    found = await scrape(store)
    assert found.by("state", "gate_state", upstream="openai", key="") == {"flowing": 1}
    assert found.by("state", "gate_state", upstream="openai", key="team-a") == {"parked": 1}
    assert found.by("limit", "limit_capacity", upstream="openai", key="") == {
        "requests_per_minute": 600,
        "max_in_flight": 5,
    }
    assert found.by("limit", "limit_in_use", upstream="openai", key="") == {"max_in_flight": 2}
    assert found.value("retry_budget_capacity", upstream="openai") == 120
    assert found.value("retry_budget_capacity", upstream="") == 600


async def test_counters_count_what_happened_by_queue_and_function(build: Build, store: Store) -> None:
    tasks = await build.running(5, queue="main")
    await build.done(
        succeeded(tasks[0].fence),
        dead(tasks[1].fence),
        Cancelled(tasks[2].fence),
        retrying(tasks[3].fence),
        Released(tasks[4].fence, "shutdown"),
    )
    found = await scrape(store)
    where = {"queue": "main", "function": "app:work"}
    assert found.value("tasks_enqueued_total", **where) == 5
    assert found.by("outcome", "tasks_finished_total", **where) == {"succeeded": 1, "dead": 1, "cancelled": 1}
    assert found.by("reason", "retries_total", **where) == {str(retrying(tasks[3].fence).failure.reason): 1}
    assert found.by("reason", "deaths_total", **where) == {str(dead(tasks[1].fence).failure.reason): 1}
    assert found.value("runs_released_total", **where) == 1


async def test_run_and_wait_times_are_histograms(build: Build, store: Store, clock: SettableClock) -> None:
    await build.enqueue(3, queue="main")
    clock.advance(5)
    worker = await build.worker(lease=10_000)
    tasks = await build.claim(worker, queues=("main",))
    clock.advance(0.5)
    await build.done(succeeded(tasks[0].fence))
    clock.advance(99.5)
    await build.done(*[succeeded(task.fence) for task in tasks[1:]])
    found = await scrape(store)
    where = {"queue": "main", "function": "app:work"}
    assert found.value("task_run_seconds_count", **where) == 3
    assert found.value("task_run_seconds_sum", **where) == pytest.approx(200.5)
    assert found.value("task_run_seconds_bucket", **where, le="0.64") == 1
    assert found.value("task_run_seconds_bucket", **where, le="81.92") == 1
    assert found.value("task_run_seconds_bucket", **where, le="163.84") == 3
    assert found.value("task_run_seconds_bucket", **where, le="+Inf") == 3
    assert found.value("task_wait_seconds_sum", **where) == pytest.approx(15)
    assert found.value("task_wait_seconds_bucket", **where, le="2.56") == 0
    assert found.value("task_total_seconds_count", **where) == 3
    assert found.value("task_total_seconds_sum", **where) == pytest.approx(215.5)
    assert found.value("task_total_seconds_bucket", **where, le="10.24") == 1


async def test_the_time_of_a_task_counts_once_over_all_its_runs_and_from_its_redrive(
    build: Build, store: Store, clock: SettableClock
) -> None:
    task = await build.run(queue="main")
    clock.advance(10)
    await build.done(retrying(task.fence, delay=20))
    clock.advance(20)
    await store.promote()
    (again,) = await build.claim(await build.worker(lease=10_000))
    clock.advance(5)
    await build.done(dead(again.fence))
    where = {"queue": "main", "function": "app:work"}
    assert (await scrape(store)).value("task_total_seconds_sum", **where) == pytest.approx(35)
    clock.advance(1_000)
    await store.redrive([task.fence.task_id])
    clock.advance(7)
    (again,) = await build.claim(await build.worker(lease=10_000))
    await build.done(Cancelled(again.fence))
    found = await scrape(store)
    assert found.value("task_total_seconds_sum", **where) == pytest.approx(42)
    assert found.value("task_total_seconds_count", **where) == 2


async def test_counters_stay_when_the_history_is_folded_summed_and_deleted(
    build: Build, store: Store, clock: SettableClock
) -> None:
    for _ in range(3):
        tasks = await build.running(2, queue="main")
        calls = CallSummary(count=1, ended=(EndedCalls("model", "succeeded", 1),))
        await build.done(succeeded(tasks[0].fence)._replace(calls=calls), dead(tasks[1].fence))
    before = (await store.get_totals()).rows
    assert before[0].enqueued == 6
    assert (before[0].succeeded, before[0].dead) == (3, 3)
    totals = await store.get_totals()
    assert {event.kind for event in totals.events} == {EventKind.DEAD, EventKind.CALL}
    for days in (1 / 1_440, 3, 40, 500):
        clock.advance(days * 86_400)
        await store.compact_history()
        assert (await store.get_totals()).rows == before, f"after {days} days"
        while await expire(store, finished_seconds=1.0, dead_seconds=1.0):
            pass
        after = await store.get_totals()
        assert after == totals, f"after {days} days and their retention"
    everything = HistoryRange(0.0, clock.now + 60)
    assert await store.get_statistics(everything, step_minutes=1_440) == [], "the history itself is gone"
    await build.one(queue="main")
    assert (await store.get_totals()).rows[0].enqueued == 7


async def test_tokens_are_counted_by_upstream(build: Build, store: Store) -> None:
    task = await build.run(queue="main", upstream="openai")
    used = UsageTotals(calls=2, input_tokens=30, output_tokens=12)
    await build.done(succeeded(task.fence)._replace(calls=CallSummary(count=2, used=used)))
    found = await scrape(store)
    assert found.value("upstream_calls_with_usage_total", upstream="openai") == 2
    assert found.by("direction", "tokens_total", upstream="openai") == {"input": 30, "output": 12}


async def test_calls_are_counted_by_the_upstream_of_the_call_and_how_they_ended(
    build: Build, store: Store
) -> None:
    good, bad = await build.running(2, queue="main", upstream="openai")
    ended = (EndedCalls("openai", "succeeded", 2), EndedCalls("search", "rate_limit", 1))
    await build.done(
        succeeded(good.fence)._replace(calls=CallSummary(count=3, ended=ended)),
        replace(dead(bad.fence), calls=CallSummary(count=1, ended=(EndedCalls("openai", "interrupted", 1),))),
    )
    for _ in range(2):
        found = await scrape(store)
        assert found.by("outcome", "upstream_calls_total", upstream="openai") == {
            "succeeded": 2,
            "interrupted": 1,
        }
        assert found.by("outcome", "upstream_calls_total", upstream="search") == {"rate_limit": 1}
        await store.compact_history()


async def test_a_lease_that_runs_out_is_counted_and_a_clean_end_is_not(
    build: Build, store: Store, clock: SettableClock
) -> None:
    gone, stopped = await build.worker(), await build.worker()
    clock.advance(10_000)
    assert await store.retire_worker(stopped, why="stopped", is_loss=False, only_if_expired=False)
    for _ in range(2):
        assert await store.retire_worker(gone, why="lost", is_loss=True, only_if_expired=True)
    assert sum((await scrape(store)).by("pool", "leases_expired_total").values()) == 1


async def test_the_parts_of_an_overview_agree_though_tasks_finish_meanwhile(
    build: Build, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await build.running(3, queue="main", upstream="u")
    await build.enqueue(2, queue="main", upstream="u")
    original, finished = gates.list_upstreams, False

    async def finish_meanwhile(db: Session) -> list[UpstreamRow]:
        nonlocal finished
        if not finished and not isinstance(store, SqliteStore):
            finished = True
            await build.done(*[succeeded(task.fence) for task in tasks])
        return await original(db)

    monkeypatch.setattr(gates, "list_upstreams", finish_meanwhile)
    found = await store.get_monitoring()
    (queue,) = found.overview.queues
    (work,) = found.work.channels
    assert (queue.running, queue.ready) == (work.running, work.runnable) == (3, 2)
