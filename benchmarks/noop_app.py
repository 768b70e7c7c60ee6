"""The application that the measured workers run: one task that only records when it ran.

Configured by environment variables, since the worker imports it by name: `BENCH_CONCURRENCY` (tasks at once),
`BENCH_STARTS` (write a report after this many starts), `BENCH_REPORT` (the file of the report).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from benchmarks.usage import cpu_seconds
from tidegate import Pool, Tidegate

app = Tidegate(pools=[Pool(concurrency=int(os.environ.get("BENCH_CONCURRENCY", "100")))])

_EXPECTED = int(os.environ.get("BENCH_STARTS", "0"))
_starts = 0
_began: dict[str, float] = {}

moments: dict[int, float] = {}
"""When each `mark` started, by its number: monotonic seconds (one clock for the whole machine)."""


@app.task
async def noop(number: int) -> None:
    """Count this start; at the first and the last one, note what process and supervisor have used so far."""
    global _starts
    _starts += 1
    if _starts in (1, _EXPECTED):
        _report()


@app.task
async def mark(number: int) -> None:
    """Record the start; after the last one, write the report."""
    moments[number] = time.monotonic()
    if len(moments) == _EXPECTED:
        _write({str(each): moment for each, moment in moments.items()})


def _report() -> None:
    if _starts == 1:
        _began.update(cpu_seconds=cpu_seconds(os.getpid()) + cpu_seconds(os.getppid()))
    if _starts == _EXPECTED:
        _write({"pid": os.getpid(), "cpu_seconds_at_first": _began["cpu_seconds"]})


def _write(report: dict[str, float]) -> None:
    path = Path(os.environ["BENCH_REPORT"])
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(report))
    beside.replace(path)
