"""Retention: which rule decides about a task, and what is due at an age."""

from __future__ import annotations

import math

import pytest

from tidegate.domain.retention import (
    Data,
    FinalTable,
    QueueRetention,
    Retention,
    ages_of,
    due_data,
    retention_from_dict,
    retention_to_dict,
    task_seconds,
)
from tidegate.domain.states import State
from tidegate.errors import OptionError

DAY = 86_400.0


@pytest.mark.parametrize(
    ("retention", "state", "queue", "is_redriven", "days"),
    [
        (Retention(), State.SUCCEEDED, "q", False, 7),
        (Retention(), State.CANCELLED, "q", True, 7),
        (Retention(), State.DEAD, "q", False, 90),
        (Retention(finished="1d"), State.CANCELLED, "q", False, 1),
        (Retention(finished="1d", cancelled="2d"), State.CANCELLED, "q", False, 2),
        (Retention(finished="1d", cancelled="2d"), State.SUCCEEDED, "q", False, 1),
        (Retention(redriven="30d"), State.SUCCEEDED, "q", True, 30),
        (Retention(redriven="30d"), State.SUCCEEDED, "q", False, 7),
        (Retention(redriven="30d"), State.DEAD, "q", True, 90),
        (Retention(queues={"q": QueueRetention(finished="3d")}), State.SUCCEEDED, "q", False, 3),
        (Retention(queues={"q": QueueRetention(finished="3d")}), State.SUCCEEDED, "other", False, 7),
        (Retention(queues={"q": QueueRetention(finished="3d")}), State.DEAD, "q", False, 90),
        (
            Retention(succeeded="2d", queues={"q": QueueRetention(finished="3d")}),
            State.SUCCEEDED,
            "q",
            False,
            3,
        ),
        (Retention(dead=math.inf), State.DEAD, "q", False, math.inf),
    ],
)
def test_the_most_special_rule_decides(
    retention: Retention, state: State, queue: str, is_redriven: bool, days: float
) -> None:
    assert task_seconds(retention, state, queue, is_redriven=is_redriven) == days * DAY


def test_parts_are_due_before_their_task_and_go_with_it_at_the_latest() -> None:
    retention = Retention(
        finished="7d", payloads="1d", results="2d", queues={"q": QueueRetention(results="1h")}
    )

    def due(age: float, queue: str = "other") -> set[Data]:
        return set(due_data(retention, State.SUCCEEDED, queue, age * DAY, is_redriven=False))

    assert due(1.0) == set()
    assert due(1.1) == {Data.PAYLOADS}
    assert due(2.1) == {Data.PAYLOADS, Data.RESULTS}
    assert due(0.1, "q") == {Data.RESULTS}
    assert due(7.1) == {Data.TASKS}


def test_dead_letters_keep_the_arguments_that_a_redrive_needs() -> None:
    retention = Retention(payloads="1h", results="1h", chunks="1h", history="1h")

    assert due_data(retention, State.DEAD, "q", 89 * DAY, is_redriven=False) == set()
    assert due_data(retention, State.DEAD, "q", 91 * DAY, is_redriven=False) == {Data.TASKS}


def test_the_ages_are_all_at_which_a_task_of_the_table_changes() -> None:
    retention = Retention(
        results="1d", cancelled=math.inf, queues={"q": QueueRetention(dead="5d", finished="9d")}
    )

    assert ages_of(retention, FinalTable.ARCHIVE) == (DAY, 7 * DAY, 9 * DAY)
    assert ages_of(retention, FinalTable.DEAD) == (5 * DAY, 90 * DAY)


def test_a_retention_reaches_another_process_unchanged() -> None:
    retention = Retention(
        results="1d", dead=math.inf, archive="/old", queues={"q": QueueRetention(dead="5d")}
    )

    assert retention_from_dict(retention_to_dict(retention)) == retention


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retention(finished=-1),
        lambda: Retention(archive=""),
        lambda: Retention(archive_format="csv"),
        lambda: Retention(queues={"q": "1d"}),  # type: ignore[dict-item]
        lambda: QueueRetention(results="soon"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_written(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(OptionError):
        make()
