"""`tidegate upstreams`, `budget`, `tasks why`, and what `status` shows of upstreams."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from cli_support import Workspace, retrying

from tidegate.domain.failure import CallFailure, Failure, Reason, Verdict
from tidegate.domain.outcome import Charge, Retrying
from tidegate.domain.spec import Priority, Window
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import ObservedLimit
from tidegate.store.protocol import Store
from tidegate.store.rows import ClaimedTask
from tidegate.store.worker_rows import EMBEDDED_WORKER_NAME, NewWorker

MINUTE = Window("requests_per_minute", 600, 60.0)


@pytest.fixture
def openai(workspace: Workspace) -> str:
    """An upstream that some worker declared, with three tasks before it."""
    workspace.add(3, upstream="openai")
    declared = LimitDeclaration(GateKind.UPSTREAM, "openai", Limits((MINUTE,)))
    workspace.ask(lambda store: store.declare_limits([declared]))
    return "openai"


def parked(task: ClaimedTask) -> Retrying:
    failure = Failure(Verdict.PERMANENT, Reason.AUTH, message="key revoked")
    failure_of_key = CallFailure(Reason.AUTH, needs_person=True, message="key revoked")
    return Retrying(
        task.fence, failure, 60.0, Charge.PARK, 0.0, "waits for openai", call_failure=failure_of_key
    )


def test_ls_reports_that_none_is_known(workspace: Workspace) -> None:
    workspace.add()
    assert "no upstream yet" in workspace.run("upstreams", "ls").stderr


def test_observed_limits_are_listed_with_age_and_description(workspace: Workspace, openai: str) -> None:
    shown = [
        ObservedLimit(HeaderLimit(Dimension.REQUESTS, 500.0, 423.0, 9.24)),
        ObservedLimit(HeaderLimit(Dimension.INPUT_TOKENS, remaining=0.0, reset_seconds=3600.0)),
    ]
    workspace.ask(lambda store: store.report_limits(openai, shown))
    output = workspace.run("upstreams", "show", openai).stdout
    assert "limit 500 in 1 min, 423 left, seen" in output
    assert "its limit of input tokens is used up; opens in" in output
    row = workspace.json("upstreams", "show", openai)
    assert [each["dimension"] for each in row["learned"]] == ["requests", "input_tokens"]
    assert "learned_limits" not in row["gate"]  # they are shown once, as `learned`
    assert (row["blocked"], row["ready"]) == (3, 0)


def test_a_learned_rate_after_429s_is_shown_where_it_is_applied(workspace: Workspace) -> None:
    async def refused(store: Store) -> None:
        for name, limits in {"plain": Limits(), "limited": Limits((MINUTE,)), "plain#key": Limits()}.items():
            await store.declare_limits([LimitDeclaration(GateKind.UPSTREAM, name, limits)])
            await store.report_probe(name, is_good=True, seconds=0.1)
            await store.report_failure(name, CallFailure(Reason.RATE_LIMIT, wait_seconds=0.0))

    workspace.ask(refused)
    words = {row["name"]: row["words"] for row in workspace.lines("upstreams", "ls")}
    assert {name for name in words if "slowed to" in words[name]} == set(words)
    assert "a minute: 429 at " in words["plain"]


def test_a_person_parks_and_opens(workspace: Workspace, openai: str) -> None:
    workspace.run("upstreams", "park", openai, "--for", "10m", "--why", "deploy")
    (row,) = workspace.lines("upstreams", "ls")
    assert (row["blocked"], row["ready"]) == (3, 0)
    assert row["words"] == "parked by a person for 10 min more: deploy"
    status = workspace.json("status")
    assert (status["queues"][0]["blocked"], status["queues"][0]["ready"]) == (3, 0)
    assert status["upstreams"] == [row | {"words": status["upstreams"][0]["words"]}]
    workspace.run("upstreams", "open", openai)
    (row,) = workspace.lines("upstreams", "ls")
    assert (row["blocked"], row["ready"], row["words"]) == (0, 3, "flowing")


def test_status_describes_why_tasks_are_blocked(workspace: Workspace, openai: str) -> None:
    workspace.work(parked, slots=1)
    output = workspace.run("status").stdout
    assert "parked until a person opens it: auth: key revoked" in output
    assert "BLOCKED" in output


def test_limits_are_changed_live_and_lifted(workspace: Workspace, openai: str) -> None:
    workspace.run("upstreams", "set", openai, "requests_per_minute=300", "max_in_flight=7")
    limits = workspace.json("upstreams", "show", openai)["limits"]
    assert (limits["requests_per_minute"], limits["max_in_flight"]) == (300, 7)
    workspace.run("upstreams", "set", openai, "max_in_flight=none")
    assert "max_in_flight" not in workspace.json("upstreams", "show", openai)["limits"]
    assert "gate" in workspace.run("upstreams", "show", openai).stdout


def test_a_manual_limit_is_shown_as_such_until_it_is_reset(workspace: Workspace, openai: str) -> None:
    workspace.run("upstreams", "set", openai, "requests_per_minute=300", "retry_window=2m")
    workspace.run("upstreams", "set", openai, "max_in_flight=none")
    shown = workspace.run("upstreams", "show", openai).stdout
    assert "300 (set by hand)" in shown
    assert "not limited (set by hand)" in shown
    assert "120 (set by hand)" in shown
    declared = LimitDeclaration(GateKind.UPSTREAM, openai, Limits((MINUTE,)))
    workspace.ask(lambda store: store.declare_limits([declared]))
    row = workspace.json("upstreams", "show", openai)
    assert row["limits"]["requests_per_minute"] == 300
    assert row["by_hand"] == ["requests_per_minute", "retry_window", "max_in_flight"]

    reported = workspace.run(
        "upstreams", "set", openai, "requests_per_minute=code", "retry_window=code"
    ).stderr
    assert "as in the code from the next start of a worker" in reported
    workspace.ask(lambda store: store.declare_limits([declared]))
    row = workspace.json("upstreams", "show", openai)
    assert (row["limits"]["requests_per_minute"], row["limits"]["retry_window"]) == (600, 60)
    assert row["by_hand"] == ["max_in_flight"]


@pytest.mark.parametrize(
    "text", ["requests_per_minute=0", "requests_per_minute=-1", "colour=1", "max_in_flight", "slow_start=x"]
)
def test_limits_that_cannot_work_are_refused(workspace: Workspace, openai: str, text: str) -> None:
    assert "TG105" in workspace.run("upstreams", "set", openai, text, code=2).stderr


@pytest.mark.parametrize("words", [["show"], ["set"], ["park"], ["open"], ["probe"]])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(
    workspace: Workspace, openai: str, words: list[str]
) -> None:
    more = ["requests_per_minute=1"] if words == ["set"] else []
    error = workspace.run("upstreams", *words, "opnai", *more, code=3).stderr
    assert "TG111" in error
    assert "known here: openai" in error


def test_budget_shows_used_left_and_held(workspace: Workspace, openai: str) -> None:
    system, own = workspace.lines("budget")
    assert (system["name"], system["amount"], system["used"], system["left"]) == ("", 600, 0, 600)
    assert (own["name"], own["amount"], own["held"]) == ("openai", 120, 0)
    assert 0 <= system["next_at"] - system["used_since_at"] <= 62, "the minute, and a guard for clocks"
    shown = workspace.run("budget").stdout
    assert "(system)" in shown
    assert "LEFT" not in shown, "what the present minute leaves is not what may go now"
    assert "SINCE" in shown


def test_why_names_the_gate(workspace: Workspace, openai: str) -> None:
    (task_id,) = workspace.add(upstream=openai)
    workspace.run("upstreams", "park", openai)
    assert workspace.json("tasks", "why", task_id)["why"][0] == (
        "upstream openai: gate: parked by a person until it is opened"
    )
    assert "gate: parked" in workspace.run("tasks", "why", task_id).stdout


def test_a_retry_that_is_kept_back_shows_when_it_was_planned_and_until_when_it_is_held(
    workspace: Workspace, openai: str
) -> None:
    (task_id,) = workspace.add(upstream=openai)
    workspace.work(lambda task: replace(retrying(task), delay_seconds=0.0))
    planned = workspace.json("tasks", "show", task_id)["due_at"]
    workspace.run("upstreams", "park", openai)
    workspace.ask(lambda store: store.promote())
    shown = workspace.json("tasks", "show", task_id)
    assert (shown["state"], shown["due_at"], shown["held_by"]) == ("retrying", planned, "gate")
    assert shown["held_until_at"] > time.time()
    reason = workspace.json("tasks", "why", task_id)["why"][0]
    assert re.fullmatch(
        r"retry: planned for \S+ s ago, held back by the gate of its upstream for \S+ s more \(.*\)", reason
    )
    facts = workspace.run("tasks", "show", task_id).stdout
    assert re.search(r"^due +20", facts, re.MULTILINE)
    assert re.search(r"^held until +20\S+ \S+ by the gate of its upstream$", facts, re.MULTILINE)
    assert "held, due in" in workspace.run("tasks", "ls").stdout


def test_why_names_the_schedule_the_retry_and_that_nothing_serves_the_queue(workspace: Workspace) -> None:
    (late,) = workspace.add(delay_seconds=3_600.0)
    (ready,) = workspace.add(function="gone:away", queue="lonely", priority=Priority.BULK)
    assert workspace.json("tasks", "why", late)["why"][0].startswith("schedule: due in ")
    nothing = "nothing serves the queue lonely: no live worker; start one: tidegate worker MODULE:APP"
    assert workspace.json("tasks", "why", ready)["why"][0] == nothing
    assert "no application that ran here declares gone:away" in workspace.json("tasks", "why", ready)["why"]


def test_why_does_not_call_a_function_undeclared_that_an_embedded_worker_may_have(
    workspace: Workspace,
) -> None:
    (ready,) = workspace.add(function="gone:away")
    inside = NewWorker("w", EMBEDDED_WORKER_NAME, "default", "here", 1, ("*",), 10, lease_seconds=30.0)
    workspace.ask(lambda store: store.add_worker(inside))
    assert not any("declares" in reason for reason in workspace.json("tasks", "why", ready)["why"])


def test_why_names_the_limit(workspace: Workspace, openai: str) -> None:
    (task_id,) = workspace.add(upstream=openai)
    workspace.run("upstreams", "set", openai, "requests_per_minute=none", "requests_per_day=1")
    workspace.work(lambda task: None, slots=1)
    assert "requests_per_day used up; opens in" in workspace.json("tasks", "why", task_id)["why"][0]


def test_why_of_an_unknown_task_is_not_found(workspace: Workspace) -> None:
    workspace.add()
    workspace.run("tasks", "why", "01935c1e-7d3a-7000-8000-000000000000", code=3)
