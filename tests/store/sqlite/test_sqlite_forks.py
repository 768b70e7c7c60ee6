"""A process that forks with an open store: parent and child both continue, each with its own files."""

from __future__ import annotations

import sys
from pathlib import Path

import apsw
from sqlite_support import integrity, python

from tidegate.store.sqlite import forks

FORKING = """
import asyncio, os, sys, threading, uuid, time
from tidegate.domain.spec import Priority
from tidegate.store.rows import NewTask
from tidegate.store.sqlite.store import SqliteStore

store = SqliteStore(sys.argv[1])
number = 0

def new():
    global number
    number += 1
    return NewTask(str(uuid.UUID(int=os.getpid() << 32 | number)), "f", "q", Priority.NORMAL, b"{}", "json/1")

async def enqueue(count):
    for _ in range(count):
        assert (await store.enqueue([new()]))[0].created
    await store.wait_for_change(0.01)
    return (await store.get_queue_stats())[0].ready

asyncio.run(enqueue(5))
over = threading.Event()

def keep_busy():
    # The writer is at work at the very moment of each fork.
    while not over.is_set():
        asyncio.run(enqueue(3))

busy = threading.Thread(target=keep_busy)
busy.start()
children = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        try:
            assert asyncio.run(enqueue(10)) >= 15
            asyncio.run(store.close())
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
over.set()
busy.join()
total = asyncio.run(enqueue(1))
print(codes, total - 1 - number + 1 == 80)
asyncio.run(store.close())
"""


def test_parent_and_children_work_after_forks_during_writes(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    assert python(FORKING, path).split("\n")[-2] == f"{[0] * 8} True"
    assert integrity(path) == "ok"


EXITING = """
import asyncio, os, sys
from tidegate.store.sqlite.store import SqliteStore

store = SqliteStore(sys.argv[1])
asyncio.run(store.get_queue_stats())
asyncio.run(store.save_manifest("a", {}))
pid = os.fork()
if pid == 0:
    sys.exit(0)  # with all its finalisers
os.waitpid(pid, 0)
wal = sys.argv[1] + "-wal"
before = os.path.getsize(wal) > 0
asyncio.run(store.save_manifest("b", {}))
print(before, sorted(asyncio.run(store.load_manifests())))
"""


def test_the_end_of_a_child_does_not_close_the_parents_files(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    assert python(EXITING, path) == "True ['a', 'b']\n"
    assert integrity(path) == "ok"


LOCKED = """
import asyncio, os, sys, time
from tidegate.store.sqlite.lock import FileLock
from tidegate.store.sqlite.store import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1], busy_seconds=10.0)
    await store.save_manifest("a", {})
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    other = SqliteStore(sys.argv[1], busy_seconds=5.0)
    for n in range(20):
        await store.save_manifest(str(n), {})
        await other.save_manifest(str(n), {})
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    await store.close()
    await other.close()

asyncio.run(main())
"""


def test_a_child_keeps_no_lock_of_its_parent(tmp_path: Path) -> None:
    python(LOCKED, tmp_path / "queue.db")


STANDING_STILL = """
import os, threading, time
from tidegate.store.sqlite import forks

class Runner:
    def __init__(self):
        self.lock = threading.Lock()
        self.forgotten = False
    def quiet_locks(self):
        return [self.lock]
    def forget(self):
        self.lock = threading.Lock()
        self.forgotten = True

runner = Runner()
forks.enter(runner)
at_work, let_go = threading.Event(), threading.Event()

def work():
    with runner.lock:
        at_work.set()
        let_go.wait(10)
        time.sleep(0.05)
        runner.done = True

runner.done = False
thread = threading.Thread(target=work)
thread.start()
at_work.wait(10)
threading.Timer(0.1, let_go.set).start()
pid = os.fork()
if pid == 0:
    os._exit(0 if runner.done and runner.forgotten and runner.lock.acquire(timeout=1) else 1)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
thread.join()
print(code, runner.done, runner.forgotten, runner.lock.acquire(timeout=1))
"""


def test_a_fork_waits_for_running_work_and_the_child_forgets_it() -> None:
    assert python(STANDING_STILL) == "0 True False True\n"


def test_an_inherited_connection_outlives_every_reference_to_it() -> None:
    db = apsw.Connection(":memory:")
    before = sys.getrefcount(db)
    forks.leak_connection(db)
    assert sys.getrefcount(db) == before + 1
    forks.leak_connection(None)
