"""`tidegate tasks`: list, show, cancel, retry, priority."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from cli_support import dead, retrying, succeeded

from tidegate.cli import rendering, table
from tidegate.codec.result import encode_result
from tidegate.codec.shape import Shape
from tidegate.domain.calls import CallSummary
from tidegate.domain.outcome import Succeeded
from tidegate.domain.spec import Priority
from tidegate.domain.states import State
from tidegate.domain.usage import UsageTotals

NOBODY = "00000000-0000-7000-8000-000000000000"


def state_of(workspace, task_id):
    return workspace.ask(lambda store: store.read_tasks([task_id]))[task_id].state


def test_tasks_are_listed_newest_first_as_a_table(workspace):
    old, new = *workspace.add(), *workspace.add(queue="other", delay_seconds=600)

    lines = workspace.run("tasks", "ls").stdout.splitlines()

    assert lines[0].split() == ["ID", "STATE", "FUNCTION", "QUEUE", "RUN", "ENQUEUED", "NOTE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        [new, "scheduled", workspace.greet, "other"],
        [old, "ready", workspace.greet, "default"],
    ]
    assert "due in 10 min" in lines[1]


def test_a_json_list_is_an_object_a_line_without_payloads(workspace):
    ids = workspace.add(3, tenant="acme", labels={"batch": "7"})

    rows = workspace.lines("tasks", "ls")

    assert [row["task_id"] for row in rows] == ids[::-1]
    assert rows[0]["state"] == "ready"
    assert rows[0]["priority"] == "normal"
    assert rows[0]["labels"] == {"batch": "7"}
    assert "Ada" not in str(rows)


def test_a_list_is_continued_after_an_id(workspace):
    ids = workspace.add(5)

    first = workspace.run("tasks", "ls", "--limit", "2", "--json")
    second = workspace.lines("tasks", "ls", "--limit", "2", "--after", ids[3])

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
def test_filters_choose_tasks(workspace, filters):
    workspace.add(2)
    (wanted,) = workspace.add(
        queue="vip", function="other:function", tenant="acme", labels={"batch": "7"}, delay_seconds=60
    )

    assert [row["task_id"] for row in workspace.lines("tasks", "ls", *filters)] == [wanted]


def test_an_empty_list_is_reported_on_stderr_only(workspace):
    result = workspace.run("tasks", "ls")

    assert (result.stdout, result.stderr) == ("", "no task matches\n")


def test_a_shown_task_has_its_history_but_not_its_arguments(workspace):
    (task_id,) = workspace.add(tenant="acme")
    workspace.work(retrying)

    text = workspace.run("tasks", "show", task_id).stdout
    shown = workspace.json("tasks", "show", task_id)

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


def test_a_shown_task_has_what_its_calls_consumed(workspace):
    [task_id] = workspace.add()
    used = UsageTotals(2, 12_100, 8_000, 500, 950, 600)
    workspace.work(lambda task: succeeded(task)._replace(calls=CallSummary(count=2, used=used)))

    text = workspace.run("tasks", "show", task_id).stdout
    shown = workspace.json("tasks", "show", task_id)

    assert (
        "12,100 tokens (8,000 cached, 500 written to a cache) in, 950 tokens (600 reasoning) out, 2 calls"
        in text
    )
    assert shown["usage"] == {
        "calls": 2, "input_tokens": 12_100, "cached_tokens": 8_000, "cache_write_tokens": 500,
        "output_tokens": 950, "reasoning_tokens": 600,
    }  # fmt: skip
    assert workspace.lines("tasks", "ls")[0]["usage"] == shown["usage"]


def test_a_task_without_stated_usage_shows_no_line_of_it(workspace):
    [task_id] = workspace.add()
    workspace.work(succeeded)
    assert "usage" not in workspace.run("tasks", "show", task_id).stdout
    assert workspace.json("tasks", "show", task_id)["usage"] is None


def test_arguments_and_result_are_shown_on_demand_with_every_digit(workspace):
    payload = b'{"a":[],"k":{"id":9007199254740993,"big":1180591620717411303424}}'
    (task_id,) = workspace.add(args=payload)
    workspace.work(succeeded)

    text = workspace.run("tasks", "show", task_id, "--args").stdout
    shown = workspace.json("tasks", "show", task_id, "--args")

    assert "9007199254740993" in text
    assert "1180591620717411303424" in text
    assert shown["args"]["k"] == {"id": "9007199254740993", "big": "1180591620717411303424"}
    assert shown["result"] == "hello Ada"


def test_a_message_cannot_steer_the_terminal(workspace):
    from tidegate.domain.failure import Failure, Reason, Verdict

    evil = Failure(
        Verdict.PERMANENT, Reason.UNKNOWN, "\x1b[2J\x1b]0;owned\x07 caf\u00e9", "E", traceback="a\x1bb"
    )
    (task_id,) = workspace.add()
    workspace.work(lambda task: dead(task, evil))

    for args in (("tasks", "ls"), ("tasks", "show", task_id), ("dead", "ls"), ("dead", "show", task_id)):
        text = workspace.run(*args).stdout
        assert "\x1b" not in text
        assert r"\x1b[2J" in text
        assert "café" in text


def test_a_missing_task_is_not_found(workspace):
    assert "TG121" in workspace.run("tasks", "show", NOBODY, code=3).stderr
    assert workspace.lines("tasks", "cancel", NOBODY, code=3) == [{"task_id": NOBODY, "answer": "unknown"}]
    assert workspace.lines("tasks", "retry", NOBODY, code=3) == [{"task_id": NOBODY, "answer": "unknown"}]
    assert workspace.lines("tasks", "priority", NOBODY, "bulk", code=3) == [
        {"task_id": NOBODY, "answer": "unknown"}
    ]


def test_a_text_that_is_no_id_is_wrong_usage(workspace):
    assert "is not a task id" in workspace.run("tasks", "show", "seven", code=2).stderr


def test_an_id_may_be_written_without_hyphens(workspace):
    (task_id,) = workspace.add()

    assert workspace.json("tasks", "show", task_id.replace("-", "").upper())["task_id"] == task_id


def test_cancel_answers_per_id_what_happened(workspace):
    (running,) = workspace.add()
    workspace.work(lambda task: None)
    (waiting,) = workspace.add()

    assert workspace.lines("tasks", "cancel", running, waiting, "--why", "by mistake") == [
        {"task_id": running, "answer": "requested"},
        {"task_id": waiting, "answer": "cancelled"},
    ]
    assert state_of(workspace, waiting) is State.CANCELLED
    again = workspace.run("tasks", "cancel", waiting, code=4)
    assert again.stdout == f"{waiting}  finished\n"


def test_retry_makes_waiting_tasks_due_and_redrives_dead_ones(workspace):
    (dead_tasks,) = workspace.die()
    (retried,) = workspace.add()
    workspace.work(retrying)
    (later,) = workspace.add(delay_seconds=600)
    workspace.declare(workspace.greet)

    answers = workspace.lines("tasks", "retry", retried, later, dead_tasks)

    assert [answer["answer"] for answer in answers] == ["done"] * 3
    assert {state_of(workspace, task_id) for task_id in (retried, later, dead_tasks)} == {State.READY}


def test_retry_refuses_what_is_ready_running_or_succeeded(workspace):
    (done,) = workspace.add()
    workspace.work(succeeded)
    (ready,) = workspace.add()

    answers = workspace.lines("tasks", "retry", ready, done, code=4)

    assert [answer["answer"] for answer in answers] == ["refused", "refused"]


def test_retry_of_a_dead_task_nobody_declares_is_refused_and_names_the_function(workspace):
    (task_id,) = workspace.die(function="gone:function")

    result = workspace.run("tasks", "retry", task_id, code=4)

    assert "gone:function" in result.stderr
    assert state_of(workspace, task_id) is State.DEAD


def test_priority_changes_waiting_tasks(workspace):
    first, second = workspace.add(2)

    assert workspace.lines("tasks", "priority", first, second, "interactive")[1] == {
        "task_id": second,
        "answer": "done",
    }
    assert workspace.ask(lambda store: store.read_tasks([first]))[first].priority is Priority.INTERACTIVE


@pytest.mark.parametrize("verb", [("cancel",), ("retry",), ("priority", "bulk")])
def test_a_dry_run_prints_the_plan_and_changes_nothing(workspace, verb):
    (task_id,) = workspace.add(delay_seconds=600)
    before = workspace.json("tasks", "show", task_id)

    result = workspace.run("tasks", verb[0], task_id, *verb[1:], "--dry-run")
    (reported,) = workspace.lines("tasks", verb[0], task_id, *verb[1:], "--dry-run")

    assert result.stdout == f"{task_id}  scheduled\n"
    assert "1 of 1 task; nothing was changed" in result.stderr
    assert reported == {"task_id": task_id, "state": "scheduled", "would": True}
    assert workspace.json("tasks", "show", task_id) == before


def test_a_short_id_is_taken_wherever_an_id_is(workspace):
    (waiting,) = workspace.add(delay_seconds=600)
    short = waiting[:18]

    assert workspace.json("tasks", "show", short)["task_id"] == waiting
    assert workspace.json("tasks", "why", short)["task_id"] == waiting
    assert workspace.lines("tasks", "priority", short, "bulk") == [{"task_id": waiting, "answer": "done"}]
    assert workspace.lines("tasks", "retry", short.upper()) == [{"task_id": waiting, "answer": "done"}]
    assert workspace.lines("tasks", "cancel", short) == [{"task_id": waiting, "answer": "cancelled"}]
    assert workspace.lines("tasks", "ls", "--after", short) == []


def test_a_short_id_of_dead_letters_is_taken_too(workspace):
    (dead_tasks,) = workspace.die()
    workspace.declare(workspace.greet)

    assert workspace.json("dead", "show", dead_tasks[:18])["task_id"] == dead_tasks
    assert workspace.lines("dead", "redrive", dead_tasks[:18]) == [{"task_id": dead_tasks, "answer": "done"}]


def test_a_short_id_of_several_tasks_or_of_none_is_refused_with_what_to_do(workspace):
    ids = workspace.add(2)
    several = workspace.run("tasks", "show", ids[0][:6], code=2).stderr
    assert all(task_id in several for task_id in ids)
    assert "give more of its digits" in several
    assert (
        "no task has an id that begins with ffff0000"
        in workspace.run("tasks", "why", "ffff0000", code=3).stderr
    )
    assert "at least 4 of its first digits" in workspace.run("tasks", "show", "019", code=2).stderr


def test_the_beginning_of_a_result_is_shown_without_args(workspace):
    (task_id,) = workspace.add()
    workspace.work(lambda task: Succeeded(task.fence, json.dumps("x" * 500).encode(), "json/1"))

    shown = workspace.run("tasks", "show", task_id).stdout
    assert f'result  "{"x" * 199}… (502 characters; --args shows it in full)' in shown
    assert "args" not in shown.replace("--args", "")
    assert "x" * 500 in workspace.run("tasks", "show", task_id, "--args").stdout
    assert "result" not in workspace.json("tasks", "show", task_id)


@pytest.mark.parametrize(
    ("value", "shape", "shown"),
    [
        ("text", Shape(int), "text"),  # not what the annotation says
        (datetime(2026, 11, 30, 9, tzinfo=UTC), Shape(datetime), "2026-11-30T09:00:00Z"),
        ((1, 2), Shape(), [1, 2]),
        (2**70, Shape(), str(2**70)),
    ],
)
def test_a_result_is_shown_without_the_tags_of_its_stored_form(workspace, value, shape, shown):
    stored = encode_result(shape, value).data
    (task_id,) = workspace.add()
    workspace.work(lambda task: Succeeded(task.fence, stored, "json/1"))

    assert f"result  {json.dumps(shown)}" in workspace.run("tasks", "show", task_id).stdout
    assert workspace.json("tasks", "show", task_id, "--args")["result"] == shown


def test_a_result_that_could_not_be_stored_is_shown_with_the_reason(workspace):
    stored = encode_result(Shape(), object()).data
    (task_id,) = workspace.add()
    workspace.work(lambda task: Succeeded(task.fence, stored, "json/1"))

    missing = workspace.json("tasks", "show", task_id, "--args")["result"]["unstorable"]
    assert missing["type"] == "object"
    assert missing["reason"]


def test_a_list_fits_80_columns_with_distinct_ids(workspace, monkeypatch):
    ids = workspace.add(5, queue="a-queue-with-quite-a-long-name")
    monkeypatch.setattr(rendering, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(table, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "80")

    head, *rows = workspace.run("tasks", "ls").stdout.splitlines()

    assert max(map(len, [head, *rows])) <= 80
    shown = [row.split()[0] for row in rows]
    assert len(set(shown)) == 5
    assert [workspace.json("tasks", "show", short)["task_id"] for short in shown] == ids[::-1]


def test_an_error_under_json_is_json_on_stderr(workspace):
    missing = json.loads(workspace.run("tasks", "show", NOBODY, "--json", code=3).stderr)["error"]
    assert (missing["code"], missing["exit_code"]) == ("TG121", 3)
    assert "no task has the id" in missing["message"]
    wrong = json.loads(workspace.run("tasks", "ls", "--limit", "0", "--json", code=2).stderr)["error"]
    assert (wrong["code"], wrong["exit_code"]) == ("usage", 2)
    assert wrong["fix"] == "see `tidegate tasks ls --help`"
