"""Every invariant is shown to fire on a history that breaks it, and none on one that does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from checker import (
    INVARIANTS,
    ClientObservations,
    FunctionNote,
    ObservedCancel,
    RunLimits,
    SubmittedTask,
    digest_of,
)
from checker.account_support import ARGS, TaskAccounts, accounts, action, run
from tidegate.domain.outcome import Counters, Fence
from tidegate.domain.spec import OnCrash, TaskSpec
from tidegate.domain.states import State
from tidegate.store.rows import CancelStatus, QueueStats


def retried() -> TaskAccounts:
    """One charged failure, one release, then success."""
    history = (run(1, "retrying"), run(2, "released"), run(3, "succeeded"))
    return accounts(State.SUCCEEDED, *history, counters=Counters(attempts=1, releases=1))


def redriven() -> TaskAccounts:
    """Dead after one attempt, sent back, then successful."""
    history = (run(1, "dead"), action("redriven", 16), run(2, "succeeded"))
    return accounts(State.SUCCEEDED, *history, redrives=1)


GOOD: dict[str, Callable[[], TaskAccounts]] = {
    "retried and released": retried,
    "redriven": redriven,
    "dead": lambda: accounts(State.DEAD, run(1, "dead"), counters=Counters(attempts=1)),
    "cancelled before any run": lambda: accounts(State.CANCELLED),
    "cancelled while it waited": lambda: accounts(
        State.CANCELLED, run(1, "retrying"), action("cancel requested", 17), counters=Counters(attempts=1)
    ),
    "cancelled while it ran": lambda: accounts(State.CANCELLED, action("enqueued", 1), run(1, "cancelled")),
    "a cancel that came while it ran": lambda: accounts(
        State.CANCELLED, run(1, "cancelled"), action("cancel requested", 12)
    ),
    "run now": lambda: accounts(
        State.SUCCEEDED,
        run(1, "retrying"),
        action("run now", 16),
        run(2, "succeeded"),
        counters=Counters(attempts=1),
    ),
    "lost with its worker": lambda: accounts(
        State.SUCCEEDED,
        run(1, "retrying", reason="crash", charge="loss"),
        run(2, "succeeded"),
        counters=Counters(losses=1),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_consistent_history_breaks_nothing(name: str) -> None:
    assert GOOD[name]().check() == []


def test_unfinished_work_is_no_violation_before_the_end() -> None:
    for state in (State.READY, State.SCHEDULED, State.HELD):
        assert accounts(state).check(is_finished=False) == []
    assert accounts(State.RUNNING, run(1, "")).check(is_finished=False) == []
    waiting = accounts(State.RETRYING, run(1, "retrying"), counters=Counters(attempts=1))
    assert waiting.check(is_finished=False) == []


# --- one broken account each ---------------------------------------------------------------------------


def payload_changed() -> TaskAccounts:
    broken = retried()
    broken.payload = digest_of(b"other")
    return broken


def accepted_but_gone() -> TaskAccounts:
    broken = retried()
    broken.observations = ClientObservations((*broken.observations.submitted, SubmittedTask("t2", ARGS)))
    return broken


def from_nowhere() -> TaskAccounts:
    broken = retried()
    broken.observations = ClientObservations()
    return broken


def two_tasks_for_a_key() -> TaskAccounts:
    broken = retried()
    broken.alter(key="order-7")
    broken.observations = ClientObservations(
        (*broken.observations.submitted, SubmittedTask("t2", ARGS, key="order-7"))
    )
    return broken


def claimed_while_dead() -> TaskAccounts:
    history = (run(1, "dead"), run(2, "succeeded"))
    return accounts(State.SUCCEEDED, *history, counters=Counters(attempts=1))


def row_left_behind() -> TaskAccounts:
    return accounts(State.READY, run(1, "succeeded"))


def redriven_without_being_dead() -> TaskAccounts:
    history = (run(1, "retrying"), action("redriven", 16), run(2, "succeeded"))
    return accounts(State.SUCCEEDED, *history, redrives=1)


def run_now_while_dead() -> TaskAccounts:
    history = (run(1, "dead"), action("run now", 16))
    return accounts(State.READY, *history, counters=Counters(attempts=1))


def ran_after_success() -> TaskAccounts:
    return accounts(State.SUCCEEDED, run(1, "succeeded"), run(2, "succeeded"))


def succeeded_without_a_run() -> TaskAccounts:
    broken = accounts(State.SUCCEEDED, run(1, "retrying"), counters=Counters(attempts=1))
    broken.notes = []
    return broken


def run_number_repeated() -> TaskAccounts:
    history = (run(1, "retrying"), run(1, "succeeded", at=30.0, ended_at=35.0))
    return accounts(State.SUCCEEDED, *history, counters=Counters(attempts=1))


def row_behind_its_history() -> TaskAccounts:
    broken = retried()
    broken.alter(run=2)
    return broken


def started_twice() -> TaskAccounts:
    broken = retried()
    broken.notes.append(FunctionNote("start", "t1", 3, 200, 31.0))
    return broken


def claimed_too_early() -> TaskAccounts:
    history = (run(1, "retrying", ended_at=21.0), run(2, "succeeded"))
    return accounts(State.SUCCEEDED, *history, counters=Counters(attempts=1))


def claimed_while_open() -> TaskAccounts:
    return accounts(State.SUCCEEDED, run(1, ""), run(2, "succeeded"))


def result_of_an_old_run() -> TaskAccounts:
    broken = retried()
    stale = digest_of(b"stale")
    broken.notes.append(FunctionNote("end", "t1", 1, 100, 40.0, digest=stale))
    broken.result = stale
    return broken


def result_of_nobody() -> TaskAccounts:
    broken = retried()
    broken.result = digest_of(b"invented")
    return broken


def success_of_a_function_that_never_returned() -> TaskAccounts:
    broken = retried()
    broken.notes.pop()
    return broken


def rerun_without_reason() -> TaskAccounts:
    history = (run(1, "retrying", reason="", charge="", why=""), run(2, "succeeded"))
    return accounts(State.SUCCEEDED, *history)


def run_without_record() -> TaskAccounts:
    return accounts(State.SUCCEEDED, run(2, "succeeded"))


def start_without_claim() -> TaskAccounts:
    broken = retried()
    broken.notes.append(FunctionNote("start", "t1", 4, 200, 50.0))
    return broken


def never_finished() -> TaskAccounts:
    return accounts(State.RETRYING, run(1, "retrying"), counters=Counters(attempts=1))


def too_many_attempts() -> TaskAccounts:
    history = [run(number, "retrying") for number in range(1, 5)]
    return accounts(State.SUCCEEDED, *history, run(5, "succeeded"), counters=Counters(attempts=4))


def too_many_crashes() -> TaskAccounts:
    history = [run(number, "retrying", reason="crash", charge="crash") for number in range(1, 5)]
    return accounts(State.SUCCEEDED, *history, run(5, "succeeded"), counters=Counters(crashes=4))


def too_many_parks() -> TaskAccounts:
    history = [run(number, "retrying", reason="rate_limit", charge="park") for number in range(1, 22)]
    return accounts(State.SUCCEEDED, *history, run(22, "succeeded"), counters=Counters(parks=21))


def ran_after_cancel() -> TaskAccounts:
    broken = retried()
    broken.observations = dataclasses.replace(
        broken.observations, cancels=(ObservedCancel("t1", CancelStatus.REQUESTED, at=26.0),)
    )
    return broken


def started_after_cancel() -> TaskAccounts:
    broken = accounts(State.CANCELLED)
    broken.observations = dataclasses.replace(
        broken.observations, cancels=(ObservedCancel("t1", CancelStatus.CANCELLED, at=5.0),)
    )
    broken.notes = [FunctionNote("start", "t1", 1, 100, 6.0)]
    return broken


def counter_too_high() -> TaskAccounts:
    broken = retried()
    broken.alter(counters=Counters(attempts=2, releases=1))
    return broken


def redrive_not_counted() -> TaskAccounts:
    broken = redriven()
    broken.alter(redrives=0)
    return broken


def figure_wrong() -> TaskAccounts:
    broken = retried()
    broken.stats = (QueueStats("default", ready=1),)
    return broken


BROKEN: list[tuple[str, Callable[[], TaskAccounts], str]] = [
    ("I1", payload_changed, "other arguments"),
    ("I1", accepted_but_gone, "is missing"),
    ("I2", from_nowhere, "nobody enqueued"),
    ("I3", two_tasks_for_a_key, "order-7"),
    ("I5", claimed_while_dead, "claimed from dead"),
    ("I5", row_left_behind, "the row is ready"),
    ("I5", redriven_without_being_dead, "redriven while retrying"),
    ("I5", run_now_while_dead, "run now while dead"),
    ("I6", ran_after_success, "run 2 comes after run 1"),
    ("I6", succeeded_without_a_run, "no run ended it"),
    ("I6", row_left_behind, "the row is ready after run 1"),
    ("I7", run_number_repeated, "run 1 was claimed after run 1"),
    ("I7", row_behind_its_history, "the row is at run 2"),
    ("I7", started_twice, "run 3 was started twice"),
    ("I8", claimed_too_early, "1.000 s before run 1 was closed"),
    ("I8", claimed_while_open, "while run 1 was open"),
    ("I10", result_of_an_old_run, "that of run 1"),
    ("I10", result_of_nobody, "of no run"),
    ("I10", success_of_a_function_that_never_returned, "never returned"),
    ("I12", rerun_without_reason, "without a reason"),
    ("I12", run_without_record, "run 1 of 2 left no record"),
    ("I12", start_without_claim, "which was never claimed"),
    ("I13", never_finished, "still retrying"),
    ("I15", too_many_attempts, "4 attempts, 3 are allowed"),
    ("I15", too_many_crashes, "4 crashes, 3 are allowed"),
    ("I15", too_many_parks, "21 parks, 20 are allowed"),
    ("I19", ran_after_cancel, "run 3 was claimed 4.000 s later"),
    ("I19", started_after_cancel, "the function started 1.000 s later"),
    ("I20", counter_too_high, "counts 2 attempts"),
    ("I20", redrive_not_counted, "counts 0 redrives"),
    ("I20", figure_wrong, "shows 1 ready, 0 are stored"),
]


@pytest.mark.parametrize(
    ("invariant", "broken", "evidence"), BROKEN, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_history_is_named_with_its_evidence(
    invariant: str, broken: Callable[[], TaskAccounts], evidence: str
) -> None:
    found = broken().check()
    assert [
        violation
        for violation in found
        if violation.invariant == invariant and evidence in violation.evidence
    ]


def test_every_invariant_is_shown_to_fire() -> None:
    assert {invariant for invariant, _, _ in BROKEN} == INVARIANTS.keys()


def test_an_enqueue_without_an_answer_may_have_been_stored_or_not() -> None:
    unanswered = retried()
    unanswered.observations = ClientObservations(
        (SubmittedTask("t1", ARGS, ok=False), SubmittedTask("t2", ARGS, ok=False))
    )
    assert unanswered.check() == []


def test_runs_beyond_the_last_free_park_are_charged_and_within_the_limit() -> None:
    history = [run(number, "retrying", reason="rate_limit", charge="park") for number in range(1, 21)]
    charged = [run(number, "retrying", reason="rate_limit", charge="attempt") for number in (21, 22)]
    last = run(23, "dead", reason="rate_limit", charge="attempt")
    spent = Counters(attempts=3, parks=20)
    assert accounts(State.DEAD, *history, *charged, last, counters=spent).check() == []


def test_a_key_is_free_again_once_its_task_was_purged() -> None:
    good = retried()
    good.alter(key="order-7")
    earlier = SubmittedTask("purged", ARGS, key="order-7")
    observations = ClientObservations((SubmittedTask("t1", ARGS, key="order-7"), earlier))
    good.observations = dataclasses.replace(observations, purged=frozenset({"purged"}))
    assert good.check() == []
    good.observations = observations
    assert "I3" in {violation.invariant for violation in good.check()}


def test_a_cancel_that_found_a_final_task_holds_until_a_redrive() -> None:
    good = redriven()
    good.observations = dataclasses.replace(
        good.observations, cancels=(ObservedCancel("t1", CancelStatus.REQUESTED, at=12.0),)
    )
    assert good.check() == []
    good.observations = dataclasses.replace(
        good.observations, cancels=(ObservedCancel("t1", CancelStatus.REQUESTED, at=17.0),)
    )
    assert {violation.invariant for violation in good.check()} == {"I19"}


def test_a_function_that_fails_on_a_crash_may_crash_or_be_lost_once() -> None:
    once = RunLimits.of(TaskSpec("app:work", on_crash=OnCrash.FAIL))
    assert (once.crashes, once.losses) == (1, 1)
    usual = RunLimits.of(TaskSpec("app:work"))
    assert (usual.crashes, usual.losses) == (3, 10)


def test_without_function_notes_only_the_store_is_checked() -> None:
    unwatched = retried()
    unwatched.notes = []
    assert unwatched.check(has_notes=False) == []
    assert {violation.invariant for violation in unwatched.check()} == {"I10"}


def test_a_zombie_whose_late_start_the_caller_can_explain_may_begin_after_a_cancel() -> None:
    taken_up = run(1, "retrying", charge="loss", why="lease ran out", reason="crash")
    late = accounts(State.CANCELLED, taken_up, counters=Counters(losses=1))
    late.observations = dataclasses.replace(
        late.observations, cancels=(ObservedCancel("t1", CancelStatus.CANCELLED, at=20.0),)
    )
    late.notes = [FunctionNote("start", "t1", 1, 100, 21.0)]
    assert {violation.invariant for violation in late.check()} == {"I19"}
    assert late.check(zombies={Fence("t1", 1)}) == []
    assert {violation.invariant for violation in late.check(zombies={Fence("t1", 2)})} == {"I19"}
