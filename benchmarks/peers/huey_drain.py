"""huey on SQLite: its own consumer with one worker thread, fsync on, WAL, the fastest it can be set.

It deletes a task when it takes it: a worker that dies loses what it ran. No history is kept.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from typing import Any

from huey import SqliteHuey

logging.disable(logging.CRITICAL)
queue = SqliteHuey("bench", filename="huey.db", fsync=True, results=False)
all_done = threading.Event()
counted = {"starts": 0, "expected": 0}
began: dict[str, float] = {}


@queue.task()
def noop(number: int) -> None:
    """Count; note the moments of the first and the last one."""
    if counted["starts"] == 0:
        began.update(at=time.perf_counter(), cpu=time.process_time())
    counted["starts"] += 1
    if counted["starts"] == counted["expected"]:
        began.update(ended_at=time.perf_counter(), ended_cpu=time.process_time())
        all_done.set()


def main(options: dict[str, Any]) -> None:
    """Fill the queue, run the consumer until it is empty, print the values as JSON."""
    n = counted["expected"] = options["n"]
    with queue.storage.db(commit=True) as cursor:  # it has no bulk enqueue; one transaction is set-up only
        rows = [(queue.name, queue.serialize_task(noop.s(number)), 0) for number in range(n)]
        cursor.executemany("insert into task (queue, data, priority) values (?, ?, ?)", rows)
    consumer = queue.create_consumer(workers=1, worker_type="thread", periodic=False)
    consumer.start()
    all_done.wait()
    consumer.stop(graceful=True)
    seconds, cpu = began["ended_at"] - began["at"], began["ended_cpu"] - began["cpu"]
    print(json.dumps({"rate": n / seconds, "cpu": cpu / n * 1000}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
