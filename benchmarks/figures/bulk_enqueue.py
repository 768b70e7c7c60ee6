"""Bulk enqueue: tasks a second by `app.enqueue_many`, 5,000 a transaction."""

from __future__ import annotations

from benchmarks.client import BATCH
from benchmarks.harness import LIMIT, OURS, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, run_child


def measure(settings: Settings) -> list[ResultLine]:
    """Return tasks stored a second."""

    def ours() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.client", directory, "bulk", n=settings.n)

    def limit() -> dict[str, float]:
        with fresh_directory() as directory:
            return run_child("benchmarks.limit", directory, "enqueue", n=settings.n, batch=BATCH)

    values = run_in_turns(settings.rounds, {OURS: ours, LIMIT: limit})
    return [ResultLine(f"bulk enqueue, {BATCH:,} a transaction", "/s", values["rate"])]
