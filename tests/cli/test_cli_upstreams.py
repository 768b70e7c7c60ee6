"""`tidegate upstreams`, `budget`, `tasks why`, and what `status` shows of upstreams."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from cli_support import Place, retrying

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Retrying
from tidegate.domain.spec import Priority
from tidegate.domain.upstream import Declared, GateKind, Limits, Signal, Window
from tidegate.domain.usage import Dimension, Heard, SeenLimit
from tidegate.store.protocol import Store
from tidegate.store.rows import EMBEDDED, ClaimedTask, NewWorker

MINUTE = Window("requests_per_minute", 600, 60.0)


@pytest.fixture
def openai(place: Place) -> str:
    """An upstream that some worker declared, with three tasks before it."""
    place.add(3, upstream="openai")
    declared = Declared(GateKind.UPSTREAM, "openai", Limits((MINUTE,)))
    place.ask(lambda store: store.declare([declared]))
    return "openai"


def parked(task: ClaimedTask) -> Retrying:
    failure = Failure(Verdict.PERMANENT, Reason.AUTH, message="key revoked")
    signal = Signal(Reason.AUTH, needs_person=True, message="key revoked")
    return Retrying(task.fence, failure, 60.0, Charge.PARK, 0.0, "waits for openai", signal=signal)


def test_ls_says_that_none_is_known(place: Place) -> None:
    place.add()
    assert "no upstream is known yet" in place.run("upstreams", "ls").stderr


def test_what_headers_show_is_listed_with_its_age_and_holds_in_words(place: Place, openai: str) -> None:
    shown = [
        Heard(SeenLimit(Dimension.REQUESTS, 500.0, 423.0, 9.24)),
        Heard(SeenLimit(Dimension.INPUT_TOKENS, remaining=0.0, reset_seconds=3600.0)),
    ]
    place.ask(lambda store: store.learn(openai, shown))
    output = place.run("upstreams", "show", openai).stdout
    assert "limit 500 in 1 min, 423 left, seen" in output
    assert "its window of input tokens is spent, opens in" in output
    row = place.json("upstreams", "show", openai)
    assert [each["dimension"] for each in row["learned"]] == ["requests", "input_tokens"]
    assert (row["blocked"], row["ready"]) == (3, 0)


def test_a_pace_after_429s_is_told_where_it_is_applied(place: Place) -> None:
    async def refused(store: Store) -> None:
        for name, limits in {"plain": Limits(), "limited": Limits((MINUTE,)), "plain#key": Limits()}.items():
            await store.declare([Declared(GateKind.UPSTREAM, name, limits)])
            await store.tell_of_probe(name, is_good=True, seconds=0.1)
            await store.tell(name, Signal(Reason.RATE_LIMIT, wait_seconds=0.0))

    place.ask(refused)
    words = {row["name"]: row["words"] for row in place.lines("upstreams", "ls")}
    assert {name for name in words if "a minute since its last 429" in words[name]} == {"plain"}
    assert words["limited"] == words["plain#key"] == "flowing"


def test_a_person_parks_and_opens(place: Place, openai: str) -> None:
    place.run("upstreams", "park", openai, "--for", "10m", "--why", "deploy")
    (row,) = place.lines("upstreams", "ls")
    assert (row["blocked"], row["ready"]) == (3, 0)
    assert row["words"] == "parked by a person for 10 min more: deploy"
    status = place.json("status")
    assert (status["queues"][0]["blocked"], status["queues"][0]["ready"]) == (3, 0)
    assert status["upstreams"] == [row | {"words": status["upstreams"][0]["words"]}]
    place.run("upstreams", "open", openai)
    (row,) = place.lines("upstreams", "ls")
    assert (row["blocked"], row["ready"], row["words"]) == (0, 3, "flowing")


def test_status_shows_the_reason_of_what_is_blocked_in_words(place: Place, openai: str) -> None:
    place.work(parked, slots=1)
    output = place.run("status").stdout
    assert "parked until a person opens it: auth: key revoked" in output
    assert "BLOCKED" in output


def test_limits_are_changed_live_and_lifted(place: Place, openai: str) -> None:
    place.run("upstreams", "set", openai, "requests_per_minute=300", "max_in_flight=7")
    limits = place.json("upstreams", "show", openai)["limits"]
    assert (limits["requests_per_minute"], limits["max_in_flight"]) == (300, 7)
    place.run("upstreams", "set", openai, "max_in_flight=none")
    assert "max_in_flight" not in place.json("upstreams", "show", openai)["limits"]
    assert "gate" in place.run("upstreams", "show", openai).stdout


def test_a_limit_set_by_hand_is_shown_as_such_until_it_is_handed_back(place: Place, openai: str) -> None:
    place.run("upstreams", "set", openai, "requests_per_minute=300", "retry_window=2m")
    place.run("upstreams", "set", openai, "max_in_flight=none")
    shown = place.run("upstreams", "show", openai).stdout
    assert "300 (by hand)" in shown
    assert "not limited (by hand)" in shown
    assert "120 (by hand)" in shown
    declared = Declared(GateKind.UPSTREAM, openai, Limits((MINUTE,)))
    place.ask(lambda store: store.declare([declared]))
    row = place.json("upstreams", "show", openai)
    assert row["limits"]["requests_per_minute"] == 300
    assert row["by_hand"] == ["requests_per_minute", "retry_window", "max_in_flight"]

    told = place.run("upstreams", "set", openai, "requests_per_minute=code", "retry_window=code").stderr
    assert "as the code says from the next start of a worker on" in told
    place.ask(lambda store: store.declare([declared]))
    row = place.json("upstreams", "show", openai)
    assert (row["limits"]["requests_per_minute"], row["limits"]["retry_window"]) == (600, 60)
    assert row["by_hand"] == ["max_in_flight"]


@pytest.mark.parametrize(
    "text", ["requests_per_minute=0", "requests_per_minute=-1", "colour=1", "max_in_flight", "slow_start=x"]
)
def test_limits_that_cannot_work_are_refused(place: Place, openai: str, text: str) -> None:
    assert "TG105" in place.run("upstreams", "set", openai, text, code=2).stderr


@pytest.mark.parametrize("words", [["show"], ["set"], ["park"], ["open"], ["probe"]])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(
    place: Place, openai: str, words: list[str]
) -> None:
    more = ["requests_per_minute=1"] if words == ["set"] else []
    error = place.run("upstreams", *words, "opnai", *more, code=3).stderr
    assert "TG111" in error
    assert "known here: openai" in error


def test_budget_shows_used_left_and_held(place: Place, openai: str) -> None:
    system, own = place.lines("budget")
    assert (system["name"], system["amount"], system["used"], system["left"]) == ("", 600, 0, 600)
    assert (own["name"], own["amount"], own["held"]) == ("openai", 120, 0)
    assert 0 <= system["next_at"] - system["used_since_at"] <= 62, "the minute, and a guard for clocks"
    shown = place.run("budget").stdout
    assert "(system)" in shown
    assert "LEFT" not in shown, "what the present minute leaves is not what may go now"
    assert "SINCE" in shown


def test_why_names_the_gate(place: Place, openai: str) -> None:
    (task_id,) = place.add(upstream=openai)
    place.run("upstreams", "park", openai)
    assert place.json("tasks", "why", task_id)["why"][0] == (
        "upstream openai: gate: parked by a person until it is opened"
    )
    assert "gate: parked" in place.run("tasks", "why", task_id).stdout


def test_a_retry_that_is_kept_back_shows_when_it_was_planned_and_until_when_it_is_held(
    place: Place, openai: str
) -> None:
    (task_id,) = place.add(upstream=openai)
    place.work(lambda task: replace(retrying(task), delay_seconds=0.0))
    planned = place.json("tasks", "show", task_id)["due_at"]
    place.run("upstreams", "park", openai)
    place.ask(lambda store: store.promote())
    shown = place.json("tasks", "show", task_id)
    assert (shown["state"], shown["due_at"], shown["held_by"]) == ("retrying", planned, "gate")
    assert shown["held_until_at"] > time.time()
    reason = place.json("tasks", "why", task_id)["why"][0]
    assert re.fullmatch(
        r"retry: planned for \S+ s ago, held back by the gate of its upstream for \S+ s more \(.*\)", reason
    )
    facts = place.run("tasks", "show", task_id).stdout
    assert re.search(r"^due +20", facts, re.MULTILINE)
    assert re.search(r"^held until +20\S+ \S+ by the gate of its upstream$", facts, re.MULTILINE)
    assert "held, due in" in place.run("tasks", "ls").stdout


def test_why_names_the_schedule_the_retry_and_that_nothing_serves_the_queue(place: Place) -> None:
    (late,) = place.add(delay_seconds=3_600.0)
    (ready,) = place.add(function="gone:away", queue="lonely", priority=Priority.BULK)
    assert place.json("tasks", "why", late)["why"][0].startswith("schedule: due in ")
    nothing = "nothing serves the queue lonely: no live worker; start one: tidegate worker MODULE:APP"
    assert place.json("tasks", "why", ready)["why"][0] == nothing
    assert "no application that ran here declares gone:away" in place.json("tasks", "why", ready)["why"]


def test_why_does_not_say_that_nobody_declares_what_a_worker_inside_another_process_may(place: Place) -> None:
    (ready,) = place.add(function="gone:away")
    inside = NewWorker("w", EMBEDDED, "default", "here", 1, ("*",), 10, lease_seconds=30.0)
    place.ask(lambda store: store.add_worker(inside))
    assert not any("declares" in reason for reason in place.json("tasks", "why", ready)["why"])


def test_why_names_the_limit(place: Place, openai: str) -> None:
    (task_id,) = place.add(upstream=openai)
    place.run("upstreams", "set", openai, "requests_per_minute=none", "requests_per_day=1")
    place.work(lambda task: None, slots=1)
    assert "requests_per_day used up; goes on in" in place.json("tasks", "why", task_id)["why"][0]


def test_why_of_an_unknown_task_is_not_found(place: Place) -> None:
    place.add()
    place.run("tasks", "why", "01935c1e-7d3a-7000-8000-000000000000", code=3)
