"""CPU time of a task in two checkouts, side by side: what a busy machine can still compare.

    python -m benchmarks.paired_cpu ../before . --rounds 5 --json out.json

Both checkouts need their own `.venv`. Rounds take turns, each on a fresh database. A client enqueues tasks
one by one and 1,000 a call; then a worker process drains 5,000 of them, and its threads' CPU time is read
from `/proc` between the 500th and the last one. Rates are not compared: they depend on what else the machine
does.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import log_progress
from benchmarks.peers import servers
from benchmarks.usage import tree_cpu_seconds

SINGLE, MANY = 300, 5_000

_APP = f"""
import glob, os, threading
from tidegate import Pool, Tidegate
app = Tidegate(pools=[Pool(concurrency=1000)])
ended, before = 0, {{}}

def used():
    names = {{thread.native_id: thread.name for thread in threading.enumerate()}}
    found = {{int(path.rsplit("/")[-1]): path for path in glob.glob("/proc/self/task/*")}}
    return {{names.get(tid, str(tid)): int(open(path + "/schedstat").read().split()[0]) / 1e3
            for tid, path in found.items()}}

@app.task
async def noop(number: int) -> None:
    global ended, before
    ended += 1
    if ended == 500:
        before = used()
    if ended == {MANY}:
        print({{name: (us - before.get(name, 0)) / (ended - 500) for name, us in used().items()}}, flush=True)
        os.kill(os.getppid(), 15)
"""
_CLIENT = f"""
import asyncio, os, time, paired_app
from tidegate.store.connect import open_store

async def main():
    store = open_store(os.environ["TIDEGATE_DATABASE_URL"])
    await store.migrate()
    await store.close()
    for number in range(50):
        await paired_app.noop.enqueue(number)
    began = time.process_time()
    for number in range({SINGLE}):
        await paired_app.noop.enqueue(number)
    single = time.process_time() - began
    began = time.process_time()
    for first in range(0, {MANY}, 1000):
        await paired_app.app.enqueue_many([paired_app.noop.prepare(number) for number in range(1000)])
    print({{"single": single / {SINGLE} * 1e6, "many": (time.process_time() - began) / {MANY} * 1e6}})

asyncio.run(main())
"""


class SqliteFiles:
    """Gives a file for each round."""

    pid = None

    @contextlib.contextmanager
    def fresh(self) -> Iterator[str]:
        """Give the URL of a new file for a block."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as directory:
            yield f"sqlite:///{directory}/queue.db"


def main(argv: list[str]) -> int:
    """Measure both checkouts; print microseconds of a task and the ratio after ÷ before."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired_cpu")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    trees = {"before": asked.before.resolve(), "after": asked.after.resolve()}
    figures: dict[str, dict[str, list[float]]] = {}
    with servers.postgresql() as postgresql, tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "paired_app.py").write_text(_APP)
        for store, places in {"postgresql": postgresql, "sqlite": SqliteFiles()}.items():
            for number in range(asked.rounds):
                for who in sorted(trees, reverse=number % 2 == 0):
                    log_progress(f"{store}, round {number + 1} of {asked.rounds}: {who}")
                    with places.fresh() as url:
                        values = _round(trees[who], url, directory, places.pid)
                    for name, value in values.items():
                        figures.setdefault(f"{store}: {name}", {}).setdefault(who, []).append(value)
    if asked.json:
        asked.json.write_text(json.dumps({"unit": "µs of CPU a task", "figures": figures}, indent=1) + "\n")
    for name, rounds in figures.items():
        before, after = (statistics.median(rounds[who]) for who in trees)
        ratio = statistics.median(
            one / two for one, two in zip(rounds["after"], rounds["before"], strict=True)
        )
        print(f"{name:40} {before:8.1f} {after:8.1f}   {ratio:.2f}")
    return 0


def _round(tree: Path, url: str, directory: str, server: int | None) -> dict[str, float]:
    def server_used() -> float:
        return tree_cpu_seconds(server) * 1e6 if server else 0.0

    own = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    env = own | {"TIDEGATE_DATABASE_URL": url, "PYTHONPATH": directory}
    python = str(tree / ".venv" / "bin" / "python")
    began = server_used()
    values = _answer([python, "-c", _CLIENT], directory, env)
    enqueued = server_used()
    threads = _answer([python, "-m", "tidegate.cli", "worker", "paired_app:app"], directory, env)
    values["worker, main thread"] = threads["MainThread"]
    values["worker, all threads"] = sum(threads.values())
    if server:
        values["server, enqueue"] = (enqueued - began) / (50 + SINGLE + MANY)
        values["server, drain"] = (server_used() - enqueued) / (50 + SINGLE + MANY)
    return values


def _answer(command: list[str], directory: str, env: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        command, cwd=directory, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not found:
        raise RuntimeError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    values: dict[str, float] = ast.literal_eval(found[-1])
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
