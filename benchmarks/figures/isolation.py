"""Isolation: warm child processes, what they add to a task, what kills cost, 10,000 tasks in flight.

Rates are by the store's own stamps, between the end of the first tenth (start-up and imports are over by
then) and the last end.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from subprocess import Popen

import apsw

from benchmarks import isolation_app
from benchmarks.harness import Contestant, ResultLine, Settings, run_in_turns
from benchmarks.processes import fresh_directory, run_child, wait_until, worker_command
from benchmarks.usage import peak_mib
from benchmarks.worker import pool_process

SLOTS = 4
LEAST_RATE = 1_000
MOST_ADDED_MS = 2.0
KILLS = 200
MOST_SLOWER = 1.10
IN_FLIGHT = 10_000
MOST_MIB = 400
APPLICATION = "benchmarks.isolation_app:app"


def measure(settings: Settings) -> list[ResultLine]:
    """Return the four figures of isolation."""
    n = max(500, settings.n // 4)
    rounds = min(settings.rounds, 3)
    return [_rate(n, rounds), _added(n // 4, rounds), _kills(rounds), _in_flight(rounds)]


def _rate(n: int, rounds: int) -> ResultLine:
    values = run_in_turns(
        rounds, {"child": _drained("child_noop", n, SLOTS), "loop": _drained("loop_noop", n, SLOTS)}
    )
    line = ResultLine(f"`def` no-ops, {SLOTS} child processes", "/s", values["rate"], base="loop")
    line.add_goal(f"≥ {LEAST_RATE:,}/s", line.median("child") >= LEAST_RATE)
    return line


def _added(n: int, rounds: int) -> ResultLine:
    values = run_in_turns(
        rounds, {"child": _drained("child_noop", n, 1), "loop": _drained("loop_noop", n, 1)}
    )
    each = {who: [1000 / rate for rate in rates] for who, rates in values["rate"].items()}
    line = ResultLine("one task after the other, child process", "ms", each, base="loop")
    added = line.median("child") - line.median("loop")
    line.add_goal(f"≤ {MOST_ADDED_MS:g} ms added (added: {added:.2f} ms)", added <= MOST_ADDED_MS)
    return line


def _kills(rounds: int) -> ResultLine:
    """Time to finish 6,000 waits of 0.2 s, 40 at once, with and without 200 tasks that kill their process."""
    values = run_in_turns(rounds, {"with": _waits(KILLS), "without": _waits(0)})
    line = ResultLine(f"6,000 waits of 0.2 s beside {KILLS} kills", "s", values["seconds"], base="without")
    ratio = line.ratio()
    line.add_goal(f"≤ {MOST_SLOWER:g} of the time without", ratio is not None and ratio <= MOST_SLOWER)
    return line


def _in_flight(rounds: int) -> ResultLine:
    values = run_in_turns(min(rounds, 2), {"tidegate": _many_waiting})
    line = ResultLine(f"{IN_FLIGHT:,} tasks in flight in one process", "MiB", values["mib"])
    line.add_goal(f"≤ {MOST_MIB} MiB", line.median("tidegate") <= MOST_MIB)
    return line


def _drained(function: str, n: int, concurrency: int) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory:
            _enqueue(directory, function, n)
            with worker_command(directory, application=APPLICATION, BENCH_CONCURRENCY=concurrency) as worker:
                _until_finished(directory, n, worker)
            return {"rate": _rate_of(directory, n)}

    return run


def _waits(kills: int) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory:
            for _ in range(6):
                _enqueue(directory, "wait", 1_000, value=0.2)
                _enqueue(directory, "kill_own_process", kills // 6 + 1 if kills else 0)
            with worker_command(directory, application=APPLICATION, BENCH_CONCURRENCY=40 + SLOTS) as worker:
                _until_finished(directory, 6_000, worker)
            return {"seconds": 5_400 / _rate_of(directory, 6_000)}

    return run


def _many_waiting() -> dict[str, float]:
    with fresh_directory() as directory:
        _enqueue(directory, "wait", IN_FLIGHT, value=120.0)
        with worker_command(directory, application=APPLICATION, BENCH_CONCURRENCY=IN_FLIGHT) as worker:
            pid = pool_process(worker)
            wait_until(lambda: _count(directory, "running") == IN_FLIGHT, what="all are in flight")
            time.sleep(1.0)  # the last claims have become coroutines
            return {"mib": peak_mib(pid)}


def _enqueue(directory: Path, function: str, n: int, value: float = 0) -> None:
    if n:
        run_child("benchmarks.figures.isolation", directory, function, n=n, value=value)


def _until_finished(directory: Path, n: int, worker: Popen[bytes]) -> None:
    def over() -> bool:
        return worker.poll() is not None or _count(directory, "archive") >= n

    wait_until(over, what=f"{n} tasks are finished", every=0.1)
    if worker.poll() is not None:
        raise RuntimeError(f"the worker ended with exit code {worker.returncode}")


def _count(directory: Path, table: str) -> int:
    db = apsw.Connection(str(directory / "queue.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").get)
    finally:
        db.close()


def _rate_of(directory: Path, n: int) -> float:
    """Return tasks a second over the last nine tenths."""
    db = apsw.Connection(str(directory / "queue.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    ends = [moment for (moment,) in db.execute("SELECT finished_at FROM archive ORDER BY finished_at")]
    db.close()
    first = n // 10
    return (n - first) / (ends[-1] - ends[first - 1])


async def _fill(function: str, n: int, value: float) -> None:
    target = isolation_app.app.function(function)
    await isolation_app.app.enqueue_many(
        target.prepare(value if function == "wait" else number) for number in range(n)
    )
    await isolation_app.app.aclose()


if __name__ == "__main__":
    import json
    import sys

    options = json.loads(sys.argv[2])
    asyncio.run(_fill(sys.argv[1], options["n"], options["value"]))
    print("{}")
