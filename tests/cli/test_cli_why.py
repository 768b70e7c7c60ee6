"""`tidegate why`: when a queue will be empty, what decides it, and which tasks wait for what."""

from __future__ import annotations

from cli_support import succeeded

from tidegate.domain.spec import Window
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits


def test_a_paced_queue_names_its_limit_with_numbers_and_tasks_that_wait_for_it(workspace):
    limits = Limits((Window("requests_per_minute", 6, 60.0),))
    declared = [LimitDeclaration(GateKind.UPSTREAM, "openai", limits)]
    workspace.ask(lambda store: store.declare_limits(declared))
    workspace.work(succeeded)
    ids = workspace.add(30, upstream="openai")
    workspace.declare(workspace.greet)

    output = workspace.run("why", "default").stdout.splitlines()

    assert output[0].startswith("30 tasks waiting: 1 ready, 29 paced, 0 blocked; 0 running")
    assert output[1].startswith("drains in ")
    assert output[1].endswith("upstream openai lets 6 per minute start")
    assert output[2].startswith("29 tasks paced: upstream openai: limit: requests_per_minute, 6 in 1 min")
    assert [line.split()[0] in ids for line in output[3:]] == [True] * 3

    found = workspace.json("why", "default")
    assert (found["drain"]["kind"], found["drain"]["constraint"]) == ("seconds", "requests")
    assert {example["task_id"] for example in found["examples"]} <= set(ids)


def test_a_queue_that_nothing_serves_is_blocked_and_says_what_to_start(workspace):
    workspace.add(2)

    output = workspace.run("why", "default").stdout

    assert "drain blocked: 2 tasks blocked: workers: nothing serves the queue default" in output
    assert "start one: tidegate worker MODULE:APP" in output
    assert workspace.json("status")["queues"][0]["drain"]["kind"] == "blocked"


def test_an_unknown_queue_is_not_found(workspace):
    message = workspace.run("why", "defualt", code=3).stderr
    assert "no task is or was lately in a queue of this name: check the spelling" in message
