"""The outcome of a run that suspends itself: when its task wakes, and what it is before."""

from __future__ import annotations

import pytest

from tidegate.domain.outcome import Fence
from tidegate.domain.task_limits import TimeLeft
from tidegate.policy.order import LIFT_SECONDS
from tidegate.policy.suspension import suspend

FENCE = Fence("00000000-0000-7000-8000-000000000000", 1)


@pytest.mark.parametrize(
    ("delay", "deadline", "expected"),
    [
        (60.0, float("inf"), 60.0),
        (60.0, 90.0, 60.0),
        (60.0, 30.0, 30.0),
        (60.0, -1.0, 0.0),
        (None, float("inf"), None),
        (None, 30.0, 30.0),
    ],
)
def test_a_task_wakes_at_its_deadline_at_the_latest(
    delay: float | None, deadline: float, expected: float | None
) -> None:
    outcome = suspend(FENCE, delay_seconds=delay, why="sleeps", time_left=TimeLeft(deadline_seconds=deadline))
    assert outcome.delay_seconds == expected


def test_the_total_timeout_does_not_shorten_a_suspension() -> None:
    outcome = suspend(FENCE, delay_seconds=60.0, why="sleeps", time_left=TimeLeft(total_timeout_seconds=1.0))
    assert outcome.delay_seconds == 60.0


def test_a_task_that_wakes_goes_before_new_tasks() -> None:
    outcome = suspend(FENCE, delay_seconds=60.0, why="sleeps", time_left=TimeLeft())
    assert outcome.rank_offset == -LIFT_SECONDS
