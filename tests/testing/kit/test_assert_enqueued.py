"""`assert_enqueued` and `enqueued`: what matches, and what a failed assertion says."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kit_app import app, chain, double, greet

from tidegate import State, UsageError
from tidegate.testing import Kit, KitError


def test_a_task_is_found_by_its_function_arguments_queue_and_options() -> None:
    with Kit(app) as kit:
        greet.using(tenant="acme", labels={"of": "test", "n": "1"}, priority="bulk").enqueue_sync(
            "Ada", loud=True
        )
        kit.assert_enqueued()
        kit.assert_enqueued(greet)
        kit.assert_enqueued(greet, queue="mail", count=1)
        kit.assert_enqueued(greet, args={"loud": True})
        kit.assert_enqueued(args={"name": "Ada"})
        (task,) = kit.assert_enqueued(greet, tenant="acme", labels={"n": "1"}, priority="bulk", state="ready")
        assert task.args == {"name": "Ada", "loud": True}
        assert task.state is State.READY


def test_positional_arguments_are_compared_as_a_whole() -> None:
    with Kit(app) as kit:
        greet.enqueue_sync("Ada", loud=True)
        kit.assert_not_enqueued(greet, args=("Ada",))
        double.enqueue_sync(3)
        kit.assert_enqueued(double, args=(3,))
        kit.assert_not_enqueued(double, args=(4,))


def test_a_task_is_found_whatever_became_of_it() -> None:
    with Kit(app) as kit:
        chain.enqueue_sync(1)
        kit.drain_sync()
        assert [task.args["left"] for task in kit.assert_enqueued(chain, state="succeeded", count=2)] == [
            1,
            0,
        ]


def test_a_moment_is_compared_within_a_second() -> None:
    with Kit(app) as kit:
        double.using(delay="1h").enqueue_sync(1)
        kit.assert_enqueued(double, due_at=kit.now() + timedelta(hours=1), state=State.SCHEDULED)
        assert kit.enqueued(double, due_at=kit.now() + timedelta(hours=2)) == []


def test_a_failed_assertion_says_what_was_expected_what_was_found_and_the_fix() -> None:
    with Kit(app) as kit:
        greet.enqueue_sync("Ada")
        with pytest.raises(KitError) as failed:
            kit.assert_enqueued(greet, args=("Alan",), queue="mail")
    assert str(failed.value).splitlines() == [
        "expected at least one enqueued kit_app:greet, args=('Alan',), queue='mail'; found none. Enqueued were:",
        "  kit_app:greet(name='Ada') on mail: ready",
        "→ the function was enqueued, but differently: compare arguments, queue and options",
    ]


def test_a_failed_assertion_on_an_empty_store_says_that_nothing_was_enqueued() -> None:
    with Kit(app) as kit, pytest.raises(KitError, match="Nothing was enqueued at all"):
        kit.assert_enqueued(greet)


def test_a_wrong_count_shows_the_tasks_and_a_long_list_is_cut() -> None:
    with Kit(app) as kit:
        double.enqueue_many_sync([(number,) for number in range(15)])
        with pytest.raises(KitError, match="expected 2 enqueued kit_app:double; found 15") as failed:
            kit.assert_enqueued(double, count=2)
        assert "… and 5 more" in str(failed.value)
        with pytest.raises(KitError, match="expected no enqueued"):
            kit.assert_not_enqueued(double)


def test_arguments_by_position_need_the_function_and_a_function_is_one_of_ours() -> None:
    with Kit(app) as kit:
        double.enqueue_sync(1)
        with pytest.raises(UsageError, match="args="):
            kit.assert_enqueued(args=(1,))
        with pytest.raises(UsageError, match="not a task function"):
            kit.enqueued(double.function)  # type: ignore[arg-type]
