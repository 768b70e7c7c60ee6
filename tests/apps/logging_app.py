"""Task functions that log and fail, for tests of what a worker writes to standard error."""

from __future__ import annotations

import logging
import os

from tidegate import Permanent, Pool, Tidegate, Timings

log = logging.getLogger("shop.orders")
app = Tidegate(
    pools=[Pool(concurrency=20, poll_interval=0.05)],
    timings=Timings(
        lease=float(os.environ.get("LEASE", "2")), promote=0.05, stop_grace=0.5, drain_grace=5, stall_limit=5
    ),
)


@app.task
async def on_the_loop(text: str) -> None:
    log.info(text)


@app.task(runs_in="thread")
def in_a_thread(text: str) -> None:
    log.info(text)


@app.task
def in_a_child(text: str) -> None:
    log.info(text)


@app.task
async def fails(text: str) -> None:
    log.error("about to fail: %s", text)
    raise Permanent(text)


@app.task
def fails_in_a_child(text: str) -> None:
    log.error("about to fail: %s", text)
    raise Permanent(text)
