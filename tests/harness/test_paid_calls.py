"""The checks of paid calls, on made-up notes and ledgers: what is allowed passes, anything else is named."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness.paid_calls import PaidCalls, PaidNote, Promise, model_of, paid_calls_are_kept
from tidegate.domain.states import State
from tidegate.store.rows import TaskRow
from tidegate.store.step_rows import DoubtRow
from tidegate.testing.provider import ProviderCall

TASK = "task"


class Task:
    """What the checks read of a stored task and of a doubt."""

    id = task_id = TASK
    state = State.SUCCEEDED


def note(event: Any, run: int, request_id: str = "", *, promise: Promise = Promise.REPEATED) -> PaidNote:
    return PaidNote(event, TASK, run, 0, 1, promise, request_id)


def entry(request_id: str, *, billed: bool = True) -> ProviderCall:
    outcome = "answered" if billed else "replayed"
    return ProviderCall(request_id, 0.0, "POST", "/", model_of(TASK, 0), "", "", 200, billed, 1, 1, outcome)


def broken(*notes: PaidNote, ledger: list[ProviderCall], doubts: int = 0) -> list[str]:
    paid = PaidCalls(notes, ledger, cast("list[DoubtRow]", [Task()] * doubts))
    return [found.evidence for found in paid_calls_are_kept(paid, cast("list[TaskRow]", [Task()]))]


SENT, KEPT = note("sent", 1), note("kept", 1, "a")
AGAIN = (SENT, note("sent", 2), note("kept", 2, "b"))
"""A call that was in flight when its run was killed, and that the next run repeated."""


def test_a_call_that_is_paid_once_and_kept_is_fine() -> None:
    assert broken(SENT, KEPT, ledger=[entry("a")]) == []
    assert broken(SENT, KEPT, note("sent", 2), note("kept", 2, "a"), ledger=[entry("a")]) == []


def test_a_call_in_flight_at_a_kill_may_be_paid_twice_if_it_is_listed() -> None:
    assert broken(*AGAIN, ledger=[entry("a"), entry("b")], doubts=1) == []
    [what] = broken(*AGAIN, ledger=[entry("a"), entry("b")])
    assert what == "1 calls were paid again, and 0 doubts are listed"


def test_a_call_whose_answer_a_run_had_is_not_paid_again() -> None:
    runs = (SENT, KEPT, note("sent", 2), note("kept", 2, "a"))
    [what] = broken(*runs, ledger=[entry("a"), entry("b")], doubts=1)
    assert what == "call 0 was paid 2 times, and was in flight at 0 ends of runs"


def test_another_answer_in_a_later_run_is_a_violation() -> None:
    found = broken(
        SENT, KEPT, note("sent", 2), note("kept", 2, "b"), ledger=[entry("a"), entry("b")], doubts=1
    )
    assert "runs got 2 different answers to call 0" in found


def test_an_answer_that_the_provider_never_gave_is_a_violation() -> None:
    assert broken(SENT, KEPT, ledger=[entry("x")]) == ["call 0 has an answer that no provider gave to it"]
    assert "call 0 has an answer, and was not paid" in broken(SENT, KEPT, ledger=[entry("a", billed=False)])


@pytest.mark.parametrize("promise", [Promise.ASKED, Promise.HONOURED])
def test_a_call_that_asks_or_whose_key_is_honoured_is_never_paid_twice(promise: Promise) -> None:
    runs = (note("sent", 1, promise=promise), note("sent", 2), note("kept", 2, "b"))
    assert broken(*runs, ledger=[entry("a"), entry("b", billed=False)], doubts=1) == []
    [what] = broken(*runs, ledger=[entry("a"), entry("b")], doubts=1)
    assert what == f"call 0 ({promise}) was paid 2 times"


def test_a_task_that_succeeded_without_an_answer_is_a_violation() -> None:
    assert broken(SENT, ledger=[]) == ["succeeded without an answer to call 0"]
    assert "call 0 was paid, though no run made it" in broken(ledger=[entry("a")])
