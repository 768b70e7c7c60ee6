"""The table of states is closed: final states stay, and every other state can be reached and left."""

from __future__ import annotations

from tidegate.domain.states import FINAL, MOVES, State, allowed


def test_only_a_redrive_leaves_a_final_state() -> None:
    leaving = {operation for operation, moves in MOVES.items() for source, _ in moves if source in FINAL}
    assert leaving == {"redrive"}


def test_every_state_can_be_reached() -> None:
    reached = {target for moves in MOVES.values() for _, target in moves}
    assert reached == set(State)


def test_every_state_that_is_not_final_can_be_left() -> None:
    left = {source for moves in MOVES.values() for source, _ in moves}
    assert set(State) - FINAL <= left


def test_only_a_claim_makes_a_task_run() -> None:
    assert [operation for operation, moves in MOVES.items() if any(t is State.RUNNING for _, t in moves)] == [
        "claim"
    ]
    assert allowed("claim", State.READY, State.RUNNING)
    assert not allowed("claim", State.RETRYING, State.RUNNING)
