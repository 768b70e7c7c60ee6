"""The results, as one table for people and as JSON for machines."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import report
from benchmarks.harness import Settings
from benchmarks.peers.catalogue import Contestant
from benchmarks.peers.goals import GoalResult
from benchmarks.peers.results import Results

HEAD = (
    "queue",
    "on",
    "bulk/s",
    "single/s",
    "drain/s",
    "CPU s/1,000 worker + server",
    "MiB",
    "two/s",
    "pickup p50 / p99 ms",
    "grown/s (of fresh)",
    "noise",
)
_LEGEND = (
    "bulk, single: tasks stored a second by one client, 1,000 a call and one by one (–: no such call).",
    "drain: one worker process on a full queue; two: two of them; grown: one beside old rows. The rate is",
    "from the first body's beginning to the last one's; CPU and peak memory are of the worker's processes.",
    "pickup: enqueue call → first line of the body, an idle worker in another process.",
    "held: a claim's time while a snapshot is held open, at 300 tasks/s; only among the goals.",
    "noise: mean cores kept busy by others. Above 0.3, rates are lower bounds: trust ratios and CPU.",
)


def format_table(
    results: Results, verdicts: Sequence[GoalResult], versions: Mapping[str, str], settings: Settings
) -> str:
    """Return the table, the goals and what the rows mean."""
    rows = [HEAD, *(_row(each, results, versions) for each in results.contestants)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    lines = [_aligned(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{each.name}: {each.note}{_shared(each)}" for each in results.contestants]
    goals = ["goals of tidegate:", *(f"  {each}" for each in verdicts), ""] if verdicts else []
    return "\n".join([*_head(versions, settings), "", *lines, "", *goals, *notes, "", *_LEGEND])


def write_json(
    path: str,
    results: Results,
    verdicts: Sequence[GoalResult],
    versions: Mapping[str, str],
    settings: Settings,
    began_at: float,
) -> None:
    """Write machine, versions, settings, every round of every contestant, and the goals."""
    report.write(
        path,
        {
            "began_at": began_at,
            "ended_at": time.time(),
            "machine": report.machine(),
            "versions": report.versions() | dict(versions),
            "commit": report.commit(),
            "settings": {"n": settings.n, "rounds": settings.rounds},
            "contestants": [_plain(each, results) for each in results.contestants],
            "goals": [{"text": each.goal, "reached": each.reached, "met": each.is_met} for each in verdicts],
        },
    )


def _head(versions: Mapping[str, str], settings: Settings) -> list[str]:
    here, servers = report.machine(), [name for name in ("postgresql", "redis") if name in versions]
    return [
        f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}",
        ", ".join([f"Python {platform.python_version()}", *(f"{name} {versions[name]}" for name in servers)]),
        f"commit {report.commit() or 'none'}; n = {settings.n:,}, {settings.rounds} rounds",
    ]


def _row(contestant: Contestant, results: Results, versions: Mapping[str, str]) -> tuple[str, ...]:
    def median(value: str, digits: int = 0) -> str:
        found = results.median(contestant.name, value)
        return "–" if found is None else f"{found:,.{digits}f}"

    def pair(first: str, second: str, between: str, digits: int) -> str:
        both = median(first, digits), median(second, digits)
        return "–" if "–" in both else between.join(both)

    noise = results.of(contestant.name, "noise")
    return (
        " ".join(filter(None, (contestant.name, versions.get(contestant.package, "")))),
        contestant.store,
        median("bulk.rate"),
        median("single.rate"),
        median("drain.rate"),
        pair("drain.worker_cpu", "drain.server_cpu", " + ", 3),
        median("drain.memory"),
        median("two.rate"),
        pair("pickup.p50", "pickup.p99", " / ", 1),
        _with_old_rows(contestant.name, results),
        f"{statistics.mean(noise):.1f}" if noise else "–",
    )


def _with_old_rows(name: str, results: Results) -> str:
    rate, ratio = results.median(name, "grown.rate"), results.ratio(name, "grown.rate", name, "drain.rate")
    if rate is None:
        return "–"
    return f"{rate:,.0f}" + ("" if ratio is None else f" ({ratio:.2f})")


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    words = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
    words += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join(words).rstrip()


def _shared(contestant: Contestant) -> str:
    return "" if contestant.share == 1 else f"; given {contestant.share:g} of the tasks"


def _plain(contestant: Contestant, results: Results) -> dict[str, Any]:
    rounds = {value: results.of(contestant.name, value) for value in results.rounds}
    measured = {value: found for value, found in rounds.items() if found}
    return {
        "name": contestant.name,
        "store": contestant.store,
        "note": contestant.note,
        "share": contestant.share,
        "rounds": measured,
        "medians": {value: statistics.median(found) for value, found in measured.items()},
    }
