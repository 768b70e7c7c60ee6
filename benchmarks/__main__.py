"""The command: measure some figures, print a table, keep every round as JSON."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from benchmarks import report
from benchmarks.harness import ResultLine, Settings, log_progress
from benchmarks.usage import BackgroundLoad

FIGURES = (
    "bulk_enqueue",
    "single_enqueue",
    "drain",
    "pickup",
    "old_rows",
    "idle",
    "imports",
    "isolation",
    "web",
    "testing",
    "schedules",
    "limited",
)


def main(argv: list[str]) -> int:
    """Run the named figures, or all if none is named; return the exit code."""
    select_contestants = _arguments(argv)
    settings = Settings(n=select_contestants.n, rounds=select_contestants.rounds)
    began_at = time.time()
    lines: list[ResultLine] = []
    for name in select_contestants.figures or FIGURES:
        log_progress(f"{name}: {_about(name)}")
        noise = BackgroundLoad()
        measured = importlib.import_module(f"benchmarks.figures.{name}").measure(settings)
        for line in measured:
            line.noise_cores = noise.cores()
        lines += measured
    if select_contestants.json:
        report.write_json(select_contestants.json, lines, settings, began_at)
    print(report.table(lines, settings))
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Tidegate beside the limit of this machine."
    )
    parser.add_argument("figures", nargs="*", metavar="NAME", help=f"some of: {', '.join(FIGURES)}")
    parser.add_argument("--json", metavar="FILE", help="write machine, versions and every round there")
    parser.add_argument("--n", type=int, default=20_000, help="tasks drained in a round (default: 20,000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each contestant (default: 5)")
    select_contestants = parser.parse_args(argv)
    unknown = sorted(set(select_contestants.figures) - set(FIGURES))
    if unknown:
        parser.error(f"there is no figure {unknown[0]!r}; choose from {', '.join(FIGURES)}")
    if select_contestants.n < 100 or select_contestants.rounds < 1:
        parser.error("use --n 100 or more and --rounds 1 or more")
    return select_contestants


def _about(name: str) -> str:
    """Return the first line of a figure's docstring."""
    text = importlib.import_module(f"benchmarks.figures.{name}").__doc__ or ""
    return text.split("\n", 1)[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
