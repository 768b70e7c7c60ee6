"""The checks of maps, of tasks after others and of waits, on made-up records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checker import StoreSnapshot
from harness.relations import (
    FAILED,
    ParentEdges,
    Relations,
    SentMap,
    StoredMap,
    WaitNote,
    child_key,
    derived_tasks,
    may_be_cancelled,
    relations_are_kept,
)
from tidegate import Priority
from tidegate.domain.final_hook import FinalHook
from tidegate.domain.outcome import Counters
from tidegate.domain.states import State
from tidegate.store.map_rows import MapCounts, MapItemRow, MapRow
from tidegate.store.rows import HistoryRow, TaskRow

S, D, C = State.SUCCEEDED, State.DEAD, State.CANCELLED
CALLBACK = "callback"
ENDED = MapRow(
    "m", "", "f", "", "key", b"", 2, None, FinalHook("f:mapped", "q", 1), 0.0, 0, None, "", 10.0, 1, 1, 0, CALLBACK
)  # fmt: skip
ITEMS = (MapItemRow(0, "one", S, ""), MapItemRow(1, "two", D, "unknown"))
STORED = StoredMap(ENDED, ITEMS, MapCounts(1, 1, 0, 0, 0, 0), {CALLBACK: (2, 1, 1, 0)})
SENT = {"key": SentMap(("x", "y"), is_answered=True)}


def row(task_id: str, state: State = S, *, finished_at: float = 5.0, **facts: Any) -> TaskRow:
    plain: dict[str, Any] = {
        "function": "f", "queue": "q", "priority": Priority.NORMAL, "upstream": "", "tenant": "", "run": 1,
        "counters": Counters(), "redrives": 0, "enqueued_at": 0.0, "due_at": None, "started_at": None,
        "worker_id": None, "cancel_requested": False, "reason": "", "message": "",
    }  # fmt: skip
    return TaskRow(id=task_id, state=state, finished_at=finished_at, **(plain | facts))


def snapshot(*rows: TaskRow, begun: dict[str, float] | None = None) -> StoreSnapshot:
    histories = {
        task_id: (HistoryRow("run", at=at, run=1, ended_at=at + 1.0, worker_id="w", outcome="succeeded"),)
        for task_id, at in (begun or {}).items()
    }
    return StoreSnapshot({task.id: task for task in rows}, histories, {}, {}, ())


def broken(relations: Relations, stored: StoreSnapshot) -> list[str]:
    return [found.evidence for found in relations_are_kept(relations, stored)]


def of_map(stored: StoredMap, *, sent: dict[str, SentMap] | None = None) -> list[str]:
    rows = snapshot(row("one"), row("two", D), row(CALLBACK))
    return broken(Relations(SENT if sent is None else sent, [stored]), rows)


def test_a_map_whose_counts_are_right_and_whose_callback_is_one_is_fine() -> None:
    assert of_map(STORED) == []
    derived = [(task.task_id, task.digest) for task in derived_tasks(Relations(SENT, [STORED]), snapshot())]
    assert derived == [("one", "x"), ("two", "y"), (CALLBACK, "")]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"counts": MapCounts(2, 0, 0, 0, 0, 0)}, "counts (2, 0, 0), and its items are (1, 1, 0)"),
        ({"counts": MapCounts(1, 0, 0, 0, 1, 0)}, "counts 1 of 2 items at the end"),
        ({"row": replace(ENDED, ended_at=None)}, "did not end"),
        ({"row": replace(ENDED, ended_at=1.0)}, "ended before its last item"),
        ({"row": replace(ENDED, succeeded=2, dead=0)}, "ended with (2, 0, 0), and its items are (1, 1, 0)"),
        ({"callbacks": {}}, "has the callback callback, and [] were enqueued"),
        ({"callbacks": {CALLBACK: (2, 1, 1, 0), "more": (2, 1, 1, 0)}}, "['callback', 'more'] were enqueued"),
        ({"callbacks": {CALLBACK: (2, 2, 0, 0)}}, "its callback was given (2, 2, 0, 0)"),
        ({"items": ITEMS[:1]}, "lists 1 of 2 items"),
        ({"row": replace(ENDED, key="other")}, "exists, though nobody enqueued it"),
    ],
)
def test_a_wrong_count_and_a_lost_or_second_callback_are_violations(
    changes: dict[str, Any], what: str
) -> None:
    assert any(what in found for found in of_map(replace(STORED, **changes)))


def test_a_map_that_was_accepted_must_exist_once() -> None:
    both = SENT | {"lost": SentMap((), is_answered=True), "unknown": SentMap((), is_answered=False)}
    assert of_map(STORED, sent=both) == ["map lost was accepted and is missing"]
    twice = Relations(SENT, [STORED, STORED])
    assert "there are 2 maps with the key key" in broken(twice, snapshot(row("one"), row("two", D)))


@pytest.mark.parametrize(
    ("policy", "parent", "child", "begun_at", "is_fine"),
    [
        ("wait", S, S, 6.0, True),
        ("wait", S, S, 3.0, False),
        ("wait", D, C, None, True),
        ("wait", D, S, 6.0, False),
        ("cancel", D, C, None, True),
        ("cancel", C, S, 6.0, False),
        ("cancel", D, State.HELD, None, False),
        ("run", D, S, 6.0, True),
        ("run", D, S, 3.0, False),
        ("run", State.RUNNING, S, 6.0, False),
    ],
)
def test_a_task_runs_after_its_parents_as_its_policy_says(
    policy: str, parent: State, child: State, begun_at: float | None, *, is_fine: bool
) -> None:
    begun = {} if begun_at is None else {"child": begun_at}
    rows = snapshot(row("parent", parent), row("child", child), begun=begun)
    relations = Relations(edges={"child": ParentEdges(("parent",), policy)})
    assert (broken(relations, rows) == []) == is_fine
    assert may_be_cancelled("child", relations, rows) == (policy == "cancel" and parent in {D, C})


def test_a_wait_for_an_event_returns_what_was_sent_in_every_run() -> None:
    def found(*values: str) -> list[str]:
        notes = [WaitNote("task", run, "event", value) for run, value in enumerate(values, 1)]
        return broken(Relations(events={"task": "sent"}, notes=notes), snapshot(row("task")))

    assert found("sent", "sent") == []
    assert found("other") == ["wait event returned ['other'] instead of sent"]
    assert found("sent", "other") == ["runs got different values from wait event: ['other', 'sent']"]


def test_a_parent_succeeds_with_the_results_of_all_its_children() -> None:
    first = row("first", run=2, key=child_key("parent", 0))
    second = row("second", D, key=child_key("parent", 1))
    notes = [WaitNote("parent", 1, "0", "2"), WaitNote("parent", 1, "1", FAILED)]

    def found(child: TaskRow, waits: list[WaitNote]) -> list[str]:
        return broken(Relations(notes=waits), snapshot(row("parent", finished_at=7.0), child, second))

    assert found(first, notes) == []
    assert found(first, notes[1:]) == ["succeeded without the result of child 0"]
    assert found(replace(first, run=1), notes) == ["wait 0 returned ['2'] instead of 1"]
    assert found(replace(first, finished_at=9.0), notes) == ["succeeded before child 0 had ended"]
