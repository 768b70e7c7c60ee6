"""How a task says when its next run may begin."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tidegate import Context, OptionError, RetryAfter
from tidegate.context import RetryRequest, RetryRequested, RunControl
from tidegate.domain.readers import Seconds

NINETY_SECONDS = [90, 90.0, timedelta(minutes=1.5), "90s", "1.5m"]


@pytest.mark.parametrize("after", NINETY_SECONDS)
def test_retry_after_takes_a_duration_in_any_form(after: Seconds) -> None:
    error = RetryAfter(after)
    assert error.seconds == 90.0
    assert str(error) == "asked to wait 90 s"


@pytest.mark.parametrize("after", ["soon", None, True, "", [1]])
def test_retry_after_refuses_what_is_no_duration(after: Seconds) -> None:
    with pytest.raises(OptionError, match="after="):
        RetryAfter(after)


def test_retry_after_takes_a_wait_that_was_computed_as_below_zero() -> None:
    assert RetryAfter(-3.5).seconds == RetryAfter(timedelta(seconds=-3.5)).seconds == -3.5


@pytest.mark.parametrize("after", NINETY_SECONDS)
def test_ctx_retry_takes_a_duration_in_any_form(after: Seconds, tmp_path: Path) -> None:
    control = RunControl(scratch_root=tmp_path, scratch_name="run", clock=time.monotonic)
    context = Context(control, task_id="id", run=1, attempt=1, max_attempts=1)
    with pytest.raises(RetryRequested):
        context.retry(after, "not ready", charge=False)
    assert control.retry == RetryRequest(90.0, "not ready", charge=False)


@pytest.mark.parametrize("after", ["soon", -1, "-1s", math.nan, math.inf, True, "367d"])
def test_ctx_retry_refuses_what_cannot_be_waited_for(after: Seconds) -> None:
    with pytest.raises(OptionError, match="after="):
        Context.detached().retry(after)
