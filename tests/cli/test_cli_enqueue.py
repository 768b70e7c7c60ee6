"""`tidegate enqueue`: arguments, options, answers."""

from __future__ import annotations

import json
import time

import pytest
from cli_support import dead, succeeded

from tidegate.cli.error_report import NOT_FOUND
from tidegate.domain.spec import Priority
from tidegate.domain.states import State


@pytest.fixture
def enqueue(workspace):
    """Return a function that enqueues by command and returns the stored row and its arguments."""

    def enqueue(*args):
        task_id = workspace.run("enqueue", "--app", workspace.app, *args).stdout.strip()
        row = workspace.ask(lambda store: store.read_tasks([task_id]))[task_id]
        payload, _ = workspace.ask(lambda store: store.get_payload(task_id))
        return row, json.loads(payload)

    return enqueue


def test_the_id_of_the_stored_task_is_printed(workspace, enqueue):
    row, payload = enqueue("greet", "Ada")

    assert (row.function, row.queue, row.state, row.priority) == (
        workspace.greet,
        "default",
        State.READY,
        Priority.NORMAL,
    )
    assert payload == {"a": [], "k": {"name": "Ada"}}


@pytest.mark.parametrize(
    ("args", "stored"),
    [
        (["greet", "Ada", "3"], {"name": "Ada", "times": 3}),
        (["greet", '"5"'], {"name": "5"}),
        (["greet", "--arg", "name=Ada", "--arg", "times=2"], {"name": "Ada", "times": 2}),
        (["greet", "--arg", "name=a=b"], {"name": "a=b"}),
        (["greet", "--kwargs", '{"name": "Ada"}', "--arg", "times=2"], {"name": "Ada", "times": 2}),
        (["greet", "NaN"], {"name": "NaN"}),
        (["read", '{"title": "x"}'], {"doc": {"title": "x", "pages": 1}}),
        (
            ["read", '{"title": "x", "pages": 2}', "--arg", "at=2026-06-01T12:00:00+02:00"],
            {"doc": {"title": "x", "pages": 2}, "at": "2026-06-01T12:00:00+02:00"},
        ),
        (["big", "1180591620717411303424"], {"number": 2**70}),
    ],
)
def test_arguments_are_read_as_json_or_text_and_by_the_annotations(enqueue, args, stored):
    assert enqueue(*args)[1]["k"] == stored


@pytest.mark.parametrize(
    ("args", "reported"),
    [
        (["greet"], "missing name"),
        (["greet", "Ada", "many"], "times"),
        (["greet", "5"], "name"),
        (["greet", "--arg", "name=a", "--arg", "nope=1"], "unexpected nope"),
        (["greet", "--arg", "name=a", "--arg", "name=b"], "given twice"),
        (["greet", "--kwargs", "[1]"], "must be a JSON object"),
        (["greet", "--kwargs", "{"], "not JSON"),
        (["greet", "--arg", "name"], "write name=value"),
        (["greet", "Ada", "--priority", "urgent"], "interactive, normal, bulk"),
        (["greet", "Ada", "--delay", "soon"], "30s"),
        (["greet", "Ada", "--run-at", "2026-06-01T12:00"], "no time zone"),
        (["greet", "Ada", "--run-at", "noon"], "ISO 8601"),
        (["greet", "Ada", "--delay", "1", "--run-at", "2026-06-01T12:00Z"], "both delay and run_at"),
        (["greet", "Ada", "--timeout", "3"], "needs --wait"),
        (["greet", "Ada", "--unique", "never"], "unique"),
        (["greet", "Ada", "--label", "x"], "write name=value"),
    ],
)
def test_what_cannot_be_stored_is_wrong_usage(workspace, args, reported):
    result = workspace.run("enqueue", "--app", workspace.app, *args, code=2)

    assert reported in result.stderr
    assert result.stdout == ""


def test_an_unknown_function_is_not_found(workspace):
    result = workspace.run("enqueue", "--app", workspace.app, "great", "Ada", code=3)

    assert f"declared: {workspace.module}:big" in result.stderr


def test_options_reach_the_task(enqueue):
    row, _ = enqueue(
        "greet", "Ada", "--queue", "vip", "--priority", "interactive", "--delay", "1h", "--tenant", "acme",
        "--key", "k1", "--label", "batch=7", "--label", "by=me",
    )  # fmt: skip

    assert (row.queue, row.priority, row.tenant, row.key) == ("vip", Priority.INTERACTIVE, "acme", "k1")
    assert row.state is State.SCHEDULED
    assert 3_500 < row.due_at - time.time() <= 3_600
    assert row.labels == {"batch": "7", "by": "me"}


def test_a_moment_with_an_offset_is_the_instant_it_names(enqueue):
    assert enqueue("greet", "Ada", "--run-at", "2199-06-01T12:00+02:00")[0].due_at == 7_239_664_800.0


def test_a_deadline_is_a_time_from_now_or_a_moment(enqueue):
    by_time, _ = enqueue("greet", "Ada", "--deadline", "1h", "--total-timeout", "2h")
    assert by_time.deadline_at == pytest.approx(by_time.enqueued_at + 3_600)
    assert enqueue("greet", "Ada", "--deadline", "2199-06-01T12:00+02:00")[0].deadline_at == 7_239_664_800.0


def test_a_function_keeps_its_own_queue_and_priority(enqueue):
    row, _ = enqueue("read", '{"title": "x"}')

    assert (row.queue, row.priority) == ("docs", Priority.BULK)


def test_the_same_key_names_the_first_task(workspace):
    first = workspace.json("enqueue", "--app", workspace.app, "greet", "Ada", "--key", "k")
    again = workspace.json("enqueue", "--app", workspace.app, "greet", "Ada", "--key", "k")

    assert (first["created"], again["created"]) == (True, False)
    assert first["task_id"] == again["task_id"]


def test_the_same_key_with_other_arguments_is_a_conflict(workspace):
    workspace.run("enqueue", "--app", workspace.app, "greet", "Ada", "--key", "k")

    assert (
        "TG109"
        in workspace.run("enqueue", "--app", workspace.app, "greet", "Bob", "--key", "k", code=4).stderr
    )


def test_the_configured_application_is_taken(workspace):
    assert workspace.run("enqueue", "greet", "Ada", TIDEGATE_APP=workspace.app).stdout.count("-") == 4


def test_another_database_can_be_named(workspace):
    workspace.run("enqueue", "--app", workspace.app, "--database", "sqlite:///other.db", "greet", "Ada")

    assert (workspace.directory / "other.db").exists()
    assert workspace.lines("tasks", "ls") == []
    assert len(workspace.lines("tasks", "ls", "--database", "sqlite:///other.db")) == 1


def end_soon(workspace, outcome_of):
    """End the next task that appears, from a thread that runs beside the command."""
    import threading

    failures = []

    def look_and_end():
        try:
            until = time.monotonic() + 20
            while not workspace.ask(lambda store: store.get_queue_stats()):
                assert time.monotonic() < until
            workspace.work(outcome_of)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=look_and_end)
    thread.start()
    return thread, failures


@pytest.mark.parametrize("as_json", [False, True])
def test_waiting_prints_the_result(workspace, as_json):
    thread, failures = end_soon(workspace, succeeded)
    args = ("enqueue", "--app", workspace.app, "greet", "Ada", "--wait", "--timeout", "20s")
    answer = workspace.json(*args) if as_json else workspace.run(*args).stdout
    thread.join()

    assert failures == []
    if as_json:
        assert (answer["state"], answer["result"]) == ("succeeded", "hello Ada")
    else:
        assert answer == '"hello Ada"\n'


def test_waiting_for_a_task_that_dies_fails_with_the_reason(workspace):
    thread, failures = end_soon(workspace, dead)
    result = workspace.run("enqueue", "--app", workspace.app, "greet", "Ada", "--wait", code=1)
    thread.join()

    assert failures == []
    assert "dead: content_policy: shop.Refused: not allowed" in result.stderr
    assert result.stdout == ""


def test_waiting_gives_up_after_the_timeout_and_the_task_goes_on(workspace):
    result = workspace.run(
        "enqueue", "--app", workspace.app, "greet", "Ada", "--wait", "--timeout", "0.05", code=124
    )

    assert "TG400" in result.stderr
    assert len(workspace.lines("tasks", "ls", "--state", "ready")) == 1


def test_a_negative_number_is_refused_with_the_way_to_give_it(workspace):
    result = workspace.run("enqueue", "--app", workspace.app, "greet", "-1", code=2)

    assert "write -- before the arguments" in result.stderr
    assert "No such option" in workspace.run("enqueue", "greet", "-x", code=2).stderr
    assert workspace.run("enqueue", "--app", workspace.app, "greet", "--", "-1.5", code=2).stderr


def test_on_final_names_the_function_that_gets_the_end_of_the_task(workspace, enqueue):
    row, _ = enqueue("--on-final", "greet", "read", '{"title": "x"}')
    workspace.run("tasks", "cancel", row.id)

    (after,) = [task for task in workspace.lines("tasks", "ls") if task["task_id"] != row.id]
    assert (after["function"], after["state"]) == (workspace.greet, "ready")


def test_on_final_refuses_a_function_that_is_not_declared(workspace):
    wrong = workspace.run(
        "enqueue", "--app", workspace.app, "--on-final", "nothing", "greet", "Ada", code=NOT_FOUND
    )
    assert "no task function is named 'nothing'" in wrong.stderr


def test_the_task_continues_the_trace_in_the_environment(enqueue, monkeypatch):
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    monkeypatch.setenv("TRACEPARENT", traceparent)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    row, _ = enqueue("greet", "Ada")
    assert row.labels == {"tidegate.traceparent": traceparent, "tidegate.tracestate": "vendor=1"}

    monkeypatch.setenv("TRACEPARENT", "garbage")
    row, _ = enqueue("greet", "Ada")
    assert row.labels == {}


def test_a_task_waits_for_the_tasks_of_after(workspace):
    first = workspace.json("enqueue", "greet", "Ada", "--app", workspace.app)["task_id"]
    second = workspace.json("enqueue", "greet", "Alan", "--after", first, "--app", workspace.app)["task_id"]

    assert "waits for other tasks" in workspace.run("tasks", "ls", "--state", "held").stdout
    assert "held until" not in workspace.run("tasks", "show", second).stdout
    assert f"after: task {first} is ready" in workspace.run("tasks", "why", second).stdout
    refused = workspace.run("enqueue", "greet", "x", "--after", "0191", "--app", workspace.app, code=2)
    assert "give handles of tasks, or their full ids" in refused.stderr
    refused = workspace.run("enqueue", "greet", "x", "--on-failure", "run", "--app", workspace.app, code=2)
    assert "on_failure without after" in refused.stderr
