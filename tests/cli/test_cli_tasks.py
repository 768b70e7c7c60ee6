"""`tidegate tasks`: list, show, cancel, retry, priority."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cli_support import dead, retrying, succeeded

from tidegate.cli import table, views
from tidegate.domain.calls import CallsMade
from tidegate.domain.outcome import Succeeded
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals

NOBODY = "00000000-0000-7000-8000-000000000000"


def state_of(place, task_id):
    return place.ask(lambda store: store.read([task_id]))[task_id].state


def test_tasks_are_listed_newest_first_as_a_table(place):
    old, new = *place.add(), *place.add(queue="other", delay_seconds=600)

    lines = place.run("tasks", "ls").stdout.splitlines()

    assert lines[0].split() == ["ID", "STATE", "FUNCTION", "QUEUE", "RUN", "ENQUEUED", "NOTE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        [new, "scheduled", place.greet, "other"],
        [old, "ready", place.greet, "default"],
    ]
    assert "due in 10 min" in lines[1]


def test_a_json_list_is_an_object_a_line_without_payloads(place):
    ids = place.add(3, tenant="acme", labels={"batch": "7"})

    rows = place.lines("tasks", "ls")

    assert [row["task_id"] for row in rows] == ids[::-1]
    assert rows[0]["state"] == "ready"
    assert rows[0]["priority"] == "normal"
    assert rows[0]["labels"] == {"batch": "7"}
    assert "Ada" not in str(rows)


def test_a_list_is_continued_after_an_id(place):
    ids = place.add(5)

    first = place.run("tasks", "ls", "--limit", "2", "--json")
    second = place.lines("tasks", "ls", "--limit", "2", "--after", ids[3])

    assert f"--after {ids[3]}" in first.stderr
    assert [row["task_id"] for row in second] == [ids[2], ids[1]]


@pytest.mark.parametrize(
    "filters",
    [
        ("--queue", "vip"),
        ("--function", "other:function"),
        ("--tenant", "acme"),
        ("--label", "batch=7"),
        ("--state", "scheduled"),
        ("--queue", "vip", "--tenant", "acme", "--state", "ready", "--state", "scheduled"),
    ],
)
def test_filters_choose_tasks(place, filters):
    place.add(2)
    (wanted,) = place.add(
        queue="vip", function="other:function", tenant="acme", labels={"batch": "7"}, delay_seconds=60
    )

    assert [row["task_id"] for row in place.lines("tasks", "ls", *filters)] == [wanted]


def test_an_empty_list_says_so_on_stderr_only(place):
    result = place.run("tasks", "ls")

    assert (result.stdout, result.stderr) == ("", "no task matches\n")


def test_a_shown_task_has_its_history_but_not_its_arguments(place):
    (task_id,) = place.add(tenant="acme")
    place.work(retrying)

    text = place.run("tasks", "show", task_id).stdout
    shown = place.json("tasks", "show", task_id)

    assert "retrying" in text
    assert "backoff 600 s after attempt 1 of 3" in text
    assert "shop.Busy: try later" in text
    assert "│ Traceback…" in text
    assert "Ada" not in text
    assert (shown["task_id"], shown["state"], shown["tenant"], shown["run"]) == (
        task_id,
        "retrying",
        "acme",
        1,
    )
    assert shown["counters"]["attempts"] == 1
    assert shown["history"][-1]["outcome"] == "retrying"
    assert shown["history"][-1]["error_class"] == "shop.Busy"
    assert "args" not in shown


def test_a_shown_task_has_what_its_calls_consumed(place):
    [task_id] = place.add()
    used = UsageTotals(2, 12_100, 8_000, 500, 950, 600)
    place.work(lambda task: replace(succeeded(task), calls=CallsMade(count=2, used=used)))

    text = place.run("tasks", "show", task_id).stdout
    shown = place.json("tasks", "show", task_id)

    assert (
        "12,100 tokens (8,000 cached, 500 written to a cache) in, 950 tokens (600 reasoning) out, 2 calls"
        in text
    )
    assert shown["usage"] == {
        "calls": 2, "input_tokens": 12_100, "cached_tokens": 8_000, "cache_write_tokens": 500,
        "output_tokens": 950, "reasoning_tokens": 600,
    }  # fmt: skip
    assert place.lines("tasks", "ls")[0]["usage"] == shown["usage"]


def test_a_task_without_stated_usage_shows_no_line_of_it(place):
    [task_id] = place.add()
    place.work(succeeded)
    assert "usage" not in place.run("tasks", "show", task_id).stdout
    assert place.json("tasks", "show", task_id)["usage"] is None


def test_arguments_and_result_are_shown_on_demand_with_every_digit(place):
    payload = b'{"a":[],"k":{"id":9007199254740993,"big":1180591620717411303424}}'
    (task_id,) = place.add(args=payload)
    place.work(succeeded)

    text = place.run("tasks", "show", task_id, "--args").stdout
    shown = place.json("tasks", "show", task_id, "--args")

    assert "9007199254740993" in text
    assert "1180591620717411303424" in text
    assert shown["args"]["k"] == {"id": "9007199254740993", "big": "1180591620717411303424"}
    assert shown["result"] == "hello Ada"


def test_a_message_cannot_steer_the_terminal(place):
    from tidegate.domain.failure import Failure, Reason, Verdict

    evil = Failure(
        Verdict.PERMANENT, Reason.UNKNOWN, "\x1b[2J\x1b]0;owned\x07 caf\u00e9", "E", traceback="a\x1bb"
    )
    (task_id,) = place.add()
    place.work(lambda task: dead(task, evil))

    for args in (("tasks", "ls"), ("tasks", "show", task_id), ("dead", "ls"), ("dead", "show", task_id)):
        text = place.run(*args).stdout
        assert "\x1b" not in text
        assert r"\x1b[2J" in text
        assert "café" in text


def test_a_task_that_is_not_there_is_not_found(place):
    assert "TG121" in place.run("tasks", "show", NOBODY, code=3).stderr
    assert place.lines("tasks", "cancel", NOBODY, code=3) == [{"task_id": NOBODY, "answer": "unknown"}]
    assert place.lines("tasks", "retry", NOBODY, code=3) == [{"task_id": NOBODY, "answer": "unknown"}]
    assert place.lines("tasks", "priority", NOBODY, "bulk", code=3) == [
        {"task_id": NOBODY, "answer": "unknown"}
    ]


def test_a_text_that_is_no_id_is_wrong_usage(place):
    assert "no task id" in place.run("tasks", "show", "seven", code=2).stderr


def test_an_id_may_be_written_without_hyphens(place):
    (task_id,) = place.add()

    assert place.json("tasks", "show", task_id.replace("-", "").upper())["task_id"] == task_id


def test_cancel_answers_per_id_what_happened(place):
    (running,) = place.add()
    place.work(lambda task: None)
    (waiting,) = place.add()

    assert place.lines("tasks", "cancel", running, waiting, "--why", "by mistake") == [
        {"task_id": running, "answer": "asked"},
        {"task_id": waiting, "answer": "cancelled"},
    ]
    assert state_of(place, waiting) is State.CANCELLED
    again = place.run("tasks", "cancel", waiting, code=4)
    assert again.stdout == f"{waiting}  finished\n"


def test_retry_makes_waiting_tasks_due_and_redrives_dead_ones(place):
    (buried,) = place.die()
    (retried,) = place.add()
    place.work(retrying)
    (later,) = place.add(delay_seconds=600)
    place.declare(place.greet)

    answers = place.lines("tasks", "retry", retried, later, buried)

    assert [answer["answer"] for answer in answers] == ["done"] * 3
    assert {state_of(place, task_id) for task_id in (retried, later, buried)} == {State.READY}


def test_retry_refuses_what_is_ready_running_or_succeeded(place):
    (done,) = place.add()
    place.work(succeeded)
    (ready,) = place.add()

    answers = place.lines("tasks", "retry", ready, done, code=4)

    assert [answer["answer"] for answer in answers] == ["refused", "refused"]


def test_retry_of_a_dead_task_nobody_declares_is_refused_and_names_the_function(place):
    (task_id,) = place.die(function="gone:function")

    result = place.run("tasks", "retry", task_id, code=4)

    assert "gone:function" in result.stderr
    assert state_of(place, task_id) is State.DEAD


def test_priority_changes_waiting_tasks(place):
    first, second = place.add(2)

    assert place.lines("tasks", "priority", first, second, "interactive")[1] == {
        "task_id": second,
        "answer": "done",
    }
    assert place.ask(lambda store: store.read([first]))[first].priority is Priority.INTERACTIVE


@pytest.mark.parametrize("verb", [("cancel",), ("retry",), ("priority", "bulk")])
def test_a_dry_run_tells_and_does_nothing(place, verb):
    (task_id,) = place.add(delay_seconds=600)
    before = place.json("tasks", "show", task_id)

    result = place.run("tasks", verb[0], task_id, *verb[1:], "--dry-run")
    (told,) = place.lines("tasks", verb[0], task_id, *verb[1:], "--dry-run")

    assert result.stdout == f"{task_id}  scheduled\n"
    assert "1 of 1; nothing was done" in result.stderr
    assert told == {"task_id": task_id, "state": "scheduled", "would": True}
    assert place.json("tasks", "show", task_id) == before


def test_a_short_id_is_taken_wherever_an_id_is(place):
    (waiting,) = place.add(delay_seconds=600)
    short = waiting[:18]

    assert place.json("tasks", "show", short)["task_id"] == waiting
    assert place.json("tasks", "why", short)["task_id"] == waiting
    assert place.lines("tasks", "priority", short, "bulk") == [{"task_id": waiting, "answer": "done"}]
    assert place.lines("tasks", "retry", short.upper()) == [{"task_id": waiting, "answer": "done"}]
    assert place.lines("tasks", "cancel", short) == [{"task_id": waiting, "answer": "cancelled"}]
    assert place.lines("tasks", "ls", "--after", short) == []


def test_a_short_id_of_dead_letters_is_taken_too(place):
    (buried,) = place.die()
    place.declare(place.greet)

    assert place.json("dead", "show", buried[:18])["task_id"] == buried
    assert place.lines("dead", "redrive", buried[:18]) == [{"task_id": buried, "answer": "done"}]


def test_a_short_id_of_several_tasks_or_of_none_is_refused_with_what_to_do(place):
    ids = place.add(2)
    several = place.run("tasks", "show", ids[0][:6], code=2).stderr
    assert all(task_id in several for task_id in ids)
    assert "give more of its digits" in several
    assert (
        "no task has an id that begins with ffff0000" in place.run("tasks", "why", "ffff0000", code=3).stderr
    )
    assert "4 or more of its first digits" in place.run("tasks", "show", "019", code=2).stderr


def test_the_beginning_of_a_result_is_shown_without_being_asked_for(place):
    (task_id,) = place.add()
    place.work(lambda task: Succeeded(task.fence, json.dumps("x" * 500).encode(), "json/1"))

    shown = place.run("tasks", "show", task_id).stdout
    assert f'result  "{"x" * 199}… (502 characters; --args shows all)' in shown
    assert "args" not in shown.replace("--args", "")
    assert "x" * 500 in place.run("tasks", "show", task_id, "--args").stdout
    assert "result" not in place.json("tasks", "show", task_id)


def test_a_list_fits_a_terminal_of_80_columns_with_ids_that_can_be_told_apart(place, monkeypatch):
    ids = place.add(5, queue="a-queue-with-quite-a-long-name")
    monkeypatch.setattr(views, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(table, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "80")

    head, *rows = place.run("tasks", "ls").stdout.splitlines()

    assert max(map(len, [head, *rows])) <= 80
    shown = [row.split()[0] for row in rows]
    assert len(set(shown)) == 5
    assert [place.json("tasks", "show", short)["task_id"] for short in shown] == ids[::-1]


def test_an_error_under_json_is_json_on_stderr(place):
    missing = json.loads(place.run("tasks", "show", NOBODY, "--json", code=3).stderr)["error"]
    assert (missing["code"], missing["exit_code"]) == ("TG121", 3)
    assert "no task has the id" in missing["message"]
    wrong = json.loads(place.run("tasks", "ls", "--limit", "0", "--json", code=2).stderr)["error"]
    assert (wrong["code"], wrong["exit_code"]) == ("usage", 2)
    assert wrong["fix"] == "see `tidegate tasks ls --help`"
