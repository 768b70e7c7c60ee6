"""The command: run the scenarios, print a table with the goals, keep every call as JSON."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import asdict

from benchmarks import report
from benchmarks.economics.figures import Figure, figures
from benchmarks.economics.scenarios import Scenario, ours, reference, scenarios
from benchmarks.harness import log_progress


def main(argv: list[str]) -> int:
    """Run the chosen scenarios; return the exit code: 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.economics")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="parts of scenario names; all of them without"
    )
    parser.add_argument(
        "--scale", type=float, default=0.2, help="of outages' times; 1: a minute (default: 0.2)"
    )
    parser.add_argument("--database", metavar="URL", help="a PostgreSQL database; SQLite files without")
    parser.add_argument(
        "--json", metavar="FILE", help="write machine, versions, figures and every call there"
    )
    select_contestants = parser.parse_args(argv)
    wanted = [
        s
        for s in scenarios(select_contestants.scale)
        if not select_contestants.names or any(n in s.name for n in select_contestants.names)
    ]
    if not wanted:
        parser.error(f"no scenario is named so; there are: {', '.join(s.name for s in scenarios(1))}")
    began_at, found, runs = time.time(), [], {}
    for scenario in wanted:
        made, calls = asyncio.run(_measured(scenario, select_contestants.database))
        found += made
        runs[scenario.name] = calls
    print(table(found))
    if select_contestants.json:
        report.write(
            select_contestants.json,
            {
                "began_at": began_at,
                "ended_at": time.time(),
                "machine": report.machine(),
                "versions": report.versions(),
                "commit": report.commit(),
                "settings": {"scale": select_contestants.scale},
                "figures": [asdict(figure) for figure in found],
                "calls": runs,
            },
        )
    return 0 if all(figure.met for figure in found) else 1


async def _measured(scenario: Scenario, database: str | None) -> tuple[list[Figure], dict[str, object]]:
    log_progress(f"{scenario.name}: {scenario.tasks} tasks at {scenario.quota:g} calls a second")
    ideal = await reference(scenario)
    run = await ours(scenario, database)
    calls = {"ours": [[c.at, c.task, c.status] for c in run.calls], "reference": len(ideal.calls)}
    return figures(scenario, run, ideal), calls


def table(found: list[Figure]) -> str:
    """Return the figures as a table, the goals marked."""
    rows = [("scenario", "figure", "tidegate", "reference", "goal", "")]
    rows += [
        (f.scenario, f.name, f"{f.ours:.4g}", f"{f.reference:.4g}", f.goal, "met" if f.met else "NOT MET")
        for f in found
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    format_table = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([format_table[0], "  ".join("-" * width for width in widths), *format_table[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
