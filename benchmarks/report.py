"""What was measured, as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import ResultLine, Settings
from benchmarks.processes import ROOT

PACKAGES = ("tidegate", "apsw", "msgspec", "click")
NOISY_CORES = 0.3


def table(lines: Sequence[ResultLine], settings: Settings) -> str:
    """Return the table and what it was measured on."""
    rows: list[tuple[str, ...]] = [("figure", "median", "limit", "ratio", "others", "goal", "noise")]
    rows += [_row(line) for line in lines]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    format_table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    format_table.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{line.label}: {line.note}" for line in lines if line.note]
    return "\n".join([*_head(settings), "", *format_table, "", *notes, *_legend(lines)])


def write_json(path: str, lines: Sequence[ResultLine], settings: Settings, began_at: float) -> None:
    """Write machine, versions, settings and every round of every line."""
    whole = {
        "began_at": began_at,
        "ended_at": time.time(),
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "settings": {"n": settings.n, "rounds": settings.rounds, "synchronous": "FULL"},
        "lines": [_plain(line) for line in lines],
    }
    write(path, whole)


def write(path: str, whole: Mapping[str, Any]) -> None:
    """Write it as JSON that people can read too, in a folder that may be new."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Return what the figures depend on most."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Return Python's, SQLite's and every package's version; a package that is missing is left out."""
    import apsw

    found = {"python": platform.python_version(), "sqlite": apsw.sqlite_lib_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit that was measured, marked when the tree differs from it; empty without one."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _row(line: ResultLine) -> tuple[str, ...]:
    ratio = line.ratio()
    others = [who for who in line.rounds if who not in (line.subject, line.base)]
    return (
        line.label,
        _value(line.median(line.subject), line.unit),
        _value(line.median(line.base), line.unit) if line.base in line.rounds else "",
        "" if ratio is None else f"{ratio:.2f}",
        ", ".join(f"{who} {_value(line.median(who), line.unit)}" for who in others),
        "; ".join(f"{goal.text}: {'met' if goal.is_met else 'NOT MET'}" for goal in line.goals),
        f"{line.noise_cores:.1f}",
    )


def _value(value: float, unit: str) -> str:
    digits = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}"


def _head(settings: Settings) -> list[str]:
    here, found = machine(), versions()
    return [
        f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}",
        ", ".join(f"{name} {number}" for name, number in found.items()),
        f"commit {commit() or 'none'}; n = {settings.n:,}, {settings.rounds} rounds, synchronous = FULL",
    ]


def _legend(lines: Sequence[ResultLine]) -> list[str]:
    legend = [
        "limit: a hand-written loop doing the same row work in the same run (start-up: python -c pass).",
        "ratio: median over the rounds of ours ÷ limit; for rates more is better, for all else less.",
        "noise: mean cores kept busy by other processes meanwhile.",
    ]
    if any(line.noise_cores > NOISY_CORES for line in lines):
        legend.append("Some noise was high: trust the ratios and the CPU seconds, not the rates.")
    return legend


def _plain(line: ResultLine) -> dict[str, Any]:
    return {
        "label": line.label,
        "unit": line.unit,
        "subject": line.subject,
        "base": line.base,
        "rounds": line.rounds,
        "medians": {who: line.median(who) for who in line.rounds},
        "ratio": line.ratio(),
        "ratios": {who: line.ratio(who) for who in line.rounds if who != line.subject},
        "goals": [{"text": goal.text, "met": goal.is_met} for goal in line.goals],
        "note": line.note,
        "noise_cores": line.noise_cores,
    }
