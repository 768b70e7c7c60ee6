"""huey: its consumer with one worker thread, fsync on, WAL, the fastest it can be set.

It deletes a task when it takes it: a worker that dies loses what it ran. No history is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from huey import SqliteHuey

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

queue = SqliteHuey(
    "bench", filename=str(Path(os.environ["BENCH_URL"]) / "huey.db"), fsync=True, results=False
)


@queue.task(name="noop")
def noop(number: int) -> None:
    began(number)


class Peer(PeerQueue):
    def enqueue(self, number: int) -> None:
        noop(number)

    def fill(self, numbers: Sequence[int]) -> None:
        """Write the rows that `enqueue` would: it has no bulk call."""
        with queue.storage.db(commit=True) as cursor:
            rows = [(queue.name, queue.serialize_task(noop.s(number)), 0) for number in numbers]
            cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)

    def work(self) -> None:
        command = ["-m", "huey.bin.huey_consumer", f"{__name__}.queue", "--workers", "1", "--no-periodic"]
        os.execv(sys.executable, [sys.executable, *command, "--quiet"])
