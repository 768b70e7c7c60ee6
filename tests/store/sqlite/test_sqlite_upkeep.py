"""The write-ahead log: checkpointed at any time, truncated when it is large and no process writes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import apsw
import pytest
from sqlite_support import integrity, lock_file
from store_build import Build

from tidegate.store.sqlite import upkeep
from tidegate.store.sqlite.store import SqliteStore

BIG = b"x" * 1_000_000


@pytest.fixture
def log(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def grow(build: Build) -> None:
    """Make the log larger than the limit of upkeep."""
    await build.enqueue(20, args=BIG)


async def test_a_large_log_is_truncated(store: SqliteStore, build: Build, log: Path) -> None:
    await grow(build)
    assert log.stat().st_size > upkeep.WAL_TRUNCATE_BYTES
    await store.checkpoint()
    assert log.stat().st_size == 0
    assert len(await build.claim(await build.worker())) == 20


async def test_a_small_log_is_kept_for_the_next_writers(store: SqliteStore, build: Build, log: Path) -> None:
    await build.one()
    before = log.stat().st_size
    await store.checkpoint()
    assert log.stat().st_size == before > 0


async def test_a_large_log_is_kept_while_a_process_writes(
    store: SqliteStore, build: Build, path: Path, log: Path
) -> None:
    await grow(build)
    with lock_file(path):
        await store.checkpoint()
    assert log.stat().st_size > upkeep.WAL_TRUNCATE_BYTES


async def test_upkeep_waits_only_briefly_for_a_reader(
    store: SqliteStore, build: Build, path: Path, log: Path
) -> None:
    await build.one()
    reader = apsw.Connection(str(path))
    reader.execute("BEGIN; SELECT count(*) FROM task")
    await grow(build)
    began = time.monotonic()
    await store.checkpoint()
    assert time.monotonic() - began < 5.0
    assert log.stat().st_size > upkeep.WAL_TRUNCATE_BYTES
    await build.one()
    reader.execute("COMMIT")
    reader.close()
    await store.checkpoint()
    assert log.stat().st_size == 0


async def test_several_processes_can_do_upkeep_during_writes(
    store: SqliteStore, build: Build, path: Path
) -> None:
    others = [SqliteStore(path) for _ in range(3)]
    await grow(build)

    async def keep_up(one: SqliteStore) -> None:
        for _ in range(5):
            await one.checkpoint()

    await asyncio.gather(*(keep_up(one) for one in [store, *others]), *(build.one() for _ in range(20)))
    assert (await store.get_queue_stats())[0].ready == 40
    await asyncio.gather(*(one.close() for one in others))
    await store.close()
    assert integrity(path) == "ok"


async def test_the_log_is_checkpointed_by_writers_without_upkeep(
    store: SqliteStore, build: Build, log: Path
) -> None:
    for _ in range(10):
        await build.enqueue(100, args=b"x" * 10_000)
    assert log.stat().st_size < 8 * 2**20
