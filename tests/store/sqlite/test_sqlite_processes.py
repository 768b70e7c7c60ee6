"""Several processes on one file: each task starts once, no process gets a lock error, a kill loses nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import apsw
from sqlite_support import integrity

WORKER = """
import asyncio, sys, uuid
from tidegate.domain.outcome import FinishStatus, Succeeded
from tidegate.store.rows import ClaimRequest, CrashPolicy
from tidegate.store.worker_rows import NewWorker
from tidegate.store.sqlite.store import SqliteStore

async def main(path, log, total):
    store = SqliteStore(path)
    worker = str(uuid.uuid4())
    await store.add_worker(NewWorker(worker, "w", "p", "h", 1, ("*",), 8, 30.0))
    ask = ClaimRequest(worker, 8, ("*",), {"f": CrashPolicy()})
    with open(log, "a", buffering=1) as starts:
        while True:
            tasks = (await store.claim(ask)).tasks
            for task in tasks:
                starts.write(task.fence.task_id + "\\n")
            if tasks:
                answers = await store.finish([Succeeded(task.fence, b"null", "json/1") for task in tasks])
                assert set(answers) == {FinishStatus.DONE}
                continue
            stats = await store.get_queue_stats()
            if stats and sum(one.done_last_10_minutes for one in stats) >= total:
                break
            await store.wait_for_change(0.2)
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

PRODUCER = """
import asyncio, sys, uuid
from tidegate.domain.spec import Priority
from tidegate.store.rows import NewTask
from tidegate.store.sqlite.store import SqliteStore

async def main(path, log, count):
    store = SqliteStore(path)
    with open(log, "a", buffering=1) as accepted:
        for n in range(count):
            task_id = str(uuid.uuid4())
            new = NewTask(task_id, "f", "q", Priority.NORMAL, b"{}", "json/1")
            assert (await store.enqueue([new]))[0].created
            accepted.write(task_id + "\\n")
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def start(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], timeout: float = 50.0) -> None:
    _, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors


def test_eight_workers_and_four_producers_start_each_task_once(tmp_path: Path) -> None:
    path, producers, each = tmp_path / "queue.db", 4, 100
    total = producers * each
    making = [start(PRODUCER, path, tmp_path / f"accepted{n}", each) for n in range(producers)]
    working = [start(WORKER, path, tmp_path / f"starts{n}", total) for n in range(8)]
    reader = hold_a_read(path)
    for process in [*making, *working]:
        ended(process)
    reader.close()
    accepted = lines(tmp_path, "accepted*")
    starts = Counter(lines(tmp_path, "starts*"))
    assert len(accepted) == total
    assert starts == Counter(accepted)
    assert integrity(path) == "ok"
    # No checkpoint was possible during the read: the log is at most as large as what was written.
    log = path.with_name(path.name + "-wal")
    assert not log.exists() or log.stat().st_size < 64 * 2**20


def test_a_process_killed_during_writes_loses_no_acknowledged_task(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    reported = []
    for n in range(4):
        process = start(PRODUCER, path, tmp_path / f"accepted{n}", 100_000)
        wait_for_lines(tmp_path / f"accepted{n}", 25)
        process.kill()
        process.communicate()
        reported = lines(tmp_path, "accepted*")
    assert integrity(path) == "ok"
    db = apsw.Connection(str(path))
    stored = {bytes(row[0]).hex() for row in db.execute("SELECT task_id FROM ready")}
    db.close()
    # The last line of the log may be incomplete; complete lines were acknowledged.
    assert {task_id.replace("-", "") for task_id in reported if len(task_id) == 36} <= stored
    assert len(stored) >= 100


def test_a_lock_is_released_when_its_process_dies(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    ended(start(PRODUCER, path, tmp_path / "a", 1))
    holder = start(
        "import sys, time; from pathlib import Path; from tidegate.store.sqlite.lock import FileLock\n"
        "with FileLock(Path(sys.argv[1])).held():\n    Path(sys.argv[2]).touch(); time.sleep(60)",
        f"{path}.lock",
        tmp_path / "held",
    )
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    producer = start(PRODUCER, path, tmp_path / "b", 1)
    time.sleep(0.2)
    assert producer.poll() is None
    holder.kill()
    holder.communicate()
    ended(producer)


def hold_a_read(path: Path) -> apsw.Connection:
    """Open a read transaction once there is something to read."""
    while not path.exists() or path.stat().st_size == 0:
        time.sleep(0.01)
    db = apsw.Connection(str(path))
    db.set_busy_timeout(5_000)
    db.execute("BEGIN")
    while not db.execute("SELECT count(*) FROM sqlite_schema").get:
        db.execute("COMMIT")
        time.sleep(0.01)
        db.execute("BEGIN")
    return db


def lines(folder: Path, pattern: str) -> list[str]:
    return [line for file in sorted(folder.glob(pattern)) for line in file.read_text().splitlines()]


def wait_for_lines(file: Path, count: int) -> None:
    ends_at = time.monotonic() + 30
    while not file.exists() or len(file.read_text().splitlines()) < count:
        assert time.monotonic() < ends_at
        time.sleep(0.005)
