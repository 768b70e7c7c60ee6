"""Drain: a full queue of no-op async tasks, one worker process; rate, CPU and peak memory.

Limit and worker start on copies of the same file.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import worker
from benchmarks.harness import LIMIT, OURS, ResultLine, Settings, run_in_turns
from benchmarks.processes import copy_database, fresh_directory, run_child

CONCURRENCIES = (100, 500)
LEAST_OF_LIMIT = 0.4


def measure(settings: Settings) -> list[ResultLine]:
    """Return rate, CPU and memory at each concurrency."""
    with fresh_directory() as made:
        run_child("benchmarks.client", made, "bulk", n=settings.n)
        full = made / "queue.db"
        return [line for k in CONCURRENCIES for line in _at(k, full, settings)]


def _at(k: int, full: Path, settings: Settings) -> list[ResultLine]:
    def ours() -> dict[str, float]:
        with fresh_directory() as directory:
            copy_database(full, directory)
            return worker.drain(directory, n=settings.n, concurrency=k)

    def limit() -> dict[str, float]:
        with fresh_directory() as directory:
            copy_database(full, directory)
            return run_child("benchmarks.limit", directory, "drain", k=k)

    values = run_in_turns(settings.rounds, {OURS: ours, LIMIT: limit})
    rate = ResultLine(f"drain, {k} at once", "/s", values["rate"])
    ratio = rate.ratio()
    rate.add_goal(f"≥ {LEAST_OF_LIMIT} of the limit", ratio is not None and ratio >= LEAST_OF_LIMIT)
    return [
        rate,
        ResultLine(f"CPU of 1,000 tasks, {k} at once", "s", values["cpu"]),
        ResultLine(f"peak memory, {k} at once", "MiB", values["memory"]),
    ]
