"""`tidegate dead`: list, show, redrive, purge."""

from __future__ import annotations

import json

import pytest
from cli_support import dead

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.states import State
from tidegate.operations import dead_letters as rules
from tidegate.store.rows import TaskFilter

CRASH = Failure(Verdict.TRANSIENT, Reason.CRASH, "killed by signal 9", "")


def count(workspace):
    return workspace.ask(lambda store: store.count_dead_letters(TaskFilter()))


def states(workspace, ids):
    return [row.state for row in workspace.ask(lambda store: store.read_tasks(ids)).values()]


def test_dead_letters_are_listed_latest_first_with_their_error(workspace):
    (first,) = workspace.die()
    (second,) = workspace.die(failure=CRASH, queue="vip")

    result = workspace.run("dead", "ls")
    letters = workspace.lines("dead", "ls")

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
def mixed(workspace):
    """A place with two ordinary dead letters and one that differs in everything; and its id."""
    workspace.die(2)
    failure = Failure(Verdict.TRANSIENT, Reason.CRASH, "odd", "shop.Odd")
    (odd,) = workspace.die(
        function="other:function", failure=failure, queue="vip", tenant="acme", labels={"batch": "7"}
    )
    workspace.declare(workspace.greet, "other:function")
    return workspace, odd


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_choose_dead_letters(mixed, filters):
    workspace, odd = mixed

    assert [letter["task_id"] for letter in workspace.lines("dead", "ls", *filters)] == [odd]


@pytest.mark.parametrize("filters", FILTERS)
def test_a_redrive_by_filter_takes_what_matches_and_nothing_else(mixed, filters):
    workspace, odd = mixed

    assert workspace.json("dead", "redrive", *filters) == {"redriven": 1, "refused": 0, "undeclared": {}}
    assert states(workspace, [odd]) == [State.READY]
    assert count(workspace) == 2


def test_before_takes_an_age_or_a_moment(workspace):
    workspace.die()

    assert len(workspace.lines("dead", "ls", "--before", "2199-01-01T00:00Z")) == 1
    assert len(workspace.lines("dead", "ls", "--before", "0")) == 1
    assert workspace.lines("dead", "ls", "--before", "7d") == []
    assert workspace.lines("dead", "ls", "--before", "2001-01-01T00:00+02:00") == []
    assert "no time zone" in workspace.run("dead", "ls", "--before", "2001-01-01T00:00", code=2).stderr


def test_a_dead_letter_is_shown_with_its_history_and_args_on_demand(workspace):
    (task_id,) = workspace.die()

    text = workspace.run("dead", "show", task_id).stdout
    shown = workspace.json("dead", "show", task_id, "--args")

    assert "content_policy" in text
    assert "not allowed" in text
    assert "Ada" not in text
    assert shown["args"] == {"a": [], "k": {"name": "Ada"}}
    assert shown["history"][-1]["status"] == 400


def test_a_task_that_is_not_dead_is_not_shown_as_a_dead_letter(workspace):
    (task_id,) = workspace.add()

    assert "is ready, not dead" in workspace.run("dead", "show", task_id, code=4).stderr


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    ("args", "reported"),
    [
        ([], "--all"),
        (["--all", "--queue", "x"], "one of the three"),
        (["00000000-0000-7000-8000-000000000000", "--queue", "x"], "one of the three"),
        (["00000000-0000-7000-8000-000000000000", "--all"], "one of the three"),
    ],
)
def test_an_unclear_choice_is_wrong_usage(workspace, verb, args, reported):
    workspace.die()

    assert reported in workspace.run("dead", verb, *args, "--dry-run", code=2).stderr


def test_redrive_by_id_answers_per_id(workspace):
    ids = workspace.die(2)
    (ready,) = workspace.add()
    workspace.declare(workspace.greet)

    answers = workspace.lines("dead", "redrive", *ids, ready, code=4)

    assert [answer["answer"] for answer in answers] == ["done", "done", "refused"]
    assert states(workspace, ids) == [State.READY, State.READY]


def test_redrive_keeps_the_history(workspace):
    (task_id,) = workspace.die()
    workspace.declare(workspace.greet)

    workspace.run("dead", "redrive", task_id)

    shown = workspace.json("tasks", "show", task_id)
    assert shown["redrives"] == 1
    assert [entry["kind"] for entry in shown["history"]][-2:] == ["run", "redriven"]


def test_redrive_of_a_function_nobody_declares_is_refused_and_named(workspace):
    (task_id,) = workspace.die(function="gone:function")
    workspace.declare(workspace.greet)

    for choice in ([task_id], ["--function", "gone:function"]):
        assert "gone:function" in workspace.run("dead", "redrive", *choice, code=4).stderr
    assert states(workspace, [task_id]) == [State.DEAD]


def test_an_application_named_on_the_command_line_declares_its_functions(workspace):
    (task_id,) = workspace.die()

    workspace.run("dead", "redrive", task_id, code=4)
    workspace.run("dead", "redrive", task_id, "--app", workspace.app)

    assert states(workspace, [task_id]) == [State.READY]


def test_a_bulk_redrive_skips_undeclared_dead_letters_and_exits_with_4(workspace):
    workspace.die(2, function="gone:function")
    workspace.die(3)
    workspace.die(1, function="gone:function")
    workspace.declare(workspace.greet)

    result = workspace.run("dead", "redrive", "--all", code=4)

    assert result.stdout == "redriven 3\n"
    assert "3 skipped: no application declares gone:function" in result.stderr
    assert count(workspace) == 3


def test_a_bulk_action_goes_in_chunks_over_dead_letters_that_stay(workspace, monkeypatch):
    monkeypatch.setattr(rules, "CHUNK_SIZE", 4)
    for function in (workspace.greet, "gone:function", workspace.greet):
        workspace.die(7, function=function)
    workspace.declare(workspace.greet)

    result = workspace.run("dead", "redrive", "--all", "--json", code=4)

    assert json.loads(result.stdout) == {"redriven": 14, "refused": 0, "undeclared": {"gone:function": 7}}
    assert "of 21…" in result.stderr
    assert count(workspace) == 7


def test_what_fails_again_during_a_bulk_redrive_is_not_taken_twice(workspace, monkeypatch):
    monkeypatch.setattr(rules, "CHUNK_SIZE", 2)
    workspace.die(5)

    async def redrive_and_fail(store):
        from tidegate.store.rows import ClaimRequest, CrashPolicy, NewWorker

        await store.add_worker(NewWorker("w", "w", "p", "h", 1, ("*",), 50, 30.0))

        class Failing:
            def __getattr__(self, name):
                return getattr(store, name)

            async def redrive(self, ids):
                answers = await store.redrive(ids)
                claim = await store.claim(ClaimRequest("w", 50, ("*",), {workspace.greet: CrashPolicy()}))
                await store.finish([dead(task) for task in claim.tasks])
                return answers

        return await rules.redrive(Failing(), rules.DeadLetterChoice(None), {workspace.greet})

    assert workspace.ask(redrive_and_fail).done == 5
    assert count(workspace) == 5


def test_arguments_can_be_replaced_after_a_check(workspace):
    (task_id,) = workspace.die()

    workspace.run("dead", "redrive", task_id, "--app", workspace.app, "--args", '{"name": "Bob", "times": 2}')

    payload, _ = workspace.ask(lambda store: store.get_payload(task_id))
    assert json.loads(payload) == {"a": [], "k": {"name": "Bob", "times": 2}}
    assert states(workspace, [task_id]) == [State.READY]


@pytest.mark.parametrize(
    ("args", "reported"),
    [('{"nope": 1}', "unexpected nope"), ("[1, 2, 3]", "do not fit"), ('"x"', "array"), ("{", "not JSON")],
)
def test_arguments_that_do_not_fit_are_refused(workspace, args, reported):
    (task_id,) = workspace.die()

    assert (
        reported
        in workspace.run("dead", "redrive", task_id, "--app", workspace.app, "--args", args, code=2).stderr
    )
    assert states(workspace, [task_id]) == [State.DEAD]


def test_new_arguments_need_one_id_and_the_application(workspace):
    first, second = workspace.die(2)

    workspace.run("dead", "redrive", first, second, "--app", workspace.app, "--args", "{}", code=2)
    workspace.run("dead", "redrive", first, "--args", "{}", code=2)


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_a_dry_run_counts_first_and_does_nothing(workspace, verb):
    ids = workspace.die(3)
    workspace.declare(workspace.greet)

    assert "3 dead letters; nothing was changed" in workspace.run("dead", verb, "--all", "--dry-run").stderr
    assert workspace.json("dead", verb, "--all", "--dry-run") == {"would": verb, "count": 3}
    assert workspace.json("dead", verb, ids[0], "--dry-run") == {"would": verb, "count": 1}
    assert count(workspace) == 3


def test_purge_needs_yes_and_prints_how_many_it_would_delete(workspace):
    ids = workspace.die(3)

    result = workspace.run("dead", "purge", "--all", code=2)
    assert "would purge 3" in result.stderr
    assert "--yes" in result.stderr
    assert count(workspace) == 3

    assert workspace.run("dead", "purge", ids[0], "--yes").stdout == f"{ids[0]}  done\n"
    assert workspace.json("dead", "purge", "--all", "--yes") == {"purged": 2, "refused": 0, "undeclared": {}}
    assert count(workspace) == 0
    assert "TG121" in workspace.run("tasks", "show", ids[1], code=3).stderr


def test_purge_of_what_is_not_dead_is_refused(workspace):
    (ready,) = workspace.add()

    assert workspace.lines("dead", "purge", ready, "--yes", code=4) == [
        {"task_id": ready, "answer": "refused"}
    ]
    assert states(workspace, [ready]) == [State.READY]


def test_deaths_are_counted_by_reason_and_stay_counted_after_a_purge(workspace):
    workspace.die(2)
    workspace.die(failure=CRASH, queue="vip")
    workspace.run("dead", "purge", "--all", "--yes")

    shown = workspace.run("dead", "stats").stdout.splitlines()
    rows = workspace.lines("dead", "stats", "--step", "day", "--queue", "vip")

    assert shown[0].split() == ["FROM", "(UTC)", "CONTENT_POLICY", "CRASH", "ALL"]
    assert shown[-1].split() == ["all", "2", "1", "3"]
    assert [(row["queue"], row["reason"], row["deaths"]) for row in rows] == [("vip", "crash", 1)]


def test_deaths_are_grouped_by_what_failed(workspace):
    *_, last = workspace.die(3)
    workspace.die(failure=CRASH)

    shown = workspace.run("dead", "groups").stdout.splitlines()
    groups = workspace.lines("dead", "groups", "--reason", "content_policy")

    assert len(shown) == 3
    assert shown[1].split()[0] == "3"
    assert "shop.Refused: not allowed" in shown[1]
    assert "killed by signal <number>" in shown[2]
    assert [(group["deaths"], group["example_id"]) for group in groups] == [(3, last)]


def test_a_time_without_deaths_is_reported(workspace):
    workspace.die()

    result = workspace.run("dead", "stats", "--until", "1h")
    groups = workspace.run("dead", "groups", "--until", "1h")

    assert (result.stdout, groups.stdout) == ("", "")
    assert "no task died in this time" in result.stderr
    assert "no task died in this time" in groups.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--since", "1h", "--until", "2h"), "since is not before until"),
        (("--since", "yesterday"), "since"),
        (("--since", "30d", "--step", "minute"), "periods"),
    ],
)
def test_a_range_that_cannot_be_answered_is_refused(workspace, options, message):
    assert message in workspace.run("dead", "stats", *options, code=2).stderr


def test_surges_are_listed_with_their_numbers_and_named_by_the_statistics(workspace):
    workspace.die(7)
    workspace.die(queue="vip", failure=CRASH)

    shown = workspace.run("dead", "surges", "--by", "queue")
    (first, second) = workspace.lines("dead", "surges", "--by", "reason")
    stats = workspace.run("dead", "stats")

    assert shown.stdout.splitlines()[0].split()[:3] == ["SURGE", "DEATHS", "EXPECTED"]
    assert [line.split()[1] for line in shown.stdout.splitlines()[1:]] == ["7", "1"]
    assert (first["by"], first["key"], first["count"]["now"]) == ("reason", "content_policy", 7)
    assert "nothing earlier to compare" in second["why"]
    assert "surge:" not in stats.stderr, "there is nothing to compare with yet"


def test_without_deaths_there_are_no_surges_and_a_wrong_window_is_refused(workspace):
    workspace.add()

    assert "no task died" in workspace.run("dead", "surges").stderr
    assert "choose a minute to a day" in workspace.run("dead", "surges", "--window", "5s", code=2).stderr
