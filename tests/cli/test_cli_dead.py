"""`tidegate dead`: list, show, redrive, purge."""

from __future__ import annotations

import json

import pytest

from tidegate.deadletter.runner import OperationRunner
from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.states import State
from tidegate.store.rows import TaskFilter
from tidegate.store.worker_rows import NewWorker

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


def advance(workspace):
    """Run maintenance beside a live worker until no redrive has a next step."""

    async def work(store):
        await store.add_worker(NewWorker("w", "w", "p", "h", 1, ("*",), 50, 30.0))
        runner = OperationRunner(store)
        while await runner.run_once():
            pass

    workspace.ask(work)


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

    operation = workspace.json("dead", "redrive", *filters)
    advance(workspace)

    assert (operation["state"], operation["preview"]) == ("choosing", 1)
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


def test_a_bulk_redrive_skips_undeclared_dead_letters_and_names_them(workspace):
    gone = workspace.die(2, function="gone:function")
    workspace.die(3)
    workspace.declare(workspace.greet)

    started = workspace.run("dead", "redrive", "--all")
    advance(workspace)
    shown = workspace.json("ops", "show", started.stdout.strip()[:8], "--letters", "skipped")

    assert "redriving 5 dead letters, 5 of them first" in started.stderr
    assert (shown["chosen"], shown["sent"], shown["skipped"]) == (3, 3, 2)
    assert {letter["task_id"]: letter["why"] for letter in shown["letters"]} == dict.fromkeys(
        gone, "no application declares gone:function"
    )
    assert count(workspace) == 2


def test_a_redrive_refuses_more_letters_than_expected(workspace):
    workspace.die(3)
    workspace.declare(workspace.greet)

    assert (
        "more than the 2 expected"
        in workspace.run("dead", "redrive", "--all", "--expect", "2", code=4).stderr
    )
    assert workspace.lines("ops", "ls") == []


def test_operations_are_listed_with_who_started_them_and_how_they_ended(workspace):
    ids = workspace.die(8)
    workspace.declare(workspace.greet)
    workspace.run("dead", "redrive", ids[0])
    workspace.run("dead", "redrive", "--all")
    advance(workspace)
    workspace.run("dead", "purge", "--all", "--yes")

    purge, by_filter, by_id = workspace.lines("ops", "ls")

    assert (purge["kind"], purge["state"], purge["preview"], purge["sent"]) == ("purge", "done", 2, 2)
    assert (by_filter["state"], by_filter["preview"], by_filter["sent"]) == ("canary", 7, 5)
    assert (by_id["state"], by_id["filter"], by_id["sent"]) == ("done", "ids", 1)
    assert all("(command line)" in each["started_by"] for each in (purge, by_filter, by_id))
    table = workspace.run("ops", "ls").stdout.splitlines()
    assert table[0].split()[:3] == ["ID", "KIND", "STATE"]
    assert len(table) == 4


def test_an_operation_is_aborted_and_then_undone(workspace):
    ids = workspace.die(8)
    workspace.declare(workspace.greet)
    operation = workspace.json("dead", "redrive", "--all")["operation_id"]
    advance(workspace)

    aborted = workspace.run("ops", "abort", operation)
    again = workspace.run("ops", "abort", operation, code=4)
    undone = workspace.json("ops", "undo", operation)

    assert aborted.stdout == f"{operation}  aborted\n"
    assert "is aborted" in again.stderr
    assert (undone["state"], undone["sent"], undone["undone"]) == ("undone", 5, 5)
    assert states(workspace, ids) == [State.DEAD] * 8
    assert "is undone" in workspace.run("ops", "undo", operation, code=4).stderr


def test_an_unknown_operation_is_not_found(workspace):
    workspace.die()

    for act in ("show", "abort", "undo"):
        assert "TG123" in workspace.run("ops", act, "0191ffff", code=3).stderr


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

    assert "3 dead letters" in workspace.run("dead", verb, "--all", "--dry-run").stderr
    assert workspace.json("dead", verb, "--all", "--dry-run") == {"would": verb, "count": 3} | (
        {"canary": 3, "in_doubt": 0} if verb == "redrive" else {}
    )
    assert workspace.json("dead", verb, ids[0], "--dry-run") == {"would": verb, "count": 1}
    assert count(workspace) == 3


def test_purge_needs_yes_and_prints_how_many_it_would_delete(workspace):
    ids = workspace.die(3)

    result = workspace.run("dead", "purge", "--all", code=2)
    assert "would purge 3" in result.stderr
    assert "--yes" in result.stderr
    assert count(workspace) == 3

    assert workspace.run("dead", "purge", ids[0], "--yes").stdout == f"{ids[0]}  done\n"
    purged = workspace.json("dead", "purge", "--all", "--yes")
    assert (purged["purged"], purged["refused"]) == (2, 0)
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


def test_a_redrive_whose_filter_matches_nothing_says_so(workspace):
    workspace.die()
    result = workspace.run("dead", "redrive", "--reason", "quota")
    assert "no dead letter matches, so nothing will be sent" in result.stderr
    assert count(workspace) == 1


def test_deaths_are_counted_by_error_class_fingerprint_and_tenant(workspace):
    workspace.die(2)
    workspace.die(failure=CRASH)
    workspace.die(tenant="acme")
    fingerprint = workspace.lines("dead", "groups", "--reason", "crash")[0]["fingerprint"]

    def count(*options):
        return sum(row["deaths"] for row in workspace.lines("dead", "stats", *options))

    assert count("--error", "shop.Refused") == 3
    assert count("--fingerprint", fingerprint[:8]) == 1
    assert count("--tenant", "acme") == 1
    assert count("--tenant", "acme", "--fingerprint", fingerprint) == 0
    assert "no group" in workspace.run("dead", "stats", "--fingerprint", "ffff", code=2).stderr


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
