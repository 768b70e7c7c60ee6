"""Idle: CPU of a worker that has nothing to do, supervisor and pool process together, over 20 s."""

from __future__ import annotations

import time

from benchmarks.harness import OURS, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, worker_command
from benchmarks.usage import cpu_seconds
from benchmarks.worker import pool_process

SECONDS = 20.0
SETTLE_SECONDS = 4.0
MOST_PERCENT = 1.0
MOST_ROUNDS = 3


def measure(settings: Settings) -> list[ResultLine]:
    """Return percent of one core. Three rounds at most: it is CPU time, which noise hardly touches."""
    values = run_in_turns(min(settings.rounds, MOST_ROUNDS), {OURS: _idle})
    line = ResultLine(f"idle worker's CPU over {SECONDS:.0f} s", "%", values["percent"])
    line.add_goal(f"≤ {MOST_PERCENT:g}%", line.median(OURS) <= MOST_PERCENT)
    line.note = "of one core; supervisor and pool process, default timings"
    return [line]


def _idle() -> dict[str, float]:
    with fresh_directory() as directory, worker_command(directory) as worker:
        pids = (worker.pid, pool_process(worker))
        time.sleep(SETTLE_SECONDS)  # start-up is over and every duty has had its first round
        used, began_at = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(SECONDS)
        used = sum(map(cpu_seconds, pids)) - used
        return {"percent": 100 * used / (time.monotonic() - began_at)}
