"""The kit in sync tests: a store of its own, manual drains, and what they report."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import kit_app
import pytest
from kit_app import NOWHERE, Refused, app, ask_child_sync, chain, double, greet, refuse, sleep

from tidegate import ArgumentsError, State, UsageError
from tidegate.internals import core_of
from tidegate.testing import Kit, NeverEndedError, RunFailedError
from tidegate.testing.kit.session import WorkSession
from tidegate.testing.kit.sleeping import virtual_sleep


def test_tasks_go_to_the_store_of_the_test_and_wait_until_it_drains() -> None:
    with Kit(app) as kit:
        handle = double.enqueue_sync(21)
        assert handle.status_sync().state is State.READY
        assert kit.drain_sync().succeeded == 1
        assert handle.result_sync(timeout=1) == 42
        assert kit.drain_sync().succeeded == 0
    assert not Path(NOWHERE).exists()


def test_each_kit_begins_with_an_empty_store() -> None:
    for _ in range(2):
        with Kit(app) as kit:
            assert kit.enqueued() == []
            double.enqueue_sync(1)


def test_the_application_gets_its_own_store_back_also_when_the_test_fails() -> None:
    core = core_of(app)
    before = core.url, vars(core).get("store")

    def fail() -> None:
        with Kit(app):
            assert app.url != before[0]
            double.enqueue_sync(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (core.url, vars(core).get("store")) == before


def test_the_file_of_the_store_is_gone_after_the_test() -> None:
    with Kit(app):
        double.enqueue_sync(1)
        path = Path(app.url.removeprefix("sqlite:///"))
        assert path.exists()
    assert not path.parent.exists()


def test_two_kits_of_two_tests_at_once_do_not_share_a_file() -> None:
    with Kit(app):
        first = app.url
        with Kit(app) as inner:
            assert app.url != first
            double.enqueue_sync(1)
            assert len(inner.enqueued()) == 1
        assert app.url == first


def test_a_kit_beside_that_of_another_thread_is_refused_and_no_task_leaves_a_test() -> None:
    refused: list[BaseException] = []

    def enter_another() -> None:
        try:
            with Kit(app):
                pass
        except UsageError as error:
            refused.append(error)

    with Kit(app) as kit:
        thread = threading.Thread(target=enter_another)
        thread.start()
        thread.join(20)
        double.enqueue_sync(1)
        assert len(kit.enqueued()) == 1
    assert "another test uses this application" in str(refused[0])
    with Kit(app):
        double.enqueue_sync(1)
    assert not Path(NOWHERE).exists()


def test_a_kit_that_ends_before_one_inside_it_leaves_the_inner_store_in_place() -> None:
    own = app.url
    outer, inner = Kit(app), Kit(app)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    double.enqueue_sync(1)
    assert len(inner.enqueued()) == 1
    inner.__exit__(None, None, None)
    assert app.url == own
    assert not Path(NOWHERE).exists()


def test_a_drain_runs_what_its_tasks_enqueue() -> None:
    with Kit(app) as kit:
        chain.enqueue_sync(3)
        assert kit.drain_sync().succeeded == 4


def test_a_drain_runs_one_queue_only_if_asked() -> None:
    with Kit(app) as kit:
        greet.enqueue_sync("Ada")
        double.enqueue_sync(1)
        assert [run.function for run in kit.drain_sync(queue="mail").runs] == ["kit_app:greet"]
        assert kit.drain_sync().succeeded == 1


def test_a_task_may_wait_for_the_result_of_a_task_that_it_enqueued() -> None:
    with Kit(app) as kit:
        handle = ask_child_sync.enqueue_sync(5)
        kit.drain_sync()
        assert handle.result_sync(timeout=1) == 11


def test_a_plain_function_runs_in_a_thread_of_its_own_and_may_use_sync_methods() -> None:
    with Kit(app) as kit:
        seen: list[str] = []
        kit_app.double.function, original = (
            lambda number: seen.append(threading.current_thread().name),
            double.function,
        )
        try:
            double.enqueue_sync(1)
            kit.drain_sync()
        finally:
            kit_app.double.function = original
        assert len(seen) == 1
        assert seen[0] != threading.current_thread().name


def test_a_failed_run_is_reported_with_what_the_function_raised() -> None:
    with Kit(app) as kit:
        refuse.enqueue_sync("not today")
        drained = kit.drain_sync()
        (run,) = drained.failures
        assert (drained.retrying, drained.dead, drained.failed) == (1, 0, 1)
        assert isinstance(run.error, Refused)
        assert (run.function, run.run, run.message) == ("kit_app:refuse", 1, "not today")
        assert run.retry_in is not None
        assert run.retry_in > 60


def test_a_drain_shows_what_failed_in_a_failed_assertion() -> None:
    with Kit(app) as kit:
        double.enqueue_sync(1)
        handle = refuse.enqueue_sync("not today")
        assert repr(kit.drain_sync()) == (
            f"<Drained: 1 succeeded, 1 retrying; kit_app:refuse {handle.id} run 1: retrying (unknown: not today)>"
        )
        assert repr(kit.drain_sync()) == "<Drained: nothing ran>"


def test_retries_have_the_same_jitter_in_each_test() -> None:
    waits = []
    for _ in range(2):
        with Kit(app) as kit:
            refuse.enqueue_sync("no")
            waits.append([run.retry_in for run in kit.advance_sync(hours=2).runs])
    assert waits[0] == waits[1]
    assert len(set(waits[0])) == 3


def test_a_failed_run_raises_where_the_test_asks_for_it_with_the_error_as_cause() -> None:
    with Kit(app, raise_on_failure=True) as kit:
        refuse.enqueue_sync("no")
        with pytest.raises(RunFailedError, match="1 of 1 failed") as failed:
            kit.drain_sync()
        assert isinstance(failed.value.__cause__, Refused)
        refuse.enqueue_sync("no")
        assert kit.drain_sync(raise_on_failure=False).failed == 1


def test_arguments_that_cannot_be_stored_are_refused_as_in_production() -> None:
    with Kit(app), pytest.raises(ArgumentsError, match="number"):
        double.enqueue_sync(object())  # type: ignore[arg-type]


def test_a_task_that_never_ends_fails_the_test_and_is_named() -> None:
    with Kit(app) as kit:
        kit_app.for_ever.enqueue_sync()
        with pytest.raises(NeverEndedError, match="kit_app:for_ever") as failed:
            kit.drain_sync(limit=0.2)
        assert "→" in str(failed.value)
        double.enqueue_sync(1)


def test_a_thread_that_never_ends_fails_the_test_and_is_named() -> None:
    with Kit(app) as kit:
        kit_app.block.enqueue_sync(3)
        with pytest.raises(NeverEndedError, match="kit_app:block"):
            kit.drain_sync(limit=0.2)


def test_a_task_that_blocks_the_event_loop_fails_the_test_and_later_tests_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.testing.kit.base.BLOCKED_SECONDS", 0.1)
    blocked_drain_ended = threading.Event()

    @contextlib.contextmanager
    def observed_sleep() -> Iterator[None]:
        try:
            with virtual_sleep():
                yield
        finally:
            blocked_drain_ended.set()

    with Kit(app) as kit, monkeypatch.context() as patched:
        patched.setattr("tidegate.testing.kit.session.virtual_sleep", observed_sleep)
        kit_app.block_loop.enqueue_sync(1)
        with pytest.raises(NeverEndedError, match="blocks the loop") as failed:
            kit.drain_sync(limit=0.2)
        assert "kit_app:block_loop" in str(failed.value)
    with Kit(app) as kit:
        double.enqueue_sync(1)
        assert kit.drain_sync().succeeded == 1
    assert blocked_drain_ended.wait(20), "it would put time.sleep back in the middle of a later test"


def test_tasks_that_repeat_themselves_without_end_fail_the_test() -> None:
    with Kit(app) as kit:
        chain.enqueue_sync(1_000_000)
        with pytest.raises(NeverEndedError, match="kit_app:chain"):
            kit.drain_sync(limit=0.3)


def test_a_thread_that_a_test_could_not_end_reaches_no_store_after_it() -> None:
    go_on, tried, refused = threading.Event(), threading.Event(), list[UsageError]()
    original = double.function

    def enqueues_late(number: int) -> int:
        go_on.wait(20)
        try:
            greet.enqueue_sync("late")
        except UsageError as error:
            refused.append(error)
        finally:
            tried.set()
        return number

    double.function = enqueues_late
    try:
        with Kit(app) as kit:
            double.enqueue_sync(1)
            with pytest.raises(NeverEndedError):
                kit.drain_sync(limit=0.1)
    finally:
        double.function = original
    go_on.set()
    assert tried.wait(20)
    assert "could not end" in str(refused[0])
    assert not Path(NOWHERE).exists(), "the application's own database was opened"


def test_a_sleep_of_a_task_takes_no_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Kit(app) as kit:
        handle, before = sleep.enqueue_sync(1_200), kit.now()
        assert kit.drain_sync(limit=2).succeeded == 1
        assert handle.result_sync(timeout=1) == 1_200
        assert (kit.now() - before).total_seconds() >= 1_200


def test_a_sleep_of_a_plain_function_takes_no_real_time_either() -> None:
    real_sleep = time.sleep
    with Kit(app) as kit:
        kit_app.sleep_sync.enqueue_sync(1_200)
        before = kit.now()
        assert kit.drain_sync(limit=5).succeeded == 1
        assert (kit.now() - before).total_seconds() >= 1_200
    assert time.sleep is real_sleep


def test_time_does_not_jump_past_a_sleep_that_begins_while_the_loop_is_found_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, sleeps = threading.Event(), threading.Event()
    on_idle, caller_waits, original = (
        WorkSession._on_idle,
        WorkSession.caller_waits,
        kit_app.sleep_sync.function,
    )

    def observed_idle(session: WorkSession) -> float | None:
        if not go_on.is_set() and session._waits_for_threads():
            go_on.set()
            assert sleeps.wait(20)
        return on_idle(session)

    def observed_wait(session: WorkSession, waiting: Future[Any]) -> None:
        caller_waits(session, waiting)
        sleeps.set()

    def sleep_later(seconds: float) -> float:
        go_on.wait(20)
        return original(seconds)

    monkeypatch.setattr(WorkSession, "_on_idle", observed_idle)
    monkeypatch.setattr(WorkSession, "caller_waits", observed_wait)
    monkeypatch.setattr(kit_app.sleep_sync, "function", sleep_later)
    with Kit(app) as kit:
        kit_app.sleep_sync.using(timeout="1m").enqueue_sync(50)
        (run,) = kit.drain_sync().runs
        assert (run.outcome, run.message) == ("succeeded", "")


def test_a_plain_function_that_sleeps_past_its_time_limit_times_out() -> None:
    with Kit(app) as kit:
        kit_app.sleep_sync.using(timeout="1m").enqueue_sync(600)
        (run,) = kit.drain_sync(limit=5).runs
        assert (run.outcome, str(run.reason)) == ("retrying", "timeout")


def test_a_task_that_hangs_ends_at_its_time_limit_at_once() -> None:
    with Kit(app) as kit:
        kit_app.hang.enqueue_sync()
        (run,) = kit.drain_sync(limit=2).runs
        assert (run.outcome, str(run.reason)) == ("dead", "timeout")


def test_the_kit_says_when_it_is_used_outside_its_block_or_twice() -> None:
    kit = Kit(app)
    with pytest.raises(UsageError, match="outside its `with` block"):
        kit.enqueued()
    with kit, pytest.raises(UsageError, match="entered already"), kit:
        pass


def test_an_async_method_in_a_sync_test_is_refused_with_the_name_of_the_sync_one() -> None:
    with Kit(app) as kit:
        with pytest.raises(UsageError, match="drain_sync"):
            kit.drain()
        with pytest.raises(UsageError, match="advance_sync"):
            kit.advance(hours=1)


def test_a_wrong_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="inline, manual, real"):
        Kit(app, mode="eager")  # type: ignore[arg-type]


def test_a_cancelled_task_does_not_run() -> None:
    with Kit(app) as kit:
        handle = double.enqueue_sync(1)
        handle.cancel_sync()
        assert len(kit.drain_sync()) == 0
        assert handle.status_sync().state is State.CANCELLED
