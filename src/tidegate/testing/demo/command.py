"""From a plan to an exit code: where things are kept, what is printed, what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json as json_format
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import click

from tidegate.errors import OptionError
from tidegate.testing.demo.plan import Plan
from tidegate.testing.demo.report import Report, judge, table_rows
from tidegate.testing.demo.story import Outcome, Story
from tidegate.testing.demo.view import make_view

_FAULTS_SHOWN = 10
_INTERRUPTED, _TERMINATED = 130, 143


def run_and_report(plan: Plan, *, json: bool, directory: Path | None) -> int:
    """Run the demo, print how it ended and return the exit code; see `run_demo`."""
    kept = directory is not None
    place = (directory or Path(tempfile.mkdtemp(prefix="tidegate-demo-"))).resolve()
    place.mkdir(parents=True, exist_ok=True)
    if (place / "queue.db").exists():
        raise OptionError(f"{place} holds the queue of another demo", fix="name an empty directory")
    talk = sys.stderr if json else sys.stdout
    code = 1
    try:
        outcome = asyncio.run(_run(plan, place, talk))
        if outcome is None:
            code = _TERMINATED
            return code
        report = judge(outcome)
        code = 1 if report.faults else 0
        _print(report, talk, json=json)
    except KeyboardInterrupt:
        code = _INTERRUPTED
        click.echo("interrupted", file=talk)
    finally:
        if not kept and code in (0, _INTERRUPTED, _TERMINATED):
            shutil.rmtree(place, ignore_errors=True)
        elif code == 1:
            click.echo(f"queue, ledgers and logs are kept in {place}", file=talk)
    return code


async def _run(plan: Plan, place: Path, talk: TextIO) -> Outcome | None:
    """Return how it went; None if SIGTERM ended it."""
    view = make_view(talk)
    try:
        story = asyncio.create_task(Story(plan, place, view).run(), name="demo")
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            story.cancel()

        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # only in a main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await story
        except asyncio.CancelledError:
            if terminated:
                return None
            raise
    finally:
        view.close()


def _print(report: Report, talk: TextIO, *, json: bool) -> None:
    if json:
        click.echo(json_format.dumps(report.to_plain()))
    else:
        _print_table(report, talk)
        if not report.faults:
            click.echo("Nothing was lost, and nothing ran twice without a recorded reason.", file=talk)
    for fault in report.faults[:_FAULTS_SHOWN]:
        click.echo(f"FAULT  {fault}", file=talk)
    if len(report.faults) > _FAULTS_SHOWN:
        click.echo(f"FAULT  and {len(report.faults) - _FAULTS_SHOWN} more", file=talk)


def _print_table(report: Report, talk: TextIO) -> None:
    rows = table_rows(report)
    if talk.isatty() and find_spec("rich") is not None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column()
        for name, value in rows:
            table.add_row(name, value)
        Console(file=talk, highlight=False).print(table)
        return
    width = max(len(name) for name, _ in rows)
    click.echo("", file=talk)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}", file=talk)
