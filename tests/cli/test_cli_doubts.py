"""`tidegate doubts`: list, show and decide calls without a definite answer."""

from __future__ import annotations

import pytest

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Dead
from tidegate.domain.states import State
from tidegate.domain.step import OnDoubt, StepState
from tidegate.store.step_rows import EndStatus, StepBegin, StepEnd

IN_DOUBT = Failure(Verdict.PERMANENT, Reason.IN_DOUBT, "it may have been done", "StepInDoubtError")


def letter(workspace, *steps, failure=IN_DOUBT, **fields):
    """Return the id of a task that died while these steps were open."""
    (task_id,) = workspace.add(1, **fields)
    claimed = []
    workspace.work(lambda task: claimed.append(task.fence))
    (fence,) = claimed

    async def die(store):
        await store.begin_steps([StepBegin(fence, step, 1, step, OnDoubt.ASK, "acme") for step in steps])
        await store.finish([Dead(fence, failure, Charge.ATTEMPT, "permanent")])

    workspace.ask(die)
    return task_id


def state(workspace, task_id):
    return workspace.ask(lambda store: store.read_tasks([task_id]))[task_id].state


def steps(workspace, task_id):
    return {row.name: row for row in workspace.ask(lambda store: store.read_steps(task_id))}


def test_doubts_are_listed_and_shown_with_what_to_ask_the_provider(workspace):
    task_id = letter(workspace, "draw")

    text = workspace.run("doubts", "ls").stdout
    (doubt,) = workspace.lines("doubts", "ls", "--task", task_id[:30], "--upstream", "acme")
    shown = workspace.run("doubts", "show", str(doubt["doubt_id"])).stdout

    assert [line.split()[:4] for line in text.splitlines()] == [
        ["NUMBER", "STATE", "STEP", "TASK"],
        ["1", "open", "draw", task_id],
    ]
    assert (doubt["task_id"], doubt["step"], doubt["state"], doubt["on_doubt"]) == (
        task_id, "draw", "open", "ask",
    )  # fmt: skip
    assert workspace.json("doubts", "show", "1") == doubt
    assert f"idempotency key  {task_id}:step:" in shown
    assert "its run ended without an answer" in shown


def test_the_request_and_the_tokens_that_are_known_are_listed_and_shown(workspace):
    (task_id,) = workspace.add(1)
    claimed = []
    workspace.work(lambda task: claimed.append(task.fence))
    (fence,) = claimed

    async def report(store):
        await store.begin_steps([StepBegin(fence, "draw", 1, "draw", OnDoubt.REPEAT, "acme")])
        used = {"input_tokens": 1_200, "output_tokens": 7}
        await store.end_steps(
            [StepEnd(fence, "draw", 1, EndStatus.IN_DOUBT, cause="reset", request_id="req_1", **used)]
        )

    workspace.ask(report)
    (doubt,) = workspace.lines("doubts", "ls", "--task", task_id)
    assert (doubt["request_id"], doubt["input_tokens"], doubt["output_tokens"]) == ("req_1", 1_200, 7)
    for command in (["ls"], ["show", "1"]):
        text = workspace.run("doubts", *command, COLUMNS="200").stdout
        assert "req_1" in text
        assert "1,200 in, 7 out" in text


def test_other_commands_point_at_open_doubts(workspace):
    task_id = letter(workspace, "draw")
    assert "may have been processed" not in workspace.run("status").stdout
    workspace.run("doubts", "ls")
    assert (
        "1 call may have been processed without an answer: tidegate doubts ls"
        in workspace.run("status").stdout
    )
    assert workspace.json("status")["open_doubts"] == 1
    assert "tidegate_open_doubts 1" in workspace.run("metrics").stdout
    why = workspace.run("tasks", "why", task_id).stdout
    assert (
        f"1 call may have been processed, and a person must decide: tidegate doubts ls --task {task_id}"
        in why
    )


def test_a_task_is_shown_with_its_steps_and_results_only_on_demand(workspace):
    task_id = letter(workspace, "draw", "mail")
    workspace.run("doubts", "ls")
    workspace.run("doubts", "resolve", "1", "--accept", '"private"')

    text = workspace.run("tasks", "show", task_id).stdout
    shown = workspace.json("tasks", "show", task_id)["steps"]
    with_results = workspace.json("tasks", "show", task_id, "--args")["steps"]

    assert [line.split()[:3] for line in text.splitlines() if line.startswith(("STEP", "draw", "mail"))] == [
        ["STEP", "STATE", "RUN"],
        ["draw", "done", "1"],
        ["mail", "open", "1"],
    ]
    assert "private" not in text + str(shown)
    assert [(step["name"], step["state"], step["size"]) for step in shown] == [
        ("draw", "done", 9),
        ("mail", "open", 0),
    ]
    assert [step.get("result") for step in with_results] == ["private", None]
    assert '"private"' in workspace.run("tasks", "show", task_id, "--args").stdout


def test_a_list_without_doubts_says_so(workspace):
    assert "no doubt matches" in workspace.run("doubts", "ls").stderr


def test_a_task_goes_on_when_its_last_doubt_is_decided(workspace):
    task_id = letter(workspace, "draw", "mail")
    workspace.run("doubts", "ls")

    first = workspace.run(
        "doubts", "resolve", "1", "--accept", '{"image": 4}', "--note", "it is in their log"
    )
    assert first.stdout == "1  done\n"
    assert f"task {task_id} waits for 1 more decision: tidegate doubts ls --task {task_id}" in first.stderr
    assert state(workspace, task_id) is State.DEAD

    second = workspace.run("doubts", "resolve", "2", "--repeat")
    assert f"task {task_id} goes on" in second.stderr
    assert state(workspace, task_id) is State.READY

    found = steps(workspace, task_id)
    assert (found["draw"].state, found["draw"].data) == (StepState.DONE, b'{"image":4}')
    assert found["mail"].state is StepState.FAILED
    accepted = workspace.json("doubts", "show", "1")
    assert (accepted["state"], accepted["note"]) == ("accepted", "it is in their log")
    assert accepted["resolved_by"].endswith("(command line)")
    entries = workspace.ask(lambda store: store.list_audit_entries())
    assert [(entry.action, entry.target, entry.answer) for entry in entries] == [
        ("doubt repeated", "doubt 2", "done"),
        ("doubt accepted", "doubt 1", "done"),
    ]


def test_a_filter_decides_all_that_match_and_a_dry_run_counts_them(workspace):
    ours = [letter(workspace, "draw", tenant="acme") for _ in range(3)]
    other = letter(workspace, "draw", tenant="other")

    planned = workspace.run("doubts", "resolve", "--tenant", "acme", "--fail", "--dry-run")
    assert "3 open doubts would be rejected, of 3 tasks; nothing was changed" in planned.stderr
    assert workspace.json("doubts", "resolve", "--tenant", "acme", "--fail", "--dry-run") == {
        "would": "rejected",
        "count": 3,
    }
    assert len(workspace.lines("doubts", "ls")) == 4

    assert len(workspace.run("doubts", "resolve", "--tenant", "acme", "--fail").stdout.splitlines()) == 3
    assert {state(workspace, task_id) for task_id in ours} == {State.READY}
    assert [doubt["task_id"] for doubt in workspace.lines("doubts", "ls")] == [other]
    assert {step.state for step in steps(workspace, ours[0]).values()} == {StepState.REJECTED}
    assert "no open doubt matches" in workspace.run("doubts", "resolve", "--tenant", "acme", "--fail").stderr


def test_the_dry_run_of_a_redrive_by_id_reports_letters_in_doubt_as_the_redrive_does(workspace):
    ids = [letter(workspace, "draw"), letter(workspace, "mail")]

    planned = workspace.run("dead", "redrive", *ids, "--dry-run")
    assert "2 dead letters in doubt would make the redrive fail: --repeat-doubts sends them" in planned.stderr
    assert "would redrive 0 dead letters" in planned.stderr
    assert workspace.json("dead", "redrive", *ids, "--dry-run") == {
        "would": "redrive",
        "count": 0,
        "in_doubt": 2,
    }
    assert workspace.json("dead", "redrive", *ids, "--dry-run", "--repeat-doubts")["count"] == 2
    assert workspace.json("dead", "purge", *ids, "--dry-run")["count"] == 2


def test_decisions_that_came_too_late_and_unknown_numbers_have_their_exit_codes(workspace):
    letter(workspace, "draw")
    workspace.run("doubts", "ls")
    workspace.run("doubts", "resolve", "1", "--repeat")

    assert workspace.run("doubts", "resolve", "1", "--repeat").stdout == "1  done\n"
    refused = workspace.lines("doubts", "resolve", "1", "9", "--fail", code=4)
    assert refused == [{"doubt_id": 9, "answer": "unknown"}, {"doubt_id": 1, "answer": "refused"}]
    workspace.run("doubts", "resolve", "9", "--fail", code=3)
    assert "TG126" in workspace.run("doubts", "show", "9", "--json", code=3).stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["1"], "give one of --repeat, --accept JSON and --fail"),
        (["1", "--repeat", "--fail"], "give one of --repeat, --accept JSON and --fail"),
        (["1", "--accept", "{"], "--accept is not JSON"),
        (["1", "--accept", "NaN"], "--accept is not JSON"),
        (["--repeat"], "it is not clear which doubts are meant"),
        (["1", "--tenant", "acme", "--repeat"], "it is not clear which doubts are meant"),
        (["0", "--repeat"], "0 is not in the range"),
        (["--before", "soon", "--repeat"], "before"),
    ],
)
def test_a_decision_that_is_not_clear_is_refused(words, what, workspace):
    letter(workspace, "draw")
    assert what in workspace.run("doubts", "resolve", *words, code=2).stderr
    assert len(workspace.lines("doubts", "ls")) == 1


def test_a_task_that_died_of_something_else_stays_and_the_command_says_so(workspace):
    failure = Failure(Verdict.TRANSIENT, Reason.TIMEOUT, "too slow", "TimeoutError")
    task_id = letter(workspace, "draw", failure=failure)
    workspace.declare(workspace.greet)

    refused = workspace.run("dead", "redrive", task_id, code=4)
    assert "tidegate doubts ls" in refused.stderr
    workspace.run("doubts", "ls")
    decided = workspace.run("doubts", "resolve", "1", "--repeat")
    assert f"task {task_id} died of something else: tidegate dead redrive {task_id}" in decided.stderr
    workspace.run("dead", "redrive", task_id)
    assert state(workspace, task_id) is State.READY
