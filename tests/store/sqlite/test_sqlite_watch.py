"""Waiting for commits: those of this process wake at once, those of others after a few polls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlite_support import lock_file
from store_build import Build

from tidegate.store.common.waiters import RECENT_CHANGE_SECONDS
from tidegate.store.sqlite import watch
from tidegate.store.sqlite.store import SqliteStore

WRITER = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
sys.stdin.readline()
db.execute("INSERT INTO manifest (app, body, saved_at) VALUES ('x', '{}', 0)")
print("done", flush=True)
sys.stdin.readline()
"""


async def settled(store: SqliteStore) -> None:
    """Wait until this task has seen every commit so far."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await store.wait_for_change(2 * RECENT_CHANGE_SECONDS)
        if loop.time() - before >= 2 * RECENT_CHANGE_SECONDS:
            return


async def test_a_new_asyncio_task_for_each_call_still_waits(store: SqliteStore) -> None:
    await settled(store)
    loop = asyncio.get_running_loop()
    before = loop.time()
    for _ in range(3):
        await asyncio.wait_for(store.wait_for_change(0.1), 5.0)
    assert loop.time() - before >= 0.3


async def test_a_first_wait_returns_for_a_very_recent_commit(store: SqliteStore, build: Build) -> None:
    await settled(store)
    waiting = asyncio.create_task(store.wait_for_change(30.0))
    await asyncio.sleep(0.02)
    await build.one()
    await waiting
    await asyncio.wait_for(store.wait_for_change(30.0), 5.0)


async def test_a_commit_of_another_process_wakes_a_waiter_soon(store: SqliteStore, path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    await settled(store)
    loop = asyncio.get_running_loop()
    waiting = asyncio.create_task(store.wait_for_change(30.0))
    await asyncio.sleep(0.3)  # without a write the waiter keeps waiting
    assert not waiting.done()
    before = loop.time()
    process.stdin.write(b"go\n")
    await process.stdout.readline()
    await waiting
    assert loop.time() - before < 2.0
    process.stdin.write(b"end\n")
    assert await process.wait() == 0


async def test_a_read_wakes_no_waiter(store: SqliteStore, build: Build) -> None:
    worker = await build.worker()
    await settled(store)
    waiting = asyncio.create_task(store.wait_for_change(0.3))
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.sleep(0)
    await store.get_queue_stats()
    await store.claim(build.request(worker))
    await store.promote()
    await waiting
    assert loop.time() - before >= 0.3


async def test_a_commit_wakes_a_waiter_once(store: SqliteStore, build: Build) -> None:
    await settled(store)
    await build.one()
    await store.wait_for_change(5.0)
    loop = asyncio.get_running_loop()
    before = loop.time()
    await store.wait_for_change(0.2)
    assert loop.time() - before >= 0.2, "the same commit was told twice"


async def test_the_file_is_not_polled_while_no_task_waits(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    real = watch._ChangeDetector.has_changed

    def counted(self: watch._ChangeDetector, *, surely: bool) -> bool | None:
        nonlocal looks
        looks += 1
        return real(self, surely=surely)

    monkeypatch.setattr(watch._ChangeDetector, "has_changed", counted)
    await settled(store)
    assert looks > 0
    await asyncio.sleep(0.05)
    before = looks
    await asyncio.sleep(0.1)
    assert looks == before


async def test_a_commit_is_detected_even_if_the_time_stamp_of_the_log_does_not_change(
    store: SqliteStore, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch._ChangeDetector, "_is_active", lambda _: False)
    await settled(store)
    other = SqliteStore(store.path)
    waiting = asyncio.create_task(store.wait_for_change(30.0))
    await asyncio.sleep(0.02)
    await other.enqueue([build.new()])
    await asyncio.wait_for(waiting, 5.0)
    await other.close()


async def test_closing_ends_every_wait(store: SqliteStore) -> None:
    await settled(store)
    waiting = [asyncio.create_task(store.wait_for_change(30.0)) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0.01)
    await store.close()
    await asyncio.wait_for(asyncio.gather(*waiting), 5.0)


async def test_a_cancelled_wait_leaves_nothing_behind(store: SqliteStore, build: Build) -> None:
    await settled(store)
    waiting = asyncio.create_task(store.wait_for_change(30.0))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not store._runner._watch._waiters  # type: ignore[attr-defined]
    await build.one()


async def test_a_closed_store_keeps_no_thread_and_no_file_open(
    store: SqliteStore, build: Build, path: Path
) -> None:
    others = set(threading.enumerate())  # of stores that other tests have left open
    await build.one()
    await store.get_queue_stats()
    await store.wait_for_change(0.01)
    assert open_files(path)
    assert {thread.name for thread in set(threading.enumerate()) - others} >= {"tidegate-sqlite-writer"}
    await store.close()
    left = {thread.name for thread in set(threading.enumerate()) - others}
    assert not [name for name in left if name.startswith("tidegate-sqlite")]
    assert open_files(path) == []


async def test_waiting_works_while_another_process_holds_the_lock(store: SqliteStore, path: Path) -> None:
    await settled(store)
    with lock_file(path):
        loop = asyncio.get_running_loop()
        before = loop.time()
        await store.wait_for_change(0.1)
        assert 0.1 <= loop.time() - before < 5.0


def open_files(path: Path) -> list[str]:
    links = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{entry}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith(str(path))]
