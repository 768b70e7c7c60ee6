"""The clock of a test: it goes from due moment to due moment, and what is due there runs."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from kit_app import app, double, greet, limited, refuse

from tidegate import OptionError, State
from tidegate.testing import Kit


def test_a_delayed_task_runs_once_the_clock_reaches_its_moment() -> None:
    with Kit(app) as kit:
        double.using(delay="1h").enqueue_sync(1)
        assert len(kit.drain_sync()) == 0
        assert len(kit.advance_sync(minutes=59)) == 0
        assert kit.advance_sync(minutes=1).succeeded == 1


def test_a_retry_runs_at_its_moment_until_the_task_is_dead() -> None:
    with Kit(app) as kit:
        handle = refuse.enqueue_sync("no")
        assert kit.drain_sync().retrying == 1
        drained = kit.advance_sync(hours=2)
        assert (drained.retrying, drained.dead) == (1, 1)
        assert handle.status_sync().state is State.DEAD


def test_each_run_meets_the_clock_at_its_own_due_moment() -> None:
    moments: list[datetime] = []
    with Kit(app) as kit:
        original = double.function
        double.function = lambda number: moments.append(kit.now())
        try:
            start = kit.now()
            for hours in (1, 2, 3):
                double.using(delay=timedelta(hours=hours)).enqueue_sync(hours)
            kit.advance_sync(days=1)
        finally:
            double.function = original
        assert kit.now() - start >= timedelta(days=1)
    assert [round((at - start) / timedelta(hours=1), 2) for at in moments] == [1, 2, 3]


def test_a_task_for_now_by_the_real_clock_is_due() -> None:
    with Kit(app) as kit:
        double.using(run_at=datetime.now(UTC)).enqueue_sync(1)
        assert kit.drain_sync().succeeded == 1


def test_a_rate_limit_admits_tasks_as_the_clock_goes_on() -> None:
    with Kit(app) as kit:
        limited.enqueue_many_sync([(number,) for number in range(6)])
        at_once = kit.drain_sync().succeeded
        later = kit.advance_sync(minutes=5).succeeded
        assert at_once < 6
        assert at_once + later == 6


def test_finished_tasks_are_deleted_when_their_time_is_over() -> None:
    with Kit(app) as kit:
        double.enqueue_sync(1)
        refuse.enqueue_sync("no")
        kit.advance_sync(hours=2)
        kit.advance_sync(days=8)
        assert [task.function for task in kit.enqueued()] == ["kit_app:refuse"]
        kit.advance_sync(days=90)
        assert kit.enqueued() == []


def test_a_key_is_free_again_when_its_time_is_over() -> None:
    with Kit(app) as kit:
        first = greet.using(key="k", key_kept="1h").enqueue_sync("Ada")
        assert greet.using(key="k", key_kept="1h").enqueue_sync("Ada").id == first.id
        kit.advance_sync(hours=1, seconds=1)
        assert greet.using(key="k", key_kept="1h").enqueue_sync("Ada").id != first.id


def test_a_deadline_ends_a_task_that_waits() -> None:
    with Kit(app) as kit:
        refuse.using(deadline="5m").enqueue_sync("no")
        assert kit.advance_sync(hours=1).dead == 1


@pytest.mark.parametrize(
    ("words", "seconds"),
    [(("90s",), 90), ((timedelta(minutes=2),), 120), ((30,), 30), ((), 0)],
    ids=["text", "timedelta", "seconds", "nothing"],
)
def test_a_duration_is_written_as_everywhere(words: tuple[object, ...], seconds: float) -> None:
    with Kit(app) as kit:
        before = kit.now()
        kit.advance_sync(*words)  # type: ignore[arg-type]
        assert seconds <= (kit.now() - before).total_seconds() < seconds + 2


def test_the_clock_does_not_go_back() -> None:
    with Kit(app) as kit, pytest.raises(OptionError, match="advance"):
        kit.advance_sync(hours=-1)


async def test_an_async_test_advances_too() -> None:
    async with Kit(app) as kit:
        await refuse.enqueue("no")
        drained = await kit.advance(days=1)
        assert (drained.retrying, drained.dead) == (2, 1)


def test_ten_thousand_jumps_sleep_for_no_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    threads_of_other_tests = set(threading.enumerate()) - {threading.current_thread()}
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() in threads_of_other_tests:
            real_sleep(seconds)
        else:
            slept.append(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    with Kit(app) as kit:
        double.using(delay=timedelta(days=1_000)).enqueue_sync(1)
        before = kit.now()
        for _ in range(10_000):
            kit.advance_sync(minutes=1)
        assert kit.now() - before >= timedelta(minutes=10_000)
    assert slept == []


def test_the_clock_does_not_follow_a_test_that_sets_the_time_of_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Kit(app) as kit:
        double.using(delay="24h").enqueue_sync(1)
        kit.advance_sync(hours=12)
        before = kit.now()
        monkeypatch.setattr(time, "time", before.timestamp)
        monkeypatch.setattr(time, "monotonic", lambda: 0.0)
        assert kit.now() - before < timedelta(minutes=1)
        assert len(kit.drain_sync()) == 0
        assert kit.advance_sync(hours=12).succeeded == 1


def test_a_due_moment_costs_few_statements() -> None:
    moments = 50
    statements = 0

    def count(*_: object) -> bool:
        nonlocal statements
        statements += 1
        return True

    with Kit(app) as kit:
        for moment in range(moments):
            double.using(delay=timedelta(minutes=moment + 1)).enqueue_sync(moment)
        connection = kit._store.runner._connection()
        connection.exec_trace = count
        assert kit.advance_sync(hours=1).succeeded == moments
        connection.exec_trace = None
    assert statements / moments < 60  # maintenance asks each of its jobs once; most find nothing
