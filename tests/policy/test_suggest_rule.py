"""The line of code that gives a failure a rule."""

from __future__ import annotations

import pytest

from tidegate.policy.failure_state import FailureState, muted_state, resolved_state
from tidegate.policy.suggest_rule import suggest_rule


@pytest.mark.parametrize(
    ("error_class", "tasks", "succeeded", "line"),
    [
        ("shop.errors.Busy", 4, 2, "retry=[on(Busy)]  # from shop.errors import Busy"),
        ("shop.errors.Busy", 5, 2, "retry=[discard(Busy)]  # from shop.errors import Busy"),
        ("KeyError", 1, 0, "retry=[discard(KeyError)]"),
    ],
)
def test_a_class_gets_a_rule_by_whether_another_run_helped(
    error_class: str, tasks: int, succeeded: int, line: str
) -> None:
    assert suggest_rule(error_class, tasks=tasks, succeeded=succeeded) == line


@pytest.mark.parametrize(
    "error_class", ["", "shop.make.<locals>.Odd", "an exception whose class cannot be named"]
)
def test_a_failure_whose_class_cannot_be_imported_gets_a_classifier(error_class: str) -> None:
    assert suggest_rule(error_class, tasks=1, succeeded=1).startswith("@app.classifier")


@pytest.mark.parametrize(
    ("last_death_at", "state"),
    [(None, FailureState.RESOLVED), (10.0, FailureState.RESOLVED), (10.1, FailureState.OPEN)],
)
def test_a_resolved_group_is_open_once_its_last_death_is_later(
    last_death_at: float | None, state: FailureState
) -> None:
    assert resolved_state(10.0, last_death_at) is state


@pytest.mark.parametrize(
    ("until_at", "state"), [(None, FailureState.MUTED), (10.1, FailureState.MUTED), (10.0, FailureState.OPEN)]
)
def test_a_mute_ends_at_its_moment_or_never(until_at: float | None, state: FailureState) -> None:
    assert muted_state(until_at, 10.0) is state
