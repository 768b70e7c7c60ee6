"""Tasks that another release stored, in a test."""

from __future__ import annotations

import pytest

from tidegate import Context, Permanent, State, Tidegate, UnknownFunctionError
from tidegate.testing import Kit, enqueue_stored

app = Tidegate()


@app.task(name="double", max_attempts=3)
async def double(number: int) -> int:
    if number < 0:
        raise Permanent("below 0")
    return 2 * number


@app.task(name="tick")
async def tick(ctx: Context) -> str:
    return f"{ctx.schedule} {ctx.scheduled_for}"


def test_arguments_in_their_stored_form_reach_the_function() -> None:
    with Kit(app) as kit:
        handle = enqueue_stored(app, "double", {"k": {"number": 4}}, tenant="acme", labels={"a": "b"})
        assert kit.drain_sync().succeeded == 1
        assert handle.result_sync(timeout=0) == 8
        (stored,) = kit.enqueued(double)
        assert (stored.tenant, stored.labels) == ("acme", {"a": "b"})


def test_arguments_that_do_not_fit_are_stored_all_the_same_and_the_task_is_dead() -> None:
    with Kit(app) as kit:
        handle = enqueue_stored(app, "double", {"k": {"number": "four"}}, max_attempts=1, timeout=5)
        (run,) = kit.drain_sync().runs
        assert (run.outcome, run.reason) == ("dead", "invalid_request")
        assert handle.status_sync().state is State.DEAD


def test_a_task_of_a_schedule_keeps_the_moment_of_its_tick() -> None:
    labels = {"a": "b", "tidegate.schedule": "nightly", "tidegate.scheduled_for": "2026-03-29T01:00:00Z"}
    with Kit(app) as kit:
        handle = enqueue_stored(app, "tick", {}, labels=labels)
        kit.drain_sync()
        assert handle.result_sync(timeout=0) == "nightly 2026-03-29 01:00:00+00:00"
        assert kit.enqueued(tick)[0].labels == labels


def test_an_undeclared_function_is_refused() -> None:
    with Kit(app), pytest.raises(UnknownFunctionError):
        enqueue_stored(app, "treble", {})
