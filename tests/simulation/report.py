"""What the command prints: a table of figures, each failure with the command that repeats it, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from simulation.plan import SimulationPlan
from simulation.result import SimulationResult
from simulation.sweep import SweepTotals
from tidegate._version import __version__

_MOST_VIOLATIONS = 8


def format_table(totals: SweepTotals, seconds: float) -> Iterator[str]:
    """Yield the lines of the summary."""
    size = totals.size
    yield from _format_block(
        f"{totals.seeds:,} seeds in {seconds:.0f} s",
        {
            "steps": f"{size['steps']:,}",
            "virtual hours": f"{size['virtual seconds'] / 3600:.1f}",
            "crashes": f"{size['crashes']:,}",
            "workers started": f"{size['worker machines']:,}",
            "tasks": f"{size['tasks']:,}",
            "runs": f"{size['runs']:,}",
            "seeds that broke an invariant": f"{len(totals.failed):,}",
        },
    )
    yield from _format_block("faults", _format_counts(totals.faults))
    yield from _format_block("met", _format_counts(totals.outcomes))


def format_failure(result: SimulationResult, smaller: SimulationPlan | None = None) -> Iterator[str]:
    """Yield the lines that describe a failing run."""
    yield f"seed {result.plan.seed} breaks {', '.join(sorted(result.broken))}"
    for violation in result.violations[:_MOST_VIOLATIONS]:
        yield f"  {violation}"
    if len(result.violations) > _MOST_VIOLATIONS:
        yield f"  … and {len(result.violations) - _MOST_VIOLATIONS} more"
    yield f"  repeat it: {result.plan.command()}"
    if smaller is not None and smaller != result.plan:
        yield f"  smaller:   {smaller.command()}"


def histories(result: SimulationResult) -> Iterator[str]:
    """Yield the histories of the tasks at fault."""
    at_fault = dict.fromkeys(violation.task_id for violation in result.violations if violation.task_id)
    for task_id, lines in zip(at_fault, result.histories, strict=False):
        yield f"  task {task_id}"
        yield from (f"    {line}" for line in lines)


def as_json(totals: SweepTotals, plans: list[SimulationPlan], seconds: float) -> dict[str, Any]:
    """Return the whole run for a file: its plan, its faults and its outcome."""
    return {
        "version": __version__,
        "seeds": totals.seeds,
        "first_seed": plans[0].seed if plans else None,
        "tasks_a_seed": plans[0].tasks if plans else None,
        "duration_s": round(seconds, 1),
        "steps": totals.size["steps"],
        "virtual_hours": round(totals.size["virtual seconds"] / 3600, 2),
        "crashes": totals.size["crashes"],
        "size": dict(sorted(totals.size.items())),
        "faults": dict(sorted(totals.faults.items())),
        "met": dict(sorted(totals.outcomes.items())),
        "failed": [
            {
                "seed": result.plan.seed,
                "command": result.plan.command(),
                "violations": [str(violation) for violation in result.violations],
            }
            for result in totals.failed
        ],
    }


def _format_block(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield title
    width = max((len(name) for name in rows), default=0)
    for name, value in rows.items():
        yield f"  {name:<{width}}  {value:>12}"


def _format_counts(counter: Counter[str]) -> dict[str, str]:
    return {name: f"{number:,}" for name, number in sorted(counter.items()) if number}
