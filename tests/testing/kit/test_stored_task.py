"""Tasks that another release stored, in a test."""

from __future__ import annotations

import pytest

from tidegate import Permanent, State, Tidegate, UnknownFunctionError
from tidegate.testing import Kit, enqueue_stored

app = Tidegate()


@app.task(name="double", max_attempts=3)
async def double(number: int) -> int:
    if number < 0:
        raise Permanent("below 0")
    return 2 * number


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


def test_an_undeclared_function_is_refused() -> None:
    with Kit(app), pytest.raises(UnknownFunctionError):
        enqueue_stored(app, "treble", {})
