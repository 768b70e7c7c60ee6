"""Pickup: from the enqueue call to the first line of the body, on an idle worker.

500 tasks, one each 20 ms. The limit is two commits, storing and claiming, with nobody to be woken.
"""

from __future__ import annotations

from benchmarks.harness import LIMIT, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, run_child, worker_command
from benchmarks.worker import pool_process

TASKS = 500
PAUSE_SECONDS = 0.02
ALONE, ACROSS = "one process", "across processes"


def measure(settings: Settings) -> list[ResultLine]:
    """Return p50 and p99 for a worker in the client's process and for one in another."""
    n = min(TASKS, settings.n)

    def alone() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.client", directory, "pickup_alone", n=n, pause=PAUSE_SECONDS)

    def across() -> dict[str, float]:
        with fresh_directory() as directory:
            run_child("benchmarks.client", directory, "bulk", n=0)  # makes the file
            report = directory / "report.json"
            env = {"BENCH_CONCURRENCY": 10, "BENCH_STARTS": n, "BENCH_REPORT": report}
            with worker_command(directory, **env) as worker:
                pool_process(worker)
                return run_child(
                    "benchmarks.client",
                    directory,
                    "pickup_across",
                    n=n,
                    pause=PAUSE_SECONDS,
                    report=str(report),
                )

    def limit() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.limit", directory, "pickup", n=n, pause=PAUSE_SECONDS)

    values = run_in_turns(settings.rounds, {ALONE: alone, ACROSS: across, LIMIT: limit})
    return [
        ResultLine(f"pickup {part}, {who}", "ms", {who: values[part][who], LIMIT: values[part][LIMIT]})
        for who in (ALONE, ACROSS)
        for part in ("p50", "p99")
    ]
