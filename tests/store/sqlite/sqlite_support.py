"""What the tests of the SQLite back end share."""

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


async def run_sql(store: SqliteStore, sql: str, mode: Mode = Mode.READ) -> list[tuple[object, ...]]:
    """Run a statement on one of the store's own connections."""
    return await store._runner.run(lambda db: db.execute(sql).fetchall(), mode)


async def plan(store: SqliteStore, sql: str, bindings: tuple[object, ...]) -> list[str]:
    """Return the steps of a statement's plan, on a connection set up as the store's."""
    explain = f"EXPLAIN QUERY PLAN {sql}"
    rows = await store._runner.run(lambda db: db.execute(explain, bindings).fetchall(), Mode.READ)
    return [str(row[3]) for row in rows]


@contextmanager
def other_writer(path: Path) -> Iterator[None]:
    """Hold SQLite's write lock as a program would that knows nothing of Tidegate.

    With the same SQLite library: the locks of two in one process do not see each other.
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
    """Hold the queue of writers."""
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        with lock.held():
            yield
    finally:
        lock.forget()


def integrity(path: Path) -> str:
    """Return what a fresh connection says of the file."""
    db = apsw.Connection(str(path))
    try:
        return str(db.execute("PRAGMA integrity_check").get)
    finally:
        db.close()


def python(code: str, *args: object, timeout: float = 40.0) -> str:
    """Run a program in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
