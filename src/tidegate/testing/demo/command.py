"""Run a demo plan, print the report, clean up, and return the exit code."""

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
from tidegate.testing.demo.demo_run import DemoOutcome, DemoRun
from tidegate.testing.demo.plan import DemoPlan
from tidegate.testing.demo.report import DemoReport, make_report, table_rows
from tidegate.testing.demo.view import make_view

_FAULTS_SHOWN = 10
_INTERRUPTED, _TERMINATED = 130, 143


def run_and_report(plan: DemoPlan, *, json: bool, directory: Path | None) -> int:
    """Run the demo, print a report and return the exit code; see `run_demo`."""
    kept = directory is not None
    directory = (directory or Path(tempfile.mkdtemp(prefix="tidegate-demo-"))).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / "queue.db").exists():
        raise OptionError(f"{directory} holds the queue of another demo", fix="give an empty directory")
    stream = sys.stderr if json else sys.stdout
    code = 1
    try:
        outcome = asyncio.run(_run(plan, directory, stream))
        if outcome is None:
            code = _TERMINATED
            return code
        report = make_report(outcome)
        code = 1 if report.faults else 0
        _print(report, stream, json=json)
    except KeyboardInterrupt:
        code = _INTERRUPTED
        click.echo("interrupted", file=stream)
    finally:
        if not kept and code in (0, _INTERRUPTED, _TERMINATED):
            shutil.rmtree(directory, ignore_errors=True)
        elif code == 1:
            click.echo(f"the queue, the call logs and the logs are in {directory}", file=stream)
    return code


async def _run(plan: DemoPlan, directory: Path, stream: TextIO) -> DemoOutcome | None:
    """Return the outcome; None if SIGTERM ended the demo."""
    view = make_view(stream)
    try:
        demo_run = asyncio.create_task(DemoRun(plan, directory, view).run(), name="demo")
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            demo_run.cancel()

        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # only in a main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        try:
            return await demo_run
        except asyncio.CancelledError:
            if terminated:
                return None
            raise
    finally:
        view.close()


def _print(report: DemoReport, stream: TextIO, *, json: bool) -> None:
    if json:
        click.echo(json_format.dumps(report.to_plain()))
    else:
        _print_table(report, stream)
        if not report.faults:
            click.echo("No task was lost, and none ran twice without a recorded reason.", file=stream)
    for fault in report.faults[:_FAULTS_SHOWN]:
        click.echo(f"FAULT  {fault}", file=stream)
    if len(report.faults) > _FAULTS_SHOWN:
        click.echo(f"FAULT  and {len(report.faults) - _FAULTS_SHOWN} more", file=stream)


def _print_table(report: DemoReport, stream: TextIO) -> None:
    rows = table_rows(report)
    if stream.isatty() and find_spec("rich") is not None:
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column()
        for name, value in rows:
            table.add_row(name, value)
        Console(file=stream, highlight=False).print(table)
        return
    width = max(len(name) for name, _ in rows)
    click.echo("", file=stream)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}", file=stream)
