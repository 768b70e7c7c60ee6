"""One round of draining a full queue with a real `tidegate worker`, measured from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path
from subprocess import Popen

import apsw

from benchmarks.processes import wait_until, worker_command
from benchmarks.usage import children, command_line, cpu_seconds, peak_mib


def drain(directory: Path, *, n: int, concurrency: int) -> dict[str, float]:
    """Start a worker on the `n` ready tasks in `directory`; return its rate, CPU and peak memory.

    The rate counts from the first claim to the last finish, both by the store's own stamps, so start-up is
    left out and nothing is asked of the worker meanwhile. CPU is that of pool process and supervisor over
    the same time; memory is the pool process's.
    """
    report = directory / "report.json"
    started_at = time.time()
    env = {"BENCH_CONCURRENCY": concurrency, "BENCH_STARTS": n, "BENCH_REPORT": report}
    with worker_command(directory, **env) as worker:
        _until_report(report, worker)
        first = json.loads(report.read_text())
        pid = int(first["pid"])
        db = apsw.Connection(str(directory / "queue.db"), flags=apsw.SQLITE_OPEN_READWRITE)
        wait_until(
            lambda: not db.execute("SELECT EXISTS (SELECT 1 FROM running)").get, what="all are finished"
        )
        cpu = cpu_seconds(pid) + cpu_seconds(worker.pid) - first["cpu_seconds_at_first"]
        memory = peak_mib(pid)
        [(finished, seconds)] = db.execute(
            "SELECT count(*), max(finished_at) - min(started_at) FROM archive WHERE finished_at >= ?",
            (started_at,),
        )
        db.close()
    assert finished == n, f"{finished} of {n} tasks were finished"
    return {"rate": n / seconds, "cpu": cpu / n * 1000, "memory": memory}


def pool_process(worker: Popen[bytes]) -> int:
    """Wait for the worker's one pool process, and return its pid."""
    wait_until(
        lambda: bool(_pool_processes(worker)) or worker.poll() is not None, what="the pool process starts"
    )
    if worker.poll() is not None:
        raise RuntimeError(f"the worker ended with exit code {worker.returncode}")
    return _pool_processes(worker)[0]


def _pool_processes(worker: Popen[bytes]) -> list[int]:
    """Return the children that run tasks; another reads the manifest first and is gone soon."""
    return [pid for pid in children(worker.pid) if b"tidegate.worker.engine.pool_main" in command_line(pid)]


def _until_report(report: Path, worker: Popen[bytes]) -> None:
    wait_until(lambda: report.exists() or worker.poll() is not None, what="all tasks have started")
    if not report.exists():
        raise RuntimeError(f"the worker ended with exit code {worker.returncode}")
