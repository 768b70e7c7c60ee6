"""One round with limited tasks on a store: filled, paused, and measured from the resume to the last end.

The workers start while the tasks' queues are paused, so start-up is neither timed nor counted.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import apsw

from benchmarks.processes import answer, environment, fresh_directory, running, wait_until
from benchmarks.usage import tree_cpu_seconds
from pgserver import Server

STORES = ("sqlite", "postgres")


class Place(Protocol):
    """A store that is measured from outside, by its tables."""

    url: str

    def row(self, statement: str) -> tuple[Any, ...]:
        """Return the first row of a query over the store's tables."""

    def commits(self) -> int:
        """Return how many transactions have written so far."""

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of the server; 0 if there is none."""


class SqlitePlace:
    """A SQLite file in a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "queue.db"
        self.url = f"sqlite:///{self._path}"
        self._db: apsw.Connection | None = None

    def row(self, statement: str) -> tuple[Any, ...]:
        """Return the first row of a query over the store's tables."""
        if self._db is None:
            self._db = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
        [found] = self._db.execute(statement.format(schema=""))
        return found

    def commits(self) -> int:
        """Return how many transactions have written so far: `iChange` of the header of the WAL index."""
        with open(f"{self._path}-shm", "rb") as index:
            return int(struct.unpack_from("=I", index.read(12), 8)[0])

    def server_cpu_seconds(self) -> float:
        """Return 0: there is no server."""
        return 0.0

    def close(self) -> None:
        """Close the connection of the measurement."""
        if self._db is not None:
            self._db.close()


class PostgresPlace:
    """A database of its own on a server."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        server.kept_connection().execute(f"CREATE DATABASE {name}".encode())
        self.url = server.url(name)
        self._db = server.connect(name)

    def row(self, statement: str) -> tuple[Any, ...]:
        """Return the first row of a query over the store's tables."""
        found = self._db.execute(statement.format(schema="tidegate.").encode()).fetchone()
        assert found is not None
        return found

    def commits(self) -> int:
        """Return how many transactions have written so far: each takes a number."""
        [number] = self.row("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        return int(number)

    def server_cpu_seconds(self) -> float:
        """Return the CPU time of the server, with that of connections that ended."""
        return tree_cpu_seconds(self._server.process_id)

    def close(self) -> None:
        """Close the connection of the measurement."""
        self._db.close()


_databases = iter(range(1_000_000))


@contextmanager
def place(server: Server | None, directory: Path) -> Iterator[Place]:
    """Give an empty store: a database of this server, or a file in the directory."""
    made = SqlitePlace(directory) if server is None else PostgresPlace(server, f"limited_{next(_databases)}")
    try:
        yield made
    finally:
        made.close()


@dataclass(frozen=True, slots=True)
class Work:
    """What one round does."""

    n: int
    upstream: str
    """A key of `limited_app.LIMITS`."""
    workers: int = 1
    concurrency: int = 100
    queues: int = 1
    calls: int = 0
    """Calls of each task; 0 for a no-op."""
    pause: float = 0.0
    """Seconds that a call takes."""
    rate: int = 100
    """Calls a second of the paced upstream."""
    wait: float = 0.0
    """Seconds between two enqueues; 0 if all tasks are stored before the workers start."""


def measure(server: Server | None, work: Work) -> Mapping[str, float]:
    """Return rate, CPU seconds of 1,000 tasks (workers and server), and commits of one round."""
    with fresh_directory() as directory, ExitStack() as stack:
        store = stack.enter_context(place(server, directory))
        env = environment(directory) | {
            "TIDEGATE_DATABASE_URL": store.url,
            "BENCH_UPSTREAM": work.upstream,
            "BENCH_CONCURRENCY": str(work.concurrency),
            "BENCH_RATE": str(work.rate),
        }
        run = [sys.executable, "-m", "tidegate.cli"]
        _run([*run, "db", "upgrade"], directory, env)
        fill = [sys.executable, "-m", "benchmarks.limited_client", json.dumps(_fill_options(work))]
        if not work.wait:
            answer(fill, directory, env)
        function = f"benchmarks.limited_app:{'call_many' if work.calls else 'noop'}"
        worker = [*run, "worker", "benchmarks.limited_app:app"]
        trees = [stack.enter_context(running(worker, directory, env)).pid for _ in range(work.workers)]
        wait_until(
            lambda: (
                store.row("SELECT count(*) FROM {schema}worker WHERE retired_at IS NULL") >= (work.workers,)
            ),
            what="the workers are there",
        )
        time.sleep(1.5)  # their first maintenance jobs
        commits, cpu, server_cpu = (
            store.commits(),
            sum(map(tree_cpu_seconds, trees)),
            store.server_cpu_seconds(),
        )
        if work.wait:
            answer(fill, directory, env)
        else:
            _run([*run, "functions", "resume", function], directory, env)
        wait_until(
            lambda: store.row("SELECT count(*) FROM {schema}archive") == (work.n,),
            what="all are finished",
            every=0.05,
        )
        commits = store.commits() - commits
        cpu = sum(map(tree_cpu_seconds, trees)) - cpu
        server_cpu = store.server_cpu_seconds() - server_cpu
        [seconds] = store.row("SELECT max(finished_at) - min(started_at) FROM {schema}archive")
    return {
        "rate": work.n / seconds,
        "cpu": cpu / work.n * 1_000,
        "server_cpu": server_cpu / work.n * 1_000,
        "commits": commits,
        "seconds": seconds,
    }


def _run(command: Sequence[str], directory: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=directory, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-4000:]}")


def _fill_options(work: Work) -> dict[str, Any]:
    return {
        "n": work.n,
        "queues": work.queues,
        "calls": work.calls,
        "pause": work.pause,
        "wait": work.wait,
    }
