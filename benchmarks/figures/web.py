"""The HTTP API: CPU of a submit and p99 of a status beside bare FastAPI endpoints, and lag of followers.

The load comes from another process, by the clock. The bare endpoints make the same store calls and nothing
else: no access, no limits, no audit log, no tags.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import OURS, Contestant, ResultLine, Settings, run_in_turns
from benchmarks.processes import environment, fresh_directory, run_child, worker_command
from benchmarks.usage import cpu_seconds, peak_mib
from benchmarks.worker import pool_process

BARE = "bare"
SUBMITS_PER_SECOND = 150
STATUSES_PER_SECOND = 300
SECONDS = 10
MOST_CPU = 1.3
MOST_P99 = 3.0

FOLLOWERS = 1_000
MOST_FOLLOWER_LAG_MS = 300
MOST_MIB = 300
EMITTING = 50
CHUNKS_PER_SECOND = 200
MOST_READER_LAG_MS = 200

LOAD = "benchmarks.web.load"
SITE = "benchmarks.web.site"


def measure(settings: Settings) -> list[ResultLine]:
    """Return CPU of a submit, p99 of a status, and the lag and memory of streams."""
    seconds = min(SECONDS, max(1, settings.n // 2_000))
    return [
        _submit(settings.rounds, seconds),
        _status(settings.rounds, seconds),
        *_followers(settings.rounds, seconds),
        _readers(settings.rounds, seconds),
    ]


def _submit(rounds: int, seconds: int) -> ResultLine:
    values = run_in_turns(rounds, {who: _submitted(who, seconds) for who in (OURS, BARE)})
    line = ResultLine(f"submit at {SUBMITS_PER_SECOND}/s, CPU of one", "ms", values["cpu"], base=BARE)
    ratio = line.ratio()
    line.add_goal(f"≤ {MOST_CPU:g} of bare", ratio is not None and ratio <= MOST_CPU)
    return line


def _status(rounds: int, seconds: int) -> ResultLine:
    values = run_in_turns(rounds, {who: _asked(who, seconds) for who in (OURS, BARE)})
    line = ResultLine(f"status at {STATUSES_PER_SECOND}/s, p99", "ms", values["p99"], base=BARE)
    ratio = line.ratio()
    line.add_goal(f"≤ {MOST_P99:g} of bare", ratio is not None and ratio <= MOST_P99)
    return line


def _followers(rounds: int, seconds: int) -> list[ResultLine]:
    gap = EMITTING / CHUNKS_PER_SECOND * 4
    values = run_in_turns(rounds, {OURS: _followed(FOLLOWERS // EMITTING, gap, seconds)})
    lag = ResultLine(f"{FOLLOWERS:,} followers, p99 lag", "ms", values["p99"])
    lag.add_goal(f"≤ {MOST_FOLLOWER_LAG_MS} ms", lag.median(OURS) <= MOST_FOLLOWER_LAG_MS)
    lag.note = f"{EMITTING} tasks, a chunk each {gap:g} s, {FOLLOWERS // EMITTING} followers each"
    memory = ResultLine(f"{FOLLOWERS:,} followers, memory", "MiB", values["mib"])
    memory.add_goal(f"≤ {MOST_MIB} MiB", memory.median(OURS) <= MOST_MIB)
    return [lag, memory]


def _readers(rounds: int, seconds: int) -> ResultLine:
    values = run_in_turns(rounds, {OURS: _followed(1, EMITTING / CHUNKS_PER_SECOND, seconds)})
    line = ResultLine(f"{EMITTING} tasks, {CHUNKS_PER_SECOND} chunks/s, p99 reader lag", "ms", values["p99"])
    line.add_goal(f"≤ {MOST_READER_LAG_MS} ms", line.median(OURS) <= MOST_READER_LAG_MS)
    return line


def _submitted(who: str, seconds: int) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory, _served(who, directory) as (pid, port):
            run_child(LOAD, directory, "submits", port=port, rate=SUBMITS_PER_SECOND, n=100)  # warm
            before, n = cpu_seconds(pid), SUBMITS_PER_SECOND * seconds
            run_child(LOAD, directory, "submits", port=port, rate=SUBMITS_PER_SECOND, n=n)
            return {"cpu": (cpu_seconds(pid) - before) / n * 1000}

    return run


def _asked(who: str, seconds: int) -> Contestant:
    def run() -> dict[str, float]:
        with fresh_directory() as directory, _served(who, directory) as (_, port):
            n = STATUSES_PER_SECOND * seconds
            return run_child(LOAD, directory, "statuses", port=port, rate=STATUSES_PER_SECOND, n=n)

    return run


def _followed(each: int, gap: float, seconds: int) -> Contestant:
    def run() -> dict[str, float]:
        with (
            fresh_directory() as directory,
            _served(OURS, directory) as (pid, port),
            worker_command(directory, application=f"{SITE}:app") as worker,
        ):
            pool_process(worker)
            options = {"tasks": EMITTING, "each": each, "gap": gap, "seconds": seconds + 1}
            reported = run_child(LOAD, directory, "followers", port=port, **options)
            return reported | {"mib": peak_mib(pid)}

    return run


@contextmanager
def _served(who: str, directory: Path) -> Iterator[tuple[int, int]]:
    """Serve a site for the block; give its pid and port."""
    command = [sys.executable, "-m", SITE, who]
    env = environment(directory) | {"PYTHONUNBUFFERED": "1"}
    with (directory / "site.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError((directory / "site.log").read_text(errors="replace")[-4000:])
        yield process.pid, int(line)
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()
