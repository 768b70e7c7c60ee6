"""`tidegate dead`: list, show, redrive, purge."""

from __future__ import annotations

import json

import pytest
from cli_support import dead

from tidegate.deadletter import redrive as rules
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.states import State
from tidegate.store.rows import TaskFilter

CRASH = Failure(Verdict.TRANSIENT, Reason.CRASH, "killed by signal 9", "")


def count(place):
    return place.ask(lambda store: store.count_dead(TaskFilter()))


def states(place, ids):
    return [row.state for row in place.ask(lambda store: store.read(ids)).values()]


def test_dead_letters_are_listed_latest_first_with_their_error(place):
    (first,) = place.die()
    (second,) = place.die(failure=CRASH, queue="vip")

    result = place.run("dead", "ls")
    letters = place.lines("dead", "ls")

    assert [line.split()[0] for line in result.stdout.splitlines()] == ["ID", second, first]
    assert "shop.Refused: not allowed" in result.stdout
    assert "2 of 2" in result.stderr
    assert [letter["task_id"] for letter in letters] == [second, first]
    assert letters[1]["reason"] == "content_policy"
    assert letters[1]["error_class"] == "shop.Refused"
    assert "args" not in letters[1]
    assert "Ada" not in str(letters)


FILTERS = [
    ("--queue", "vip"),
    ("--function", "other:function"),
    ("--reason", "crash"),
    ("--error", "shop.Odd"),
    ("--tenant", "acme"),
    ("--label", "batch=7"),
]


@pytest.fixture
def mixed(place):
    """A place with two ordinary dead letters and one that differs in everything; and its id."""
    place.die(2)
    failure = Failure(Verdict.TRANSIENT, Reason.CRASH, "odd", "shop.Odd")
    (odd,) = place.die(
        function="other:function", failure=failure, queue="vip", tenant="acme", labels={"batch": "7"}
    )
    place.declare(place.greet, "other:function")
    return place, odd


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_choose_dead_letters(mixed, filters):
    place, odd = mixed

    assert [letter["task_id"] for letter in place.lines("dead", "ls", *filters)] == [odd]


@pytest.mark.parametrize("filters", FILTERS)
def test_a_redrive_by_filter_takes_what_matches_and_nothing_else(mixed, filters):
    place, odd = mixed

    assert place.json("dead", "redrive", *filters) == {"redriven": 1, "refused": 0, "undeclared": {}}
    assert states(place, [odd]) == [State.READY]
    assert count(place) == 2


def test_before_takes_an_age_or_a_moment(place):
    place.die()

    assert len(place.lines("dead", "ls", "--before", "2199-01-01T00:00Z")) == 1
    assert len(place.lines("dead", "ls", "--before", "0")) == 1
    assert place.lines("dead", "ls", "--before", "7d") == []
    assert place.lines("dead", "ls", "--before", "2001-01-01T00:00+02:00") == []
    assert "no time zone" in place.run("dead", "ls", "--before", "2001-01-01T00:00", code=2).stderr


def test_a_dead_letter_is_shown_with_its_history_and_args_on_demand(place):
    (task_id,) = place.die()

    text = place.run("dead", "show", task_id).stdout
    shown = place.json("dead", "show", task_id, "--args")

    assert "content_policy" in text
    assert "not allowed" in text
    assert "Ada" not in text
    assert shown["args"] == {"a": [], "k": {"name": "Ada"}}
    assert shown["history"][-1]["status"] == 400


def test_a_task_that_is_not_dead_is_not_shown_as_a_dead_letter(place):
    (task_id,) = place.add()

    assert "is ready, not dead" in place.run("dead", "show", task_id, code=4).stderr


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "--all"),
        (["--all", "--queue", "x"], "not both"),
        (["00000000-0000-7000-8000-000000000000", "--queue", "x"], "not both"),
        (["00000000-0000-7000-8000-000000000000", "--all"], "not both"),
    ],
)
def test_an_unclear_choice_is_wrong_usage(place, verb, args, told):
    place.die()

    assert told in place.run("dead", verb, *args, "--dry-run", code=2).stderr


def test_redrive_by_id_answers_per_id(place):
    ids = place.die(2)
    (ready,) = place.add()
    place.declare(place.greet)

    answers = place.lines("dead", "redrive", *ids, ready, code=4)

    assert [answer["answer"] for answer in answers] == ["done", "done", "refused"]
    assert states(place, ids) == [State.READY, State.READY]


def test_redrive_keeps_the_history(place):
    (task_id,) = place.die()
    place.declare(place.greet)

    place.run("dead", "redrive", task_id)

    shown = place.json("tasks", "show", task_id)
    assert shown["redrives"] == 1
    assert [entry["kind"] for entry in shown["history"]][-2:] == ["run", "redriven"]


def test_redrive_of_a_function_nobody_declares_is_refused_and_named(place):
    (task_id,) = place.die(function="gone:function")
    place.declare(place.greet)

    for choice in ([task_id], ["--function", "gone:function"]):
        assert "gone:function" in place.run("dead", "redrive", *choice, code=4).stderr
    assert states(place, [task_id]) == [State.DEAD]


def test_an_application_named_on_the_command_line_declares_its_functions(place):
    (task_id,) = place.die()

    place.run("dead", "redrive", task_id, code=4)
    place.run("dead", "redrive", task_id, "--app", place.app)

    assert states(place, [task_id]) == [State.READY]


def test_a_bulk_redrive_leaves_undeclared_letters_and_ends_with_4(place):
    place.die(2, function="gone:function")
    place.die(3)
    place.die(1, function="gone:function")
    place.declare(place.greet)

    result = place.run("dead", "redrive", "--all", code=4)

    assert result.stdout == "redriven 3\n"
    assert "3 left alone: no application declares gone:function" in result.stderr
    assert count(place) == 3


def test_a_bulk_act_goes_in_chunks_over_letters_that_stay(place, monkeypatch):
    monkeypatch.setattr(rules, "CHUNK_LETTERS", 4)
    for function in (place.greet, "gone:function", place.greet):
        place.die(7, function=function)
    place.declare(place.greet)

    result = place.run("dead", "redrive", "--all", "--json", code=4)

    assert json.loads(result.stdout) == {"redriven": 14, "refused": 0, "undeclared": {"gone:function": 7}}
    assert "of 21…" in result.stderr
    assert count(place) == 7


def test_what_fails_again_during_a_bulk_redrive_is_not_taken_twice(place, monkeypatch):
    monkeypatch.setattr(rules, "CHUNK_LETTERS", 2)
    place.die(5)

    async def redrive_and_fail(store):
        from tidegate.store.rows import ClaimAsk, CrashTerms, NewWorker

        await store.add_worker(NewWorker("w", "w", "p", "h", 1, ("*",), 50, 30.0))

        class Failing:
            def __getattr__(self, name):
                return getattr(store, name)

            async def redrive(self, ids):
                answers = await store.redrive(ids)
                claim = await store.claim(ClaimAsk("w", 50, ("*",), {place.greet: CrashTerms()}))
                await store.finish([dead(task) for task in claim.tasks])
                return answers

        return await rules.redrive_matching(Failing(), TaskFilter(), {place.greet})

    assert place.ask(redrive_and_fail).done == 5
    assert count(place) == 5


def test_arguments_can_be_replaced_after_a_check(place):
    (task_id,) = place.die()

    place.run("dead", "redrive", task_id, "--app", place.app, "--args", '{"name": "Bob", "times": 2}')

    payload, _ = place.ask(lambda store: store.payload(task_id))
    assert json.loads(payload) == {"a": [], "k": {"name": "Bob", "times": 2}}
    assert states(place, [task_id]) == [State.READY]


@pytest.mark.parametrize(
    ("args", "told"),
    [('{"nope": 1}', "unexpected nope"), ("[1, 2, 3]", "do not fit"), ('"x"', "array"), ("{", "not JSON")],
)
def test_arguments_that_do_not_fit_are_refused(place, args, told):
    (task_id,) = place.die()

    assert told in place.run("dead", "redrive", task_id, "--app", place.app, "--args", args, code=2).stderr
    assert states(place, [task_id]) == [State.DEAD]


def test_new_arguments_need_one_id_and_the_application(place):
    first, second = place.die(2)

    place.run("dead", "redrive", first, second, "--app", place.app, "--args", "{}", code=2)
    place.run("dead", "redrive", first, "--args", "{}", code=2)


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_a_dry_run_counts_first_and_does_nothing(place, verb):
    ids = place.die(3)
    place.declare(place.greet)

    assert "3; nothing was done" in place.run("dead", verb, "--all", "--dry-run").stderr
    assert place.json("dead", verb, "--all", "--dry-run") == {"would": verb, "count": 3}
    assert place.json("dead", verb, ids[0], "--dry-run") == {"would": verb, "count": 1}
    assert count(place) == 3


def test_purge_needs_a_yes_and_says_how_many_it_would_take(place):
    ids = place.die(3)

    result = place.run("dead", "purge", "--all", code=2)
    assert "would purge 3" in result.stderr
    assert "--yes" in result.stderr
    assert count(place) == 3

    assert place.run("dead", "purge", ids[0], "--yes").stdout == f"{ids[0]}  done\n"
    assert place.json("dead", "purge", "--all", "--yes") == {"purged": 2, "refused": 0, "undeclared": {}}
    assert count(place) == 0
    assert "TG121" in place.run("tasks", "show", ids[1], code=3).stderr


def test_purge_of_what_is_not_dead_is_refused(place):
    (ready,) = place.add()

    assert place.lines("dead", "purge", ready, "--yes", code=4) == [{"task_id": ready, "answer": "refused"}]
    assert states(place, [ready]) == [State.READY]
