"""One task function with a limit shared by all processes. Each start is recorded by the monotonic clock."""

from __future__ import annotations

import json
import os
import time

from tidegate import Context, Pool, Tidegate, Timings

app = Tidegate(
    pools=[Pool(concurrency=10, poll_interval=0.05)],
    timings=Timings(lease=0.6, beat=0.15, reap=0.2, promote=0.05),
)
upstream = app.upstream("paced", requests_per_second=20)


@app.task(upstream=upstream)
async def call(ctx: Context) -> None:
    # All processes share the monotonic clock, also those with a wrong wall clock.
    entry = {"what": "start", "task_id": ctx.task_id, "pid": os.getpid(), "at": time.monotonic()}
    with open(os.environ["LEDGER"], "a") as file:
        file.write(json.dumps(entry) + "\n")
