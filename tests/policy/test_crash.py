"""What happens to a run whose process or machine died."""

from __future__ import annotations

from typing import Any

from tidegate.domain.outcome import Cancelled, Charge, Counters, Dead, Fence, Outcome, Released, Retrying
from tidegate.policy.crash import LOSS_LIMIT, decide_orphan


def orphaned(counters: Counters = Counters(), **more: Any) -> Outcome:
    given = {
        "why": "killed by signal 9",
        "loss": False,
        "cancel_requested": False,
        "crash_limit": 3,
        "base_seconds": 10.0,
        "cap_seconds": 15.0,
    } | more
    return decide_orphan(Fence("task", 1), counters=counters, **given)


def test_after_the_first_crash_the_task_runs_again_at_once_ahead_of_new_tasks() -> None:
    outcome = orphaned()
    assert isinstance(outcome, Retrying)
    assert (outcome.delay_seconds, outcome.charge) == (0.0, Charge.CRASH)
    assert outcome.rank_offset < 0


def test_later_crashes_wait_longer_each_time_up_to_the_cap() -> None:
    waits = [orphaned(Counters(crashes=crashes), crash_limit=9) for crashes in (1, 2, 3)]
    assert [wait.delay_seconds for wait in waits if isinstance(wait, Retrying)] == [10.0, 15.0, 15.0]


def test_at_the_crash_limit_the_task_is_dead_with_the_cause() -> None:
    outcome = orphaned(Counters(crashes=2))
    assert isinstance(outcome, Dead)
    assert "signal 9" in outcome.why


def test_losses_have_a_larger_limit_of_their_own() -> None:
    assert isinstance(orphaned(Counters(losses=LOSS_LIMIT - 2), loss=True), Retrying)
    assert isinstance(orphaned(Counters(losses=LOSS_LIMIT - 1), loss=True), Dead)
    assert isinstance(orphaned(Counters(crashes=2), loss=True), Retrying)


def test_on_crash_fail_means_dead_at_the_first_crash_or_loss_of_any_cause() -> None:
    assert isinstance(orphaned(crash_limit=0), Dead)
    assert isinstance(orphaned(crash_limit=0, loss=True), Dead)
    assert isinstance(orphaned(crash_limit=0, culprit=False), Dead)


def test_a_single_attempt_survives_a_lost_machine_but_not_a_crash_of_its_own() -> None:
    assert isinstance(orphaned(crash_limit=1), Dead)
    assert isinstance(orphaned(crash_limit=1, culprit=True), Dead)
    assert isinstance(orphaned(crash_limit=1, loss=True), Retrying)


def test_a_run_ended_by_another_task_is_released_uncharged() -> None:
    outcome = orphaned(crash_limit=1, culprit=False)
    assert isinstance(outcome, Released)
    assert outcome.rank_offset < 0


def test_an_orphan_whose_cancel_was_requested_is_cancelled() -> None:
    assert isinstance(orphaned(cancel_requested=True), Cancelled)
