"""Helpers for tests of the supervisor: start a real worker and inspect its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support import APPS, until
from tidegate.worker.supervisor.health import Health, query_health


class Service:
    """A `tidegate` command in its own process, perhaps started by another program."""

    def __init__(self, directory: Path, *words: str, before: Sequence[str] = (), **env: str) -> None:
        self.directory = directory
        self._log = (directory / f"service-{time.monotonic_ns()}.log").open("wb")
        self.env = os.environ | {
            "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
            "TIDEGATE_SCRATCH": str(directory / "scratch"),
            "TIDEGATE_RUN": str(directory / "run"),
            "OUT": str(directory),
        }
        self.env |= env
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "tidegate.cli", *words],
            cwd=APPS,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # no terminal: SIGHUP means reload, as for a service
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def wait(self, within: float = 15.0) -> int:
        return self.process.wait(within)

    def close(self) -> None:
        """Kill it and all processes that it started."""
        victims = [self.pid, *descendants(self.pid)]
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self._log.close()


@contextlib.contextmanager
def service(directory: Path, *words: str, before: Sequence[str] = (), **env: str) -> Iterator[Service]:
    running = Service(directory, *words, before=before, **env)
    try:
        yield running
    except BaseException:
        print(running.log())
        raise
    finally:
        running.close()


def health(directory: Path, *words: str, kind: str = "worker") -> subprocess.CompletedProcess[str]:
    """Check its health as an exec probe does."""
    return subprocess.run(
        [sys.executable, "-m", "tidegate.cli", kind, "health", *words],
        env=os.environ | {"TIDEGATE_RUN": str(directory / "run")},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def live_health(directory: Path, kind: str = "worker") -> Health | None:
    """Return what the only service of a kind answers; None if none does or it hangs.

    To be asked again and again: a health command costs an interpreter each time.
    """
    with patch.dict(os.environ, {"TIDEGATE_RUN": str(directory / "run")}):
        return next(iter(query_health(kind, None, 5.0)), None)


def notes(directory: Path, name: str) -> list[Any]:
    path = directory / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def came(truth: Callable[[], Any], what: str, within: float = 15.0) -> Any:
    """Return the first true result of a plain function."""

    async def check() -> Any:
        return truth()

    return await until(check, what=what, within=within)


def children(pid: int) -> list[int]:
    """Return the children of a process, including zombies."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        found = [(thread / "children").read_text().split() for thread in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for part in found for child in part]
    return []


def descendants(pid: int) -> list[int]:
    return [below for child in children(pid) for below in (child, *descendants(child))]


def state_of(pid: int) -> str:
    """Return the letter of a process's state; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
