"""`tidegate dead export` as lines of JSON, and the filters by fingerprint and time."""

from __future__ import annotations

import json

import pytest
from test_cli_dead import CRASH

from tidegate.domain.fingerprint import fingerprint_of

PRINT = fingerprint_of(CRASH).id


@pytest.fixture
def letters(workspace):
    """A place with two ordinary dead letters and one crash; and the id of the crash."""
    workspace.die(2, args=b'{"a": ["Ada"], "k": {"api_key": "sk-live-51H8xkqXyz0123456789abcd"}}')
    (crash,) = workspace.die(failure=CRASH, queue="vip")
    return workspace, crash


@pytest.mark.parametrize(
    "filters",
    [("--fingerprint", PRINT), ("--fingerprint", PRINT[:6].upper()), ("--queue", "vip", "--since", "1h")],
)
def test_letters_are_found_by_fingerprint_and_time(letters, filters):
    workspace, crash = letters

    (listed,) = workspace.lines("dead", "ls", *filters)
    (exported,) = workspace.lines("dead", "export", *filters)

    assert listed == exported
    assert (listed["task_id"], listed["fingerprint"]) == (crash, PRINT)


def test_until_is_another_word_for_before(letters):
    workspace, _ = letters

    assert workspace.lines("dead", "ls", "--until", "1h") == []
    assert len(workspace.lines("dead", "ls", "--before", "0s")) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zz", "is not a fingerprint"),
        ("abc", "is not a fingerprint"),
        ("0000", "belongs to no group of failures"),
    ],
)
def test_a_fingerprint_that_names_no_group_is_refused(letters, text, problem):
    workspace, _ = letters

    assert problem in workspace.run("dead", "ls", "--fingerprint", text, code=2).stderr


def test_all_letters_are_exported_as_lines_without_their_arguments(letters):
    workspace, crash = letters

    result = workspace.run("dead", "export", "--all")
    lines = [json.loads(line) for line in result.stdout.splitlines()]

    assert lines[0]["task_id"] == crash
    assert len(lines) == 3
    assert "Ada" not in result.stdout
    assert "3 dead letters exported" in result.stderr


def test_arguments_are_exported_on_demand_with_secrets_masked(letters):
    workspace, _ = letters

    masked = workspace.lines("dead", "export", "--all", "--args")[-1]["args"]
    plain = workspace.lines("dead", "export", "--all", "--args", "--unredacted")[-1]["args"]

    assert masked["a"] == ["Ada"]
    assert "sk-live" not in masked["k"]["api_key"]
    assert plain["k"]["api_key"] == "sk-live-51H8xkqXyz0123456789abcd"


def test_an_export_goes_to_a_new_file_only(letters):
    workspace, crash = letters
    file = workspace.directory / "dead.ndjson"

    result = workspace.run("dead", "export", "--reason", "crash", "--out", str(file))

    assert result.stdout == ""
    assert json.loads(file.read_text())["task_id"] == crash
    assert "exists already" in workspace.run("dead", "export", "--all", "--out", str(file), code=4).stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "give filters, --all for every dead letter, or an id with --as-test"),
        (("--all", "--queue", "vip"), "it is not clear which dead letters are meant"),
        (("--as-test",), "--as-test needs the id"),
        (("--all", "--unredacted"), "--unredacted needs --args"),
    ],
)
def test_an_export_of_nothing_in_particular_is_refused(letters, options, problem):
    workspace, _ = letters

    assert problem in workspace.run("dead", "export", *options, code=2).stderr


def test_an_empty_database_exports_nothing(workspace):
    result = workspace.run("dead", "export", "--all")

    assert result.stdout == ""
    assert "0 dead letters exported" in result.stderr
