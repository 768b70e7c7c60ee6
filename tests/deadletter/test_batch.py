"""How many letters of a redrive may be sent now."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.deadletter.policy.batch import MOST_PER_STEP, MOST_UNFINISHED, plan_batch
from tidegate.limits.pauses import Pause, PauseKind, Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.values import Gate, GateRow, GateState, ParkedBy
from tidegate.policy.live_workers import LiveWorker, LiveWorkers
from tidegate.store.operation_rows import FeedFacts, LetterChannel

NOW = 1_800_000_000.0


def workers(slots: int = 10) -> LiveWorkers:
    return LiveWorkers([LiveWorker(("*",), None, slots, slots)])


def facts(*channels: LetterChannel, **changes: object) -> FeedFacts:
    given_facts: dict[str, object] = {"channels": channels, "first_tries": (), "now": NOW}
    return FeedFacts(**given_facts | changes)  # type: ignore[arg-type]


def sent(found: FeedFacts, live: LiveWorkers, unfinished: int = 0) -> dict[str, int]:
    plan = plan_batch(found, live, unfinished=unfinished)
    return {channel.function: channel.letters for channel in plan.channels}


MANY = LetterChannel("q", "llm", "f", 10_000)


def test_an_idle_queue_gets_twice_its_slots():
    assert sent(facts(MANY), workers(10)) == {"f": 20}
    assert sent(facts(MANY, untried={"q": 15}), workers(10)) == {"f": 5}


def test_a_queue_with_other_ready_tasks_gives_a_tenth_of_its_slots():
    assert sent(facts(MANY, ready={"q": 1}), workers(100)) == {"f": 10}
    assert sent(facts(MANY, ready={"q": 1}, untried={"q": 10}), workers(100)) == {}
    assert sent(facts(MANY, ready={"q": 1}), workers(2)) == {"f": 1}


def test_letters_without_an_outcome_limit_what_is_sent():
    assert sent(facts(MANY), workers(1_000), unfinished=MOST_UNFINISHED - 3) == {"f": 3}
    plan = plan_batch(facts(MANY), workers(), unfinished=MOST_UNFINISHED)
    assert plan.channels == ()
    assert plan.waits_for == "1,000 letters that were sent have no outcome yet"


def test_a_closed_gate_a_pause_and_a_missing_worker_hold_their_letters_back_and_no_others():
    parked = GateRow(GateKind.UPSTREAM, "llm", gate=Gate(GateState.PARKED, ParkedBy.PERSON))
    other = LetterChannel("q", "", "g", 3)
    pause = Pause(PauseKind.FUNCTION, "f", NOW, "ada")

    for changes, reason in (
        ({"gates": (parked,)}, "the gate of llm is parked"),
        ({"pauses": Pauses([pause])}, "the function f is paused"),
    ):
        plan = plan_batch(facts(MANY, other, **changes), workers(), unfinished=0)
        assert [channel.function for channel in plan.channels] == ["g"]
        assert plan.waits_for == reason
    assert "no live worker" in plan_batch(facts(MANY), LiveWorkers([]), unfinished=0).waits_for


@given(
    letters=st.lists(st.integers(1, 500), max_size=8),
    slots=st.integers(1, 400),
    ready=st.integers(0, 5),
    untried=st.integers(0, 100),
    unfinished=st.integers(0, 2_000),
)
def test_a_step_never_sends_more_than_its_limits(letters, slots, ready, untried, unfinished):
    channels = [LetterChannel("q", "", f"f{n}", count) for n, count in enumerate(letters)]
    found = facts(*channels, ready={"q": ready}, untried={"q": untried})

    plan = plan_batch(found, workers(slots), unfinished=unfinished)

    total = sum(channel.letters for channel in plan.channels)
    assert total <= MOST_PER_STEP
    assert total <= max(0, MOST_UNFINISHED - unfinished)
    room = max(1, int(slots * (0.1 if ready else 2.0)))
    assert total <= max(0, room - untried)
    assert all(0 < channel.letters <= letters[int(channel.function[1:])] for channel in plan.channels)
