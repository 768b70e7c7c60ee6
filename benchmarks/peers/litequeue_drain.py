"""litequeue: it has no worker, so this is the loop its manual shows: pop, run, done.

It sets synchronous=NORMAL by itself, so that a power cut can lose what it has confirmed; left as it is.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from litequeue import LiteQueue


def noop(number: int) -> None:
    """Do nothing."""


def main(options: dict[str, Any]) -> None:
    """Fill the queue, drain it, print the values as JSON."""
    n = options["n"]
    queue = LiteQueue("litequeue.db")
    with queue.transaction():
        for number in range(n):
            queue.put(json.dumps({"number": number}))
    began_at, cpu = time.perf_counter(), time.process_time()
    done = 0
    while (message := queue.pop()) is not None:
        noop(**json.loads(message.data))
        queue.done(message.message_id)
        done += 1
    seconds, cpu = time.perf_counter() - began_at, time.process_time() - cpu
    print(json.dumps({"rate": done / seconds, "cpu": cpu / done * 1000}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
