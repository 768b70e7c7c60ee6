"""Start-up: `import tidegate` and `tidegate --help`, each beside `python -c pass`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Contestant, ResultLine, Settings, run_in_turns

LEAST_ROUNDS = 15
BARE = "python -c pass"
GOALS = {"import tidegate": 4.0, "tidegate --help": 6.0}


def measure(settings: Settings) -> list[ResultLine]:
    """Return milliseconds of a whole process. At least 15 rounds: they are short."""
    script = Path(sys.executable).with_name("tidegate")
    helped = [str(script)] if script.exists() else [sys.executable, "-m", "tidegate.cli"]
    contestants = {
        "import tidegate": _timed([sys.executable, "-c", "import tidegate"]),
        "tidegate --help": _timed([*helped, "--help"]),
        BARE: _timed([sys.executable, "-c", "pass"]),
    }
    for run in contestants.values():
        run()  # writes and warms what is read from disk
    values = run_in_turns(max(LEAST_ROUNDS, settings.rounds), contestants)["ms"]
    lines = []
    for what, most in GOALS.items():
        line = ResultLine(what, "ms", {what: values[what], BARE: values[BARE]}, base=BARE)
        ratio = line.ratio()
        line.add_goal(f"≤ {most:g}×", ratio is not None and ratio <= most)
        lines.append(line)
    return lines


def _timed(command: Sequence[str]) -> Contestant:
    def run() -> dict[str, float]:
        began_at = time.perf_counter()
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        return {"ms": (time.perf_counter() - began_at) * 1000}

    return run
