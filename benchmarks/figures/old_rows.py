"""Drain again, with 1,000,000 finished and 200,000 scheduled tasks in the same file.

The old rows are written by SQL, each complete: a succeeded task has its lifelong row, its payload and its
archive row, a scheduled one its lifelong row, its payload and its place among the waiting. They are six
days old at most, so retention leaves them alone, and none falls due.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from benchmarks import worker
from benchmarks.harness import OURS, Contestant, ResultLine, Settings, log_progress, run_in_turns
from benchmarks.limit import CHANNEL, WORKER
from benchmarks.processes import copy_database, fresh_directory, run_child
from tidegate.codec import CODEC

CONCURRENCY = 100
FINISHED_PER_TASK, SCHEDULED_PER_TASK = 50, 10
MOST_SLOWER = 1.2
FRESH = "fresh file"
_DAY = 86_400.0

_IDS = """
CREATE TEMP TABLE old AS
WITH RECURSIVE counted (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM counted WHERE i + 1 < :count)
SELECT
    i,
    :began_at + i * :step AS at,
    unhex(printf('%012x7%03x%04x%012x', cast((:began_at + i * :step) * 1000 AS INTEGER), i % 4096,
        0x8000 | (abs(random()) % 0x4000), abs(random()) % 0x1000000000000)) AS id
FROM counted"""
_TASKS = """
INSERT INTO task (id, function, queue, priority, upstream, tenant, enqueued_at)
SELECT id, :function, :queue, :priority, :upstream, '', at FROM old ORDER BY id"""
_PAYLOADS = """
INSERT INTO payload (task_id, codec_tag, args)
SELECT id, :codec_tag, cast(printf('{"a":[],"k":{"number":%d}}', i) AS BLOB) FROM old ORDER BY id"""
_ARCHIVE = """
INSERT INTO archive (task_id, state, run, worker_id, ready_at, started_at, finished_at)
SELECT id, 'succeeded', 1, :worker, at, at + 0.01, at + 0.02 FROM old ORDER BY id"""
_WAITING = """
INSERT INTO waiting (task_id, state, due_at, queue, priority, upstream, function, tenant, rank, run)
SELECT id, 'scheduled', at + :delay, :queue, :priority, :upstream, :function, '', at + :delay, 0
FROM old ORDER BY id"""
_ROLLUP = """
INSERT INTO rollup (
    minute, queue, function, upstream, tenant, enqueued, succeeded, run_seconds, first_final_at
)
SELECT
    cast(at / 60 AS INTEGER), :queue, :function, :upstream, '', count(*), count(*), count(*) * 0.01,
    min(at) + 0.02
FROM old
GROUP BY cast(at / 60 AS INTEGER)"""


def measure(settings: Settings) -> list[ResultLine]:
    """Return the drain rate with the old rows beside that of a fresh file, and the limit's own."""
    finished, scheduled = settings.n * FINISHED_PER_TASK, settings.n * SCHEDULED_PER_TASK
    with fresh_directory() as small, fresh_directory() as grown:
        log_progress(f"  writing {finished:,} finished and {scheduled:,} scheduled tasks")
        run_child("benchmarks.client", grown, "bulk", n=0)  # makes the file
        add_old_rows(grown / "queue.db", finished=finished, scheduled=scheduled)
        for directory in (small, grown):
            run_child("benchmarks.client", directory, "bulk", n=settings.n)
        values = run_in_turns(
            settings.rounds,
            {
                OURS: _ours(grown / "queue.db", settings.n),
                FRESH: _ours(small / "queue.db", settings.n),
                "limit, old rows": _limit(grown / "queue.db"),
                "limit, fresh": _limit(small / "queue.db"),
            },
        )
    line = ResultLine(f"drain, {CONCURRENCY} at once, old rows", "/s", values["rate"], base=FRESH)
    ratio = line.ratio()
    line.add_goal(f"≤ {MOST_SLOWER}× slower", ratio is not None and 1 / ratio <= MOST_SLOWER)
    line.note = f"beside {finished:,} finished and {scheduled:,} scheduled tasks; ratio to a fresh file"
    return [line]


def _ours(full: Path, n: int) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory:
            copy_database(full, directory)
            return worker.drain(directory, n=n, concurrency=CONCURRENCY)

    return run


def _limit(full: Path) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory:
            copy_database(full, directory)
            return run_child("benchmarks.limit", directory, "drain", k=CONCURRENCY)

    return run


def add_old_rows(path: Path, *, finished: int, scheduled: int) -> None:
    """Write them, in id order, as the store would have."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute("PRAGMA synchronous = OFF")
    now = time.time()
    with db:
        _write(db, finished, now - 6 * _DAY, (_ARCHIVE, _ROLLUP))
        _write(db, scheduled, now - 0.5 * _DAY, (_WAITING,))
    db.execute("PRAGMA synchronous = FULL")
    db.close()


def _write(db: apsw.Connection, count: int, began_at: float, places: Sequence[str]) -> None:
    """Write `count` tasks, enqueued evenly from then to two hours ago, and what `places` adds to each."""
    queue, priority, upstream, function = CHANNEL
    values = {
        "count": count,
        "began_at": began_at,
        "step": (time.time() - _DAY / 12 - began_at) / count,
        "queue": queue,
        "priority": priority,
        "upstream": upstream,
        "function": function,
        "worker": WORKER,
        "codec_tag": CODEC,
        "delay": 30 * _DAY,
    }
    for statement in (_IDS, _TASKS, _PAYLOADS, *places, "DROP TABLE temp.old"):
        db.execute(statement, values)
