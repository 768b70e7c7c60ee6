"""Helpers for the tests of the SQLite back end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from tidegate.store.sqlite.job import Mode
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.store import SqliteStore

HOLDER = """
import asyncio, sys, uuid
from tidegate.domain.spec import Priority
from tidegate.store.rows import NewTask
from tidegate.store.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    for line in sys.stdin:
        try:
            task = NewTask(str(uuid.uuid4()), "f", "q", Priority.NORMAL, b"{}", "json/1")
            await store.enqueue([task])
            print("stored", flush=True)
        except Exception as error:
            print("refused" if "was replaced" in str(error) else repr(error), flush=True)
    await store.close()

asyncio.run(main())
"""


async def run_sql(store: SqliteStore, sql: str, mode: Mode = Mode.READ) -> list[tuple[object, ...]]:
    """Run a statement on one of the store's own connections."""
    return await store._runner.run(lambda db: db.execute(sql).fetchall(), mode)


async def plan(store: SqliteStore, sql: str, bindings: tuple[object, ...]) -> list[str]:
    """Return the steps of a statement's plan, on a connection configured like the store's."""
    explain = f"EXPLAIN QUERY PLAN {sql}"
    rows = await store._runner.run(lambda db: db.execute(explain, bindings).fetchall(), Mode.READ)
    return [str(row[3]) for row in rows]


@contextmanager
def other_writer(path: Path) -> Iterator[None]:
    """Hold SQLite's write lock as another program would.

    It uses the same SQLite library: the locks of two libraries in one process do not conflict.
    """
    db = apsw.Connection(str(path))
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
    finally:
        db.close()


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the writers' lock file."""
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held():
            yield
    finally:
        lock.forget()


def integrity(path: Path) -> str:
    """Return the result of an integrity check on a new connection."""
    db = apsw.Connection(str(path))
    try:
        return str(db.execute("PRAGMA integrity_check").get)
    finally:
        db.close()


def python(code: str, *args: object, timeout: float = 40.0) -> str:
    """Run a program in a separate process; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Holder:
    """Another process that has the store open."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def enqueue(self) -> str:
        """Store a task in that process; return the result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@contextmanager
def holder_of(path: Path) -> Iterator[Holder]:
    holder = Holder(path)
    try:
        assert holder.enqueue() == "stored"
        yield holder
    finally:
        holder.kill()
