"""The limit: a hand-written apsw loop that does the same row work and nothing else.

It writes the same tables, with the same indexes and the same durability, in batches of the same size, and
runs the same coroutines on the same arguments. It has no fence to check, no second process to share the
file with, no timeouts, no failures, no options. What Tidegate takes longer than this is Tidegate's own.

    python -m benchmarks.limit WHAT '{"n": …}'        in a directory with or without a queue.db
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from benchmarks.usage import peak_mib
from tidegate.codec import CODEC
from tidegate.store.common.migrate import read_migrations
from tidegate.store.sqlite.schema import FOLDER

CHANNEL = ("default", 1, "", "benchmarks.noop_app:noop")
WORKER = "00000000-0000-4000-8000-000000000000"

_INSERT_TASK = """
INSERT INTO task (id, function, queue, priority, upstream, tenant, enqueued_at)
VALUES (?, ?, ?, ?, ?, '', ?)"""
_INSERT_PAYLOAD = "INSERT INTO payload (task_id, codec_tag, args) VALUES (?, ?, ?)"
_INSERT_READY = """
INSERT INTO ready (task_id, queue, priority, upstream, function, tenant, rank, ready_at, run)
VALUES (?, ?, ?, ?, ?, '', ?, ?, 0)"""
_COUNT_ENQUEUED = """
INSERT INTO rollup (minute, queue, function, upstream, tenant, enqueued)
VALUES (?, ?, ?, ?, '', ?)
ON CONFLICT (minute, queue, function, upstream, tenant) DO UPDATE
SET enqueued = enqueued + excluded.enqueued"""

_CHOOSE = """
SELECT task_id
FROM ready
WHERE queue = ? AND priority = ? AND upstream = ? AND function = ?
ORDER BY rank, task_id
LIMIT ?"""
_LOAD = """
SELECT t.id, p.args, t.attempts, t.deadline_at, t.timeout_seconds, t.max_attempts, t.labels
FROM carray(?1) AS chosen
CROSS JOIN task AS t ON t.id = chosen.value
CROSS JOIN payload AS p ON p.task_id = chosen.value"""
_START = """
INSERT INTO running (
    task_id, run, worker_id, queue, priority, upstream, function, tenant, ready_at, started_at,
    crash_limit, crash_base_seconds, crash_max_seconds
)
SELECT
    r.task_id, r.run + 1, ?2, r.queue, r.priority, r.upstream, r.function, r.tenant, r.ready_at, ?3,
    3, 10, 600
FROM carray(?1) AS chosen
CROSS JOIN ready AS r ON r.task_id = chosen.value"""
_REMOVE = "DELETE FROM ready WHERE task_id IN (SELECT value FROM carray(?1))"

_SUCCEED = """
INSERT INTO archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
SELECT r.task_id, 'succeeded', r.run, r.worker_id, r.ready_at, r.started_at, ?2
FROM carray(?1) AS given
CROSS JOIN running AS r ON r.task_id = given.value"""
_END = "DELETE FROM running WHERE task_id IN (SELECT value FROM carray(?1))"
_COUNT_SUCCEEDED = """
INSERT INTO rollup (minute, queue, function, upstream, tenant, succeeded)
VALUES (?, ?, ?, ?, '', ?)
ON CONFLICT (minute, queue, function, upstream, tenant) DO UPDATE
SET succeeded = succeeded + excluded.succeeded"""


class BareQueue:
    """The bare queue on one connection."""

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self.db = apsw.Connection(str(path))
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "cache_size = -16384",
            "temp_store = MEMORY",
        ):
            self.db.execute(f"PRAGMA {pragma}")
        if is_new:
            for migration in read_migrations(FOLDER):
                self.db.execute(migration.sql)
        self.bodies = 0

    def enqueue(self, first: int, count: int) -> None:
        """Store `count` tasks in one transaction."""
        now = time.time()
        queue, priority, upstream, function = CHANNEL
        new = [
            (_id(now, number), CODEC, msgspec.json.encode({"a": [], "k": {"number": number}}))
            for number in range(first, first + count)
        ]
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(_INSERT_TASK, [(i, function, queue, priority, upstream, now) for i, *_ in new])
        self.db.executemany(_INSERT_PAYLOAD, new)
        self.db.executemany(_INSERT_READY, [(i, *CHANNEL, now, now) for i, *_ in new])
        self.db.execute(_COUNT_ENQUEUED, (int(now // 60), queue, function, upstream, count))
        self.db.execute("COMMIT")

    def claim(self, k: int) -> list[tuple[Any, ...]]:
        """Move up to `k` tasks to the running ones and return id and arguments first."""
        self.db.execute("BEGIN IMMEDIATE")
        select_contestants = tuple([row[0] for row in self.db.execute(_CHOOSE, (*CHANNEL, k))])
        rows: list[tuple[Any, ...]] = []
        if select_contestants:
            array = apsw.carray(select_contestants)
            rows = self.db.execute(_LOAD, (array,)).fetchall()
            self.db.execute(_START, (array, WORKER, time.time()))
            self.db.execute(_REMOVE, (array,))
        self.db.execute("COMMIT")
        return rows

    def finish(self, ids: Sequence[bytes]) -> None:
        """Archive these tasks."""
        now = time.time()
        queue, _, upstream, function = CHANNEL
        array = apsw.carray(tuple(ids))
        self.db.execute("BEGIN IMMEDIATE")
        self.db.execute(_SUCCEED, (array, now))
        self.db.execute(_COUNT_SUCCEEDED, (int(now // 60), queue, function, upstream, len(ids)))
        self.db.execute(_END, (array,))
        self.db.execute("COMMIT")

    async def body(self, args: bytes) -> None:
        """Read the arguments and do nothing."""
        msgspec.json.decode(args)
        self.bodies += 1


async def drain(loop: BareQueue, *, k: int) -> dict[str, float]:
    """Run all ready tasks, `k` at a time."""
    began_at, cpu = time.perf_counter(), time.process_time()
    while rows := loop.claim(k):
        await asyncio.gather(*(loop.body(row[1]) for row in rows))
        loop.finish([row[0] for row in rows])
    seconds = time.perf_counter() - began_at
    return {
        "rate": loop.bodies / seconds,
        "cpu": (time.process_time() - cpu) / loop.bodies * 1000,
        "memory": peak_mib(),
    }


async def enqueue(loop: BareQueue, *, n: int, batch: int) -> dict[str, float]:
    """Store `n` tasks, `batch` a transaction."""
    began_at = time.perf_counter()
    for first in range(0, n, batch):
        loop.enqueue(first, min(batch, n - first))
    return {"rate": n / (time.perf_counter() - began_at)}


async def pickup(loop: BareQueue, *, n: int, pause: float) -> dict[str, float]:
    """Store a task and claim it at once, `n` times: two commits, and nobody to be woken."""
    taken: list[float] = []
    for number in range(n):
        await asyncio.sleep(pause)
        began_at = time.perf_counter()
        loop.enqueue(number, 1)
        rows = loop.claim(1)
        await loop.body(rows[0][1])
        taken.append((time.perf_counter() - began_at) * 1000)
        loop.finish([rows[0][0]])
    return percentiles(taken)


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the 50th and the 99th percentile."""
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98]}


def _id(now: float, number: int) -> bytes:
    """Return 16 bytes that rise with the number, most of them random, as a UUIDv7 is."""
    return int(now * 1000).to_bytes(6, "big") + number.to_bytes(4, "big") + os.urandom(6)


_WORK: dict[str, Callable[..., Coroutine[Any, Any, dict[str, float]]]] = {
    "drain": drain,
    "enqueue": enqueue,
    "pickup": pickup,
}


def main(what: str, options: dict[str, Any]) -> None:
    """Do one of the three and print its values as JSON."""
    print(json.dumps(asyncio.run(_WORK[what](BareQueue(Path("queue.db")), **options))))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
