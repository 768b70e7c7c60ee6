"""`PYTHONPATH=tests python -m simulation`: many seeds, or one again."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import click

from simulation.plan import FaultKind, SimulationPlan
from simulation.report import as_json, format_failure, format_table, histories
from simulation.result import SimulationResult, simulate
from simulation.shrink import shrink
from simulation.sweep import sweep

_MOST_FAILURES = 5
"""How many failing runs are printed in full."""
_USUAL = SimulationPlan(0)


def _parse_kinds(ctx: click.Context, param: click.Parameter, text: str | None) -> frozenset[FaultKind]:
    if text is None:
        return _USUAL.faults
    try:
        return frozenset(FaultKind(word) for word in text.split(",") if word not in {"", "none"})
    except ValueError as error:
        raise click.BadParameter(f"{error}; known: {', '.join(FaultKind)}") from error


@click.command(context_settings={"show_default": True})
@click.option("--seeds", default=100, help="How many seeds.")
@click.option("--first", default=0, help="The first of them.")
@click.option("--seed", "single_seed", type=int, help="This seed alone, with the history of what fails.")
@click.option("--tasks", default=_USUAL.tasks, help="Tasks a seed, about.")
@click.option("--leases", default=_USUAL.leases, help="How long faults go on, in leases.")
@click.option(
    "--faults", callback=_parse_kinds, help=f"Kinds, by comma; none: no faults. {', '.join(FaultKind)}"
)
@click.option("--jobs", default=os.cpu_count() or 1, show_default="cores", help="Processes.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures to a file.")
@click.option(
    "--shrink/--no-shrink", "should_shrink", default=True, help="Look for a smaller run that fails alike."
)
def main(
    seeds: int,
    first: int,
    single_seed: int | None,
    tasks: int,
    leases: float,
    faults: frozenset[FaultKind],
    jobs: int,
    json_path: Path | None,
    should_shrink: bool,
) -> None:
    """Run the real engine on the real SQLite store in virtual time, with faults, and check the history.

    The same seed gives the same history. Exit code 1 if an invariant was broken.
    """
    seeds_to_run = range(first, first + seeds) if single_seed is None else [single_seed]
    plans = [SimulationPlan(seed, tasks=tasks, leases=leases, faults=faults) for seed in seeds_to_run]
    began_at = time.monotonic()
    totals = sweep(plans, jobs=min(jobs, len(plans)), on_result=_print_failure)
    seconds = time.monotonic() - began_at
    for result in totals.failed[:_MOST_FAILURES]:
        click.echo("\n".join(format_failure(result, _shrunk(result) if should_shrink else None)))
        click.echo("\n".join(histories(result)))
    if len(totals.failed) > _MOST_FAILURES:
        click.echo(f"and seeds {', '.join(str(v.plan.seed) for v in totals.failed[_MOST_FAILURES:])}")
    click.echo("\n".join(format_table(totals, seconds)))
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(totals, plans, seconds), indent=2) + "\n")
    sys.exit(1 if totals.failed else 0)


def _print_failure(result: SimulationResult) -> None:
    if result.violations:
        click.echo(f"seed {result.plan.seed} breaks {', '.join(sorted(result.broken))}", err=True)


def _shrunk(result: SimulationResult) -> SimulationPlan:
    return shrink(result.plan, lambda plan: bool(simulate(plan).broken & result.broken))


if __name__ == "__main__":
    main()
