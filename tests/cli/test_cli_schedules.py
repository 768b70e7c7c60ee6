"""`tidegate schedules`: show, add, edit, pause, resume, run, preview and remove."""

from __future__ import annotations

import json

import pytest
from cli_support import Workspace


def add(workspace: Workspace, *words: str) -> None:
    workspace.run("schedules", "add", "greet", "0 7 * * 1-5", "Ada", "--app", workspace.app, *words)


def test_a_schedule_is_added_listed_and_shown(workspace: Workspace) -> None:
    add(workspace, "--name", "eu", "--timezone", "Europe/Berlin", "--queue", "reports", "--arg", "times=2")

    listed = workspace.run("schedules", "ls").stdout
    assert "eu" in listed
    assert "0 7 * * 1-5" in listed
    assert "Europe/Berlin" in listed
    shown = workspace.run("schedules", "show", "eu").stdout
    assert "Monday through Friday" in shown
    assert "declared by  a person" in shown
    row = json.loads(workspace.run("schedules", "show", "eu", "--json").stdout)
    assert (row["function"], row["queue"], row["args"]) == (
        workspace.greet,
        "reports",
        {"a": [], "k": {"name": "Ada", "times": 2}},
    )
    (line,) = workspace.run("schedules", "ls", "--json").stdout.splitlines()
    assert json.loads(line)["next_at"] == row["next_at"]


def test_an_empty_list_says_how_a_schedule_comes_about(workspace: Workspace) -> None:
    workspace.add()
    assert "schedules add" in workspace.run("schedules", "ls").stderr


def test_a_schedule_is_changed_and_what_is_not_given_stays(workspace: Workspace) -> None:
    add(workspace, "--name", "eu", "--timezone", "Europe/Berlin", "--label", "team=a")

    message = workspace.run("schedules", "edit", "eu", "--when", "@daily", "--not-later-than", "30m").stderr
    assert "eu: changed; the next tick is at" in message

    row = json.loads(workspace.run("schedules", "show", "eu", "--json").stdout)
    assert (row["when"], row["timezone"]) == ("0 0 * * *", "Europe/Berlin")
    assert (row["not_later_than_seconds"], row["args"]) == (1800.0, {"a": [], "k": {"name": "Ada"}})
    workspace.run("schedules", "edit", "eu", "--not-later-than", "none", "--when", "every 90m")
    workspace.run("schedules", "edit", "eu", "--app", workspace.app, "--arg", "name=Eve")
    row = json.loads(workspace.run("schedules", "show", "eu", "--json").stdout)
    assert (row["when"], row["timezone"]) == ("every 90m", "UTC")
    assert (row["not_later_than_seconds"], row["args"]["k"]) == (None, {"name": "Eve"})


def test_a_schedule_is_paused_resumed_run_and_removed(workspace: Workspace) -> None:
    add(workspace, "--name", "eu")

    assert "eu: paused" in workspace.run("schedules", "pause", "eu").stderr
    assert "paused" in workspace.run("schedules", "ls").stdout
    task_id = workspace.run("schedules", "run", "eu").stdout.strip()
    (row,) = workspace.ask(lambda store: store.read_tasks([task_id])).values()
    assert (row.function, row.labels["tidegate.schedule"]) == (workspace.greet, "eu")
    assert "by hand" in workspace.run("schedules", "show", "eu").stdout
    assert "the next tick is at" in workspace.run("schedules", "resume", "eu").stderr
    workspace.run("schedules", "rm", "eu")
    assert "TG112" in workspace.run("schedules", "show", "eu", code=3).stderr
    entries = workspace.ask(lambda store: store.list_audit_entries())
    assert [entry.action.removeprefix("schedule ") for entry in reversed(entries)] == [
        "added",
        "paused",
        "run",
        "resumed",
        "removed",
    ]
    assert {(entry.target, entry.actor.endswith("(command line)")) for entry in entries} == {("eu", True)}


def test_a_preview_shows_utc_the_local_time_and_changes_of_the_clocks(workspace: Workspace) -> None:
    add(workspace, "--name", "eu", "--timezone", "Europe/Berlin")
    assert len(workspace.run("schedules", "preview", "eu").stdout.splitlines()) == 5

    rule = ("schedules", "preview", "30 2 * * *", "--timezone", "Europe/Berlin", "--count", "370")
    lines = workspace.run(*rule).stdout.splitlines()
    assert any("does not exist on this date" in line for line in lines)
    assert any("comes twice" in line for line in lines)
    first = json.loads(workspace.run(*rule, "--json").stdout.splitlines()[0])
    assert first["local"].endswith((":30:00+01:00", ":30:00+02:00"))


def test_a_preview_of_an_interval_needs_no_database(workspace: Workspace) -> None:
    assert len(workspace.run("schedules", "preview", "every 30s").stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("add", "greet", "61 * * * *", "Ada"), 2, "the minute is wrong"),
        (("add", "greet", "0 0 30 2 *", "Ada"), 2, "a date that exists"),
        (("add", "greet", "", "Ada"), 2, "0 7 * * 1-5"),
        (("add", "greet", "@daily"), 2, "missing name"),
        (("add", "greet", "@daily", "Ada", "--timezone", "Mars/Base"), 2, "Europe/Berlin"),
        (("add", "greet", "@daily", "Ada", "--overlap", "no"), 2, "skip, queue, allow"),
        (("add", "greet", "@daily", "Ada", "--catch-up", "all", "--overlap", "skip"), 2, "queue"),
        (("add", "nope", "@daily"), 3, "nope"),
        (("add", "greet", "every 0.5s", "Ada"), 2, "whole seconds"),
        (("preview", "61 * * * *"), 2, "the minute is wrong"),
    ],
)
def test_wrong_input_is_refused_with_what_is_wrong(
    workspace: Workspace, words: tuple[str, ...], code: int, says: str
) -> None:
    named = ("--app", workspace.app) if words[0] == "add" else ()
    assert says in workspace.run("schedules", *words, *named, code=code).stderr


def test_an_unknown_schedule_and_a_taken_name_have_exit_codes_of_their_own(workspace: Workspace) -> None:
    add(workspace, "--name", "eu")
    for verb in ("show", "pause", "resume", "run", "rm", "edit", "preview"):
        assert "stored here: eu" in workspace.run("schedules", verb, "us", code=3).stderr
    add(workspace, "--name", "eu")
    words = ("schedules", "add", "greet", "@daily", "Ada", "--name", "eu", "--app", workspace.app)
    assert "another schedule" in workspace.run(*words, code=4).stderr
