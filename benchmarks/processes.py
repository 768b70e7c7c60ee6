"""Places and processes: everything runs in a temporary directory, and all that is started is ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.harness import log_progress
from benchmarks.usage import tree

ROOT = Path(__file__).resolve().parent.parent
CHILD_SECONDS = 600.0
"""The longest a child may take."""


@contextmanager
def fresh_directory() -> Iterator[Path]:
    """Give a directory for one round and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        yield Path(name)


def environment(directory: Path) -> dict[str, str]:
    """Return what a child needs to find this package and to write under `directory` only.

    The caller's own Tidegate settings are left out: they would be measured as well.
    """
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = [str(ROOT), *(str(Path(entry).absolute()) for entry in given)]  # a child's directory is another
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(path),
        "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
        "TIDEGATE_SCRATCH": str(directory / "scratch"),
    }


def run_child(module: str, directory: Path, *words: str, **options: Any) -> dict[str, float]:
    """Run `python -m module WORDS… {options as JSON}` in `directory`; return the JSON it prints last.

    Raises:
        RuntimeError: It failed; its standard error is in the message.
    """
    command = [sys.executable, "-m", module, *words, json.dumps(options)]
    return answer(command, directory, environment(directory))


def answer(command: Sequence[str], directory: Path, env: Mapping[str, str]) -> Any:
    """Run a command in `directory` and return the JSON it prints last.

    Raises:
        RuntimeError: It failed; its standard error is in the message.
    """
    done = subprocess.run(
        command,
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def worker_command(
    directory: Path, *, application: str = "benchmarks.noop_app:app", **env: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tidegate worker` for the block; end it and all it started afterwards."""
    command = [sys.executable, "-m", "tidegate.cli", "worker", application]
    changed = {name: str(value) for name, value in env.items()}
    with running(command, directory, environment(directory) | changed) as worker:
        yield worker


@contextmanager
def running(
    command: Sequence[str], directory: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in `directory` for the block; end it and all it started afterwards.

    What it says is kept in a file, and told when the block fails.
    """
    log = directory / "worker.log"
    with log.open("ab") as written:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        except BaseException:
            log_progress(log.read_text(errors="replace")[-4000:])
            raise
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    started = tree(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        for pid in started:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def wait_until(
    condition: Callable[[], bool], *, what: str, within: float = CHILD_SECONDS, every: float = 0.02
) -> None:
    """Ask again and again until it is true.

    Raises:
        RuntimeError: It was not in time.
    """
    ends_at = time.monotonic() + within
    while not condition():
        if time.monotonic() > ends_at:
            raise RuntimeError(f"not within {within:g} s: {what}")
        time.sleep(every)


def copy_database(source: Path, directory: Path) -> None:
    """Copy a closed queue file to where a child of `directory` looks for it."""
    shutil.copyfile(source, directory / "queue.db")
