"""What the tests of the running engine share: fast clocks, an application on a fresh file, worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate import Pool, Tidegate, Timings
from tidegate.domain.states import FINAL
from tidegate.internals import core_of
from tidegate.store.common.migrate import Migration
from tidegate.store.postgres import schema as postgres_schema
from tidegate.store.protocol import Store
from tidegate.store.sqlite import schema as sqlite_schema

FAST = Timings(
    lease=0.6,
    beat=0.15,
    reap=0.2,
    promote=0.05,
    stop_grace=0.3,
    drain_grace=5.0,
    cancel_poll=0.05,
    stall_limit=20.0,
)
"""Everything scaled down; a real lease is 30 s."""

EVERYDAY_ON_SQLITE = pytest.mark.parametrize(
    "store_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
"""For a test of what is above the store, which the contract of the store makes the same on both."""

APPS = Path(__file__).parent / "apps"


def make_app(directory: Path, **options: Any) -> Tidegate:
    """Return an application on a fresh file."""
    options.setdefault("timings", FAST)
    options.setdefault("pools", [Pool(concurrency=10, poll_interval=0.05)])
    return Tidegate(f"sqlite:///{directory}/queue.db", **options)


def app_on(store: Any, **options: Any) -> Tidegate:
    """Return an application on a store that is made already."""
    app = Tidegate("sqlite:///never-opened.db", **options)
    core_of(app).store = store
    return app


async def until(
    condition: Callable[[], Awaitable[Any]], *, within: float = 15.0, what: str = "it came true"
) -> Any:
    """Return the first true answer, asking again briefly."""
    ends_at = time.monotonic() + within
    while True:
        answer = await condition()
        if answer:
            return answer
        assert time.monotonic() < ends_at, f"not within {within} s: {what}"
        await asyncio.sleep(0.02)


async def all_final(app: Tidegate, ids: list[str], *, within: float = 30.0) -> dict[str, Any]:
    """Wait until every task is final; return their rows."""
    store = await core_of(app).opened_store()

    async def look() -> dict[str, Any] | None:
        rows = await store.read_tasks(ids)
        return rows if len(rows) == len(ids) and all(row.state in FINAL for row in rows.values()) else None

    rows: dict[str, Any] = await until(look, within=within, what=f"{len(ids)} tasks are final")
    return rows


class WorkerProcess:
    """A real `tidegate worker` in a process of its own, on an application under `tests/apps`."""

    def __init__(self, application: str, directory: Path, **env: str) -> None:
        self._log = (directory / f"worker-{time.monotonic_ns()}.log").open("wb")
        self.log_path = Path(self._log.name)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tidegate.cli", "worker", application],
            cwd=APPS,
            env=os.environ
            | {
                "TIDEGATE_DATABASE_URL": f"sqlite:///{directory}/queue.db",
                "TIDEGATE_SCRATCH": str(directory / "scratch"),
                "TIDEGATE_RUN": str(directory / "run"),
                "LEDGER": str(directory / "ledger.ndjson"),
            }
            | env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def children(self) -> list[int]:
        """Return the pids of its pool processes."""
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(pid) for pid in listed]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = 15.0) -> int:
        return self.process.wait(within)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def close(self) -> None:
        """End it and whatever it started, without mercy."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            for pid in self.children():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._log.close()


@contextlib.contextmanager
def worker_process(application: str, directory: Path, **env: str) -> Iterator[WorkerProcess]:
    worker = WorkerProcess(application, directory, **env)
    try:
        yield worker
    except BaseException:
        print(worker.log())
        raise
    finally:
        worker.close()


def ledger(directory: Path) -> list[dict[str, Any]]:
    """Return what the bodies wrote of themselves."""
    path = directory / "ledger.ndjson"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def starts(directory: Path, task_id: str) -> list[dict[str, Any]]:
    return [entry for entry in ledger(directory) if entry["task_id"] == task_id and entry["what"] == "start"]


def load_app(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch, *, url: str = "") -> Any:
    """Return the module `apps/NAME.py`, its application enqueueing into the file of this directory, or elsewhere."""
    monkeypatch.setenv("TIDEGATE_DATABASE_URL", url or f"sqlite:///{directory}/queue.db")
    monkeypatch.setenv("LEDGER", str(directory / "ledger.ndjson"))
    monkeypatch.syspath_prepend(str(APPS))
    spec = importlib.util.spec_from_file_location(name, APPS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


async def upgraded_by_later_release(
    store: Store, monkeypatch: pytest.MonkeyPatch, *migrations: str
) -> list[str]:
    """Upgrade a schema as a release would that has these migrations more; return the names applied.

    A table is written `/*schema*/task` in them, which serves both back ends.
    """
    known = sqlite_schema.known_migrations()
    later = [
        Migration(number, f"{number:03d}_later", sql) for number, sql in enumerate(migrations, len(known) + 1)
    ]
    with monkeypatch.context() as patched:
        for back_end in (sqlite_schema, postgres_schema):
            patched.setattr(
                back_end, "known_migrations", lambda known=back_end.known_migrations(): (*known, *later)
            )
        return await store.migrate()


async def runs_of(handle: Any) -> list[Any]:
    """Return the runs in a task's history, the first one first."""
    return [entry for entry in await handle.history() if entry.kind == "run"]
