"""`tidegate failures unknown`, and the states that `tidegate dead resolve`, `mute` and `reopen` give groups."""

from __future__ import annotations

import pytest
from test_cli_dead import CRASH

from tidegate.domain.failure import Failure, Reason, Verdict
from tidegate.domain.fingerprint import fingerprint_of

ODD = Failure(Verdict.UNKNOWN, Reason.UNKNOWN, "odd thing 7", "shop.Odd")
PRINT = fingerprint_of(CRASH).id


def states(workspace):
    return {group["fingerprint"]: group["state"] for group in workspace.lines("dead", "groups")}


def test_a_group_is_resolved_muted_and_reopened(workspace):
    workspace.die(failure=CRASH)

    resolved = workspace.run("dead", "resolve", PRINT[:6], "--note", "key renewed")
    assert f"{PRINT}: resolved" in resolved.stderr
    (group,) = workspace.lines("dead", "groups", "--state", "resolved")
    assert (group["state"], group["note"], group["is_reopened"]) == ("resolved", "key renewed", False)
    assert "(command line)" in group["marked_by"]

    workspace.die(failure=CRASH)
    shown = workspace.run("dead", "groups").stdout.splitlines()
    assert shown[0].split()[:3] == ["DEATHS", "STATE", "FINGERPRINT"]
    assert shown[1].split()[:3] == ["2", "reopened", PRINT[:8]]

    workspace.run("dead", "mute", PRINT, "--for", "2h")
    assert states(workspace) == {PRINT: "muted"}
    workspace.run("dead", "reopen", PRINT)
    assert states(workspace) == {PRINT: "open"}
    assert "it was open" in workspace.run("dead", "reopen", PRINT).stderr


@pytest.mark.parametrize("command", ["resolve", "mute", "reopen"])
def test_a_group_that_does_not_exist_cannot_be_marked(workspace, command):
    workspace.die()

    assert "belongs to no group of failures" in workspace.run("dead", command, "0" * 16, code=2).stderr


def test_failures_without_a_rule_are_listed_with_the_rule_to_add_until_they_are_reviewed(workspace):
    workspace.die(2, failure=ODD)
    workspace.die(failure=CRASH)

    shown = workspace.run("failures", "unknown").stdout.splitlines()
    (row,) = workspace.lines("failures", "unknown")

    assert len(shown) == 2
    assert "retry=[discard(Odd)]  # from shop import Odd" in shown[1]
    assert (row["attempts"], row["tasks"], row["succeeded"], row["sample"]) == (2, 2, 0, "odd thing 7")
    reviewed = workspace.run("failures", "unknown", "--reviewed", row["fingerprint"][:8], "--note", "known")
    assert f"{row['fingerprint']}: reviewed" in reviewed.stderr
    assert "no failure without a rule" in workspace.run("failures", "unknown").stderr
    (again,) = workspace.lines("failures", "unknown", "--all")
    assert again["note"] == "known"
    assert "(reviewed)" in workspace.run("failures", "unknown", "--all").stdout


def test_an_empty_database_has_no_failures(workspace):
    assert "no failure without a rule" in workspace.run("failures", "unknown").stderr
    assert "belongs to no group" in workspace.run("failures", "unknown", "--reviewed", "0123", code=2).stderr


def test_the_summary_of_a_day_is_printed_and_written_as_json(workspace):
    workspace.die(2, failure=CRASH)

    shown = workspace.run("dead", "summary").stdout.splitlines()
    found = workspace.json("dead", "summary")

    assert shown[0] == "2 deaths in 24 h, 0 the day before"
    assert shown[1] == "by reason: crash 2 (before: 0)"
    assert shown[-1].startswith(f"1 group unresolved: {PRINT[:8]} no exception (2)")
    assert (found["deaths"], found["new"][0]["fingerprint"]) == (2, PRINT)


def test_the_summary_of_an_empty_database_has_no_deaths(workspace):
    assert workspace.run("dead", "summary").stdout == "0 deaths in 24 h, 0 the day before\n"
