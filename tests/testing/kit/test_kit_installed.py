"""A separate project with nothing but the built wheel tests its own tasks: sync, async, unittest, Django, xdist."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "tests" / "apps" / "tested_project"
TESTS = 15
LONGEST_SLEEP = 0.05

SLEEP_COUNTER = """
import json, os, selectors, time
from pathlib import Path

longest, is_testing = 0.0, False
real_sleep, real_select = time.sleep, selectors.DefaultSelector.select

def note(seconds):
    global longest
    if is_testing:
        longest = max(longest, seconds)

def sleep(seconds):
    note(seconds)
    real_sleep(seconds)

def select(self, timeout=None):
    events = real_select(self, timeout)
    if timeout and not events:  # it waited for its whole time
        note(timeout)
    return events

time.sleep, selectors.DefaultSelector.select = sleep, select

def pytest_runtest_setup(item):
    global is_testing
    is_testing = True

def pytest_runtest_teardown(item):
    global is_testing
    is_testing = False

def pytest_sessionfinish(session):
    Path(os.environ["SLEPT"], f"{os.getpid()}.json").write_text(json.dumps(longest))
"""
"""A plugin that writes the longest real sleep of the tests: of a thread, or of an event loop that nothing woke."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the built wheel, installed alone."""
    place = tmp_path_factory.mktemp("wheel")
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")], ROOT)
    (wheel,) = (place / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    _run([*pip, "--target", str(place / "site"), str(wheel)], ROOT)
    return place / "site"


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_separate_project_tests_its_tasks_in_two_processes_without_a_real_sleep(
    installed: Path, tmp_path: Path
) -> None:
    project = shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "sleep_counter.py").write_text(SLEEP_COUNTER)
    slept = tmp_path / "slept"
    slept.mkdir()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "-p",
        "sleep_counter",
        f"--junitxml={tmp_path}/all.xml",
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (installed, tmp_path / "plugins"))),
        "SLEPT": str(slept),
    }
    output = _run(command, project, environment)
    assert f"{TESTS} passed" in output, output
    counts = [json.loads(path.read_text()) for path in slept.glob("*.json")]
    assert len(counts) == 3, "two test processes and the one that starts them"
    assert max(counts) <= LONGEST_SLEEP


@pytest.mark.timeout(120)
def test_the_plugin_costs_a_project_without_its_fixture_next_to_nothing(
    installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n"
        "def test_nothing():\n"
        "    loaded = [name for name in sys.modules if name.partition('.')[0] in ('tidegate', 'apsw', 'msgspec')]\n"
        "    assert sorted(loaded) == ['tidegate', 'tidegate._version', 'tidegate.testing', 'tidegate.testing.pytest_plugin']\n"
    )
    output = _run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", "-p", "no:schemathesis"],
        tmp_path,
        os.environ | {"PYTHONPATH": str(installed)},
    )
    assert "1 passed" in output, output


@pytest.mark.timeout(120)
def test_a_project_that_names_no_application_gets_the_fix(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_unset.py").write_text("def test_unset(tidegate_kit): pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert 'write tidegate_app = "shop.tasks:app"' in done.stdout


def _run(command: list[str], directory: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
