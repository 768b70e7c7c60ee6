"""The page on deploying: its unit, image and manifests name what exists, and the image's commands work."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from known_commands import require_known
from pages import ROOT, blocks, prose

from tidegate.cli.web import DEFAULT_PORT
from tidegate.worker.settings import Timings, drain_grace

yaml: Any = importlib.import_module("yaml")
PAGE = ROOT / "docs" / "how-to" / "deploy.md"
APP = """
from tidegate import Tidegate
app = Tidegate()

@app.task
async def work() -> None: ...
"""
STOP_SECONDS = drain_grace(Timings(), [86_400.0])
"""How long a worker with long tasks takes to drain after SIGTERM."""
TIDEGATE = [sys.executable, "-m", "tidegate.cli"]


def _manifests() -> list[Any]:
    return [yaml.safe_load(block.text) for block in blocks(PAGE, "yaml")]


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping of a manifest."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _parts(part)


def _instructions() -> dict[str, str]:
    """Return the instructions of the Dockerfile by name; of several with one name, the last."""
    (dockerfile,) = blocks(PAGE, "dockerfile")
    return dict(line.split(" ", 1) for line in dockerfile.text.splitlines())


def _image_command(instruction: str) -> list[str]:
    """Return the words after `tidegate` of a command in the Dockerfile."""
    (words,) = re.findall(r"\[.+\]", _instructions()[instruction])
    program, *rest = json.loads(words)
    assert program == "tidegate"
    return [str(word) for word in rest]


@pytest.fixture
def project(tmp_path: Path) -> dict[str, str]:
    """An application in an empty directory; returns its environment, without a home as in the image."""
    (tmp_path / "app.py").write_text(APP)
    settings = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    return settings | {
        "HOME": "/nonexistent",
        "PYTHONPATH": str(tmp_path),
        "TIDEGATE_DATABASE_URL": f"sqlite:///{tmp_path}/queue.db",
        "TIDEGATE_RUN": str(tmp_path / "run"),
        "TIDEGATE_SCRATCH": str(tmp_path / "scratch"),
    }


def test_every_command_of_the_manifests_and_the_image_exists() -> None:
    commands = [
        part["command"] for manifest in _manifests() for part in _parts(manifest) if "command" in part
    ]
    assert len(commands) == 5
    for program, *words in commands:
        assert program == "tidegate"
        require_known(words, " ".join(words))
    for instruction in ("CMD", "HEALTHCHECK"):
        require_known(_image_command(instruction), instruction)


def test_the_manifest_of_the_worker_gives_it_time_to_drain() -> None:
    (worker,) = [part for part in _parts(_manifests()) if "terminationGracePeriodSeconds" in part]
    assert worker["terminationGracePeriodSeconds"] >= STOP_SECONDS + 10
    stops = [int(seconds) for seconds in re.findall(r"stop.(?:timeout|grace_period:) (\d+)", prose(PAGE))]
    assert min(stops) >= STOP_SECONDS + 10


def test_the_unit_gives_the_worker_time_to_drain_and_names_its_exit_code() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    (text,) = [block.text for block in blocks(PAGE, "ini")]
    unit.read_string(text)
    service = unit["Service"]
    assert float(service["TimeoutStopSec"]) >= STOP_SECONDS + 10
    assert service["RestartPreventExitStatus"] == "78"
    require_known(service["ExecStart"].split()[1:], service["ExecStart"])


@pytest.mark.timeout(120)
def test_the_image_runs_a_worker_that_its_health_check_finds_and_sigterm_stops(
    project: dict[str, str], tmp_path: Path
) -> None:
    worker = subprocess.Popen(
        [*TIDEGATE, *_image_command("CMD")], env=project, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        check = [*TIDEGATE, *_image_command("HEALTHCHECK")]
        while subprocess.run(check, env=project, cwd=tmp_path, check=False, capture_output=True).returncode:
            assert worker.poll() is None
    finally:
        worker.send_signal(getattr(signal, _instructions()["STOPSIGNAL"]))
        _, log = worker.communicate(timeout=60)
    assert worker.returncode == 0, log


@pytest.mark.timeout(120)
def test_the_probes_of_the_manifest_of_the_api_are_answered_by_the_address_of_the_pod(
    project: dict[str, str], tmp_path: Path
) -> None:
    (container,) = [part for part in _parts(_manifests()) if "httpGet" in part.get("livenessProbe", {})]
    probes = [container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")]
    assert {probe["port"] for probe in probes} == {DEFAULT_PORT}
    subprocess.run(
        [*TIDEGATE, "tokens", "create", "a", "--role", "submitter", "--tenant", "t"],
        env=project,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*TIDEGATE, *container["command"][1:], "--port", str(port)]
    server = subprocess.Popen(
        command, env=project, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    with server, server.stdout:
        try:
            assert any("the API answers at" in line for line in server.stdout)
            for probe in probes:
                url = f"http://127.0.0.1:{port}{probe['path']}"
                answer = httpx2.get(url, headers={"Host": f"10.1.2.3:{port}"}, trust_env=False, timeout=30)
                assert answer.status_code == 200
        finally:
            server.terminate()
