"""Chaos in small: a dozen kills, an outage and a freeze. In full it is `make chaos`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos import processes

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfds"),
    pytest.mark.timeout(180),
]

TESTS = str(Path(__file__).parents[1])


@contextmanager
def chaos(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command with small numbers; all its processes can be found by their TMPDIR."""
    paths = [TESTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", "--workers", "2", "--lease", "0.8", *options],
        env=os.environ | {"TMPDIR": str(directory), "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_a_dozen_kills_an_outage_and_a_freeze_lose_nothing_and_re_run_nothing_without_reason(
    tmp_path: Path, store: str
) -> None:
    figures_path = tmp_path / "figures.json"
    with chaos(tmp_path, "--seconds", "10", "--store", store, "--json", str(figures_path)) as process:
        stdout, stderr = process.communicate(timeout=170)
    assert process.returncode == 0, stderr + stdout
    figures = json.loads(figures_path.read_text())
    assert (figures["ok"], figures["lost"], figures["violations"]) == (True, 0, [])
    assert figures["kills"] >= 12
    assert [(inject["running"] >= 50, inject["run_again"]) for inject in figures["outages_and_freezes"]] == [
        (True, 0)
    ] * 2
    assert processes.carrying("TMPDIR", str(tmp_path)) == []


def test_an_interrupted_run_leaves_no_process_and_no_file_behind(tmp_path: Path) -> None:
    with chaos(tmp_path, "--seconds", "60") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "killed" in line or "stopped" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert processes.carrying("TMPDIR", str(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


def test_options_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with chaos(tmp_path, "--seconds", "1") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--seconds 5 or more" in stderr
