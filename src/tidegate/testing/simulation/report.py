"""What the command prints: a table of figures, each failure with the command that repeats it, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate._version import __version__
from tidegate.testing.simulation.figures import Verdict
from tidegate.testing.simulation.plan import Plan
from tidegate.testing.simulation.sweep import Totals

_MOST_VIOLATIONS = 8


def table(totals: Totals, seconds: float) -> Iterator[str]:
    """Yield the lines of the summary."""
    size = totals.size
    yield from _block(
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
    yield from _block("faults", _counted(totals.faults))
    yield from _block("met", _counted(totals.met))


def failure(verdict: Verdict, smaller: Plan | None = None) -> Iterator[str]:
    """Yield the lines that tell of a failing run."""
    yield f"seed {verdict.plan.seed} breaks {', '.join(sorted(verdict.broken))}"
    for violation in verdict.violations[:_MOST_VIOLATIONS]:
        yield f"  {violation}"
    if len(verdict.violations) > _MOST_VIOLATIONS:
        yield f"  … and {len(verdict.violations) - _MOST_VIOLATIONS} more"
    yield f"  repeat it: {verdict.plan.command()}"
    if smaller is not None and smaller != verdict.plan:
        yield f"  smaller:   {smaller.command()}"


def stories(verdict: Verdict) -> Iterator[str]:
    """Yield the histories of the tasks at fault."""
    at_fault = dict.fromkeys(violation.task_id for violation in verdict.violations if violation.task_id)
    for task_id, lines in zip(at_fault, verdict.stories, strict=False):
        yield f"  task {task_id}"
        yield from (f"    {line}" for line in lines)


def as_json(totals: Totals, plans: list[Plan], seconds: float) -> dict[str, Any]:
    """Return everything for a file: what was run, what was done to it, what came of it."""
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
        "met": dict(sorted(totals.met.items())),
        "failed": [
            {
                "seed": verdict.plan.seed,
                "command": verdict.plan.command(),
                "violations": [str(violation) for violation in verdict.violations],
            }
            for verdict in totals.failed
        ],
    }


def _block(title: str, rows: Mapping[str, str]) -> Iterator[str]:
    yield title
    width = max((len(name) for name in rows), default=0)
    for name, value in rows.items():
        yield f"  {name:<{width}}  {value:>12}"


def _counted(counter: Counter[str]) -> dict[str, str]:
    return {name: f"{number:,}" for name, number in sorted(counter.items()) if number}
