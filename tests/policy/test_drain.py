"""The drain estimate never lies: no history is unknown, no completions is never."""

from __future__ import annotations

import pytest

from tidegate.policy.drain import Drain, DrainKind, drain_estimate


@pytest.mark.parametrize(
    ("depth", "done", "history", "expected"),
    [
        (0, 0, 0.0, Drain(DrainKind.SECONDS, 0.0)),
        (0, 0, 600.0, Drain(DrainKind.SECONDS, 0.0)),
        (5, 0, 0.0, Drain(DrainKind.UNKNOWN)),
        (5, 0, 600.0, Drain(DrainKind.NEVER)),
        (100, 1_200, 600.0, Drain(DrainKind.SECONDS, 50.0)),
        (100, 120, 60.0, Drain(DrainKind.SECONDS, 50.0)),
    ],
)
def test_the_estimate_is_the_depth_over_the_completions_of_the_last_ten_minutes(
    depth: int, done: int, history: float, expected: Drain
) -> None:
    assert drain_estimate(depth=depth, done=done, history_seconds=history) == expected


@pytest.mark.parametrize(
    ("drain", "words"),
    [
        (Drain(DrainKind.UNKNOWN), "unknown"),
        (Drain(DrainKind.NEVER), "never"),
        (Drain(DrainKind.SECONDS, 42.4), "42.4 s"),
        (Drain(DrainKind.SECONDS, 600.0), "10 min"),
        (Drain(DrainKind.SECONDS, 7_200.0), "2 h"),
    ],
)
def test_the_estimate_is_readable(drain: Drain, words: str) -> None:
    assert str(drain) == words
