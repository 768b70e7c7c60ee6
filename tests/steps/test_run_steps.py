"""The steps of one run: identities that do not change from run to run, and warnings about those that do."""

from __future__ import annotations

import logging

import pytest

from tidegate.domain.outcome import Fence
from tidegate.domain.step import StepState, idempotency_key, step_digest, step_key
from tidegate.steps.port import NotRecorded
from tidegate.steps.run_steps import RunSteps
from tidegate.store.step_rows import StepRow

TASK = "01890000-0000-7000-8000-000000000000"


def steps_of(run: int, *recorded: StepRow) -> RunSteps:
    """Return the steps of a run whose task has recorded these."""
    steps = RunSteps(Fence(TASK, run), "app:f", NotRecorded())
    steps.take(list(recorded))
    return steps


def row(name: str, fingerprint: bytes, position: int = 1) -> StepRow:
    return StepRow(
        step_key(step_digest(name, fingerprint), position),
        name,
        StepState.DONE,
        1,
        1,
        0.0,
        1.0,
        1,
        b"1",
        "json",
        "",
    )


def test_equal_steps_differ_by_their_number_and_others_by_their_name_or_arguments() -> None:
    steps = steps_of(1)
    keys = [steps.identify("image", b"a"), steps.identify("image", b"a"), steps.identify("image", b"b")]
    keys += [steps.identify("text", b"a")]
    assert len(set(keys)) == 4
    assert keys[0].split(":")[0] == keys[1].split(":")[0]


def test_the_next_run_gives_the_same_steps_the_same_keys_in_any_order() -> None:
    first, second = steps_of(1), steps_of(2)
    before = {item: first.identify("image", item) for item in (b"a", b"b", b"c")}
    after = {item: second.identify("image", item) for item in (b"c", b"a", b"b")}
    assert before == after


def test_a_name_and_arguments_that_run_together_are_no_other_step() -> None:
    steps = steps_of(1)
    assert steps.identify("ab", b"c") != steps.identify("a", b"bc")


def test_the_idempotency_key_is_short_ascii_and_names_the_task_and_the_step() -> None:
    steps = steps_of(1)
    keys = {idempotency_key(TASK, steps.identify("Bild für Zoë " * 15, b"a")) for _ in range(3)}
    assert len(keys) == 3
    assert all(key.isascii() and len(key) <= 90 and key.startswith(f"{TASK}:step:") for key in keys)


def test_the_first_run_reads_no_steps_and_a_later_one_reads_them_once() -> None:
    assert steps_of(1).load() is None
    steps = RunSteps(Fence(TASK, 2), "app:f", NotRecorded())
    assert steps.load() is steps.load() is not None
    steps.take([])
    assert steps.load() is None


def test_a_step_whose_arguments_change_in_every_run_is_warned_about_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = steps_of(2, row("fetch", b"12:00"))
    steps.recorded(steps.identify("fetch", b"12:05"), "fetch")
    [record] = caplog.records
    assert record.getMessage() == (
        f"app:f {TASK}: run 2 does step 'fetch', but none of the steps of that name that earlier runs recorded, "
        "because their arguments differ. Pass the step nothing that changes from run to run, such as the time "
        "or a new id, or give it a key="
    )


def test_new_items_before_the_recorded_ones_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    steps = steps_of(2, row("image", b"3"), row("image", b"5"))
    for item in (b"1", b"3", b"2", b"5", b"4"):
        steps.recorded(steps.identify("image", item), "image")
    steps.report_unmet()
    assert not caplog.records


def test_recorded_steps_that_a_run_never_came_to_are_reported_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = steps_of(3, row("image", b"1"), row("image", b"2"), row("text", b"1"))
    steps.recorded(steps.identify("image", b"1"), "image")
    steps.report_unmet()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "did not come to 2 steps that earlier runs recorded: image (1), text (1)" in record.getMessage()
