"""The program as a whole: help, exit codes, what is loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tidegate import errors
from tidegate.cli import SHORT_HELPS
from tidegate.cli.error_report import exit_code

HEAVY = (
    "asyncio",
    "apsw",
    "msgspec",
    "tomllib",
    "rich",
    "json",
    "dataclasses",
    "tidegate.app",
    "tidegate.config",
)

LIST_LOADED = """
import sys
from tidegate.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def test_the_help_loads_no_command_and_nothing_heavy():
    ran = subprocess.run(
        [sys.executable, "-c", LIST_LOADED, "--help"], capture_output=True, text=True, check=True
    )

    loaded = set(ran.stderr.split())
    assert "Commands:" in ran.stdout
    assert not loaded & set(HEAVY)
    assert not {name for name in loaded if name.startswith("tidegate.cli.")}


@pytest.mark.parametrize("name", SHORT_HELPS)
def test_every_command_has_a_help(empty, name):
    assert empty.run(name, "--help").stdout.startswith(f"Usage: tidegate {name}")


def test_the_version_is_printed(empty):
    from tidegate import __version__

    assert empty.run("--version").stdout == f"tidegate {__version__}\n"
    assert empty.run("version").stdout == f"tidegate {__version__}\n"
    assert empty.json("version") == {"version": __version__}


@pytest.mark.parametrize(
    "args", [["nonsense"], ["tasks", "nonsense"], ["tasks", "show"], ["tasks", "ls", "--limit", "0"]]
)
def test_wrong_usage_ends_with_2(workspace, args):
    result = workspace.run(*args, code=2)

    assert result.stdout == ""
    assert "Error" in result.stderr


EXIT_CODES = {
    errors.TaskNotFoundError: 3,
    errors.UnknownFunctionError: 3,
    errors.WrongStateError: 4,
    errors.NotAcceptedError: 4,
    errors.KeyConflictError: 4,
    errors.ArgumentsError: 2,
    errors.OptionError: 2,
    errors.StoreUnavailableError: 69,
    errors.StoreBusyError: 75,
    errors.ConfigError: 78,
    errors.SchemaError: 78,
    errors.ResultTimeoutError: 124,
    errors.TaskFailedError: 1,
    errors.TaskCancelledError: 1,
    errors.TidegateError: 1,
}


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_each_error_has_its_exit_code(kind):
    assert exit_code(kind("x")) == EXIT_CODES[kind]


def test_a_wrong_configuration_ends_with_78_and_one_line(workspace):
    (workspace.directory / "tidegate.toml").write_text("[pools.a]\nconcurency = 3")

    result = workspace.run("status", code=78)

    assert result.stdout == ""
    assert "tidegate.toml [pools.a]: concurency = 3" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_reading_commands_do_not_create_a_missing_database(empty):
    for args in (["status"], ["tasks", "ls"], ["dead", "ls"], ["db", "check"]):
        assert "there is no database" in empty.run(*args, code=69).stderr
    assert not empty.database.exists()


def test_a_file_that_is_no_database_is_reported_without_a_traceback(empty):
    other = empty.directory / "notes.txt"
    other.write_text("just some text, long enough to be no database at all" * 20)

    result = empty.run("status", "--database", f"sqlite:///{other}", code=69)

    assert result.stderr.startswith("Error: TG301")


def test_a_password_in_a_database_url_is_not_printed(empty):
    result = empty.run("status", "--database", "sqlite://user:hunter2@host/db", code=78)

    assert "hunter2" not in result.output
    assert "user" in result.stderr


def test_a_module_that_cannot_be_imported_is_reported_with_its_location(empty):
    (empty.directory / "broken_shop.py").write_text("x = 1\nraise RuntimeError('no key')\n")

    result = empty.run("enqueue", "--app", "broken_shop:app", "f", code=78)

    assert "broken_shop cannot be imported" in result.stderr
    assert "RuntimeError: no key" in result.stderr
    assert "broken_shop.py:2" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_that_is_interrupted_ends_with_130(workspace):
    watch = subprocess.Popen(
        [sys.executable, "-m", "tidegate.cli", "status", "--watch", "--json"],
        cwd=workspace.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with watch:
        assert json.loads(watch.stdout.readline())["queues"] == []
        watch.send_signal(signal.SIGINT)
        _, reported = watch.communicate(timeout=20)

    assert watch.returncode == 130
    assert "Traceback" not in reported


def test_a_reader_that_goes_away_causes_no_traceback(workspace):
    workspace.add(200)
    command = f"{sys.executable} -m tidegate.cli tasks ls --limit 200 --json | head -n 1"

    ran = subprocess.run(
        command, shell=True, cwd=workspace.directory, capture_output=True, text=True, timeout=30
    )

    assert json.loads(ran.stdout)["state"] == "ready"
    assert "Traceback" not in ran.stderr


def test_the_script_and_the_module_are_the_same_program(workspace):
    ran = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "tasks", "show", "00000000-0000-7000-8000-000000000000"],
        cwd=workspace.directory,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert ran.returncode == 3
    assert ran.stderr.startswith("Error: TG121")


def test_shell_completion_knows_the_commands(empty):
    words = empty.run(_TIDEGATE_COMPLETE="bash_complete", COMP_WORDS="tidegate dea", COMP_CWORD="1").stdout

    assert words == "plain,dead\n"
