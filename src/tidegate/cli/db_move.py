"""`tidegate db move`: move the tasks of a SQLite file to a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.common import dry_run_option, json_option, require_database, run
from tidegate.cli.error_report import FAILED
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.domain.text import counted
from tidegate.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tidegate.store.transfer.rows import TransferSummary
    from tidegate.store.transfer.source import Source
    from tidegate.store.transfer.target import Target

_PROGRESS_SECONDS = 2.0
_NUMBERS = ("tasks", "moved", "there", "kept back")
_FIELDS = ("state", "tasks", "moved", "there", "kept_back")


@click.command("move")
@click.argument("source")
@click.argument("target")
@click.option("--finished", is_flag=True, help="Also move succeeded and cancelled tasks with their results.")
@click.option("--undo", is_flag=True, help="Unseal SOURCE, if TARGET has none of its tasks.")
@dry_run_option
@json_option
def move_command(source: str, target: str, finished: bool, undo: bool, dry_run: bool, as_json: bool) -> int:
    """Move waiting, ready and dead tasks with their history from a SQLite file to PostgreSQL.

    First stop the workers of SOURCE and the programs that enqueue there. The command seals SOURCE: it accepts
    and runs no more tasks, and keeps its data. Safe to interrupt and to repeat. Exit code 1 if some tasks
    were kept back, because another task at TARGET has the same key or unique name, or because TARGET cannot
    store them.
    """
    if undo and (dry_run or finished):
        raise UsageError("--undo excludes --dry-run and --finished", fix="leave them out")
    if undo:
        was_sealed = run(_undo(source, target))
        if as_json:
            print_json({"unsealed": was_sealed})
        print_message(
            f"{source} is unsealed: workers and clients can use it again"
            if was_sealed
            else f"{source} was not sealed"
        )
        return 0
    summary = run(_preview(source, target, finished) if dry_run else _move(source, target, finished))
    _print(summary, dry_run=dry_run, as_json=as_json)
    return FAILED if summary.kept_back else 0


async def _move(source: str, target: str, finished: bool) -> TransferSummary:
    from tidegate.store.transfer import steps

    async with _source_and_target(source, target) as (leaving, arriving):
        summary = await steps.transfer_tasks(
            leaving, arriving, finished=finished, on_progress=_progress_printer()
        )
        print_message(
            f"{leaving.path} is sealed and its tasks are at {arriving.location}; "
            "start workers and clients with that URL"
        )
    return summary


async def _preview(source: str, target: str, finished: bool) -> TransferSummary:
    from tidegate.store.transfer import steps

    async with _source_and_target(source, target) as (leaving, arriving):
        return await steps.preview_transfer(leaving, arriving, finished=finished)


async def _undo(source: str, target: str) -> bool:
    from tidegate.store.transfer import steps

    async with _source_and_target(source, target) as (leaving, arriving):
        return await steps.undo_transfer(leaving, arriving)


@asynccontextmanager
async def _source_and_target(source: str, target: str) -> AsyncIterator[tuple[Source, Target]]:
    """Yield the opened source and target of a move; close both at the end of the block.

    Raises:
        ConfigError: `source` is not a SQLite file, or `target` is not a PostgreSQL database.
        StoreUnavailableError: The SQLite file does not exist.
    """
    from tidegate.store.connect import check_url, is_postgres, sqlite_path

    check_url(source)
    check_url(target)
    if is_postgres(source) or not is_postgres(target):
        raise ConfigError(
            "tasks move from a SQLite file to PostgreSQL only",
            fix="tidegate db move sqlite:///queue.db postgresql://user@host/database",
        )
    require_database(source)
    leaving, arriving = _connect(sqlite_path(source), target)
    try:
        yield leaving, arriving
    finally:
        await leaving.close()
        await arriving.close()


def _connect(path: Any, url: str) -> tuple[Source, Target]:
    from tidegate.store.connect import open_store

    open_store(url)  # raises ConfigError if the driver is not installed
    from tidegate.store.transfer.source import Source
    from tidegate.store.transfer.target import Target

    return Source(path), Target(url)


def _progress_printer() -> Callable[[int], None]:
    """Return a function that prints the progress every two seconds."""
    printed_at = time.monotonic()

    def print_progress(done: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= _PROGRESS_SECONDS:
            printed_at = time.monotonic()
            print_message(f"{counted(done, 'task')} done")

    return print_progress


def _print(summary: TransferSummary, *, dry_run: bool, as_json: bool) -> None:
    rows = [_row(summary, state) for state in sorted(summary.tasks) if summary.tasks[state]]
    if as_json:
        states = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
        print_json({"dry_run": dry_run, "states": states, "kept_back": sorted(summary.kept_back)})
        return
    if dry_run:
        print_table(("state", "tasks"), [row[:2] for row in rows], numbers=_NUMBERS)
        return
    print_table(("state", *_NUMBERS), rows, numbers=_NUMBERS)
    for task_id, kept in sorted(summary.kept_back.items()):
        print_message(f"kept back: {task_id} ({kept.state}): {kept.why}")


def _row(summary: TransferSummary, state: str) -> tuple[str, int, int, int, int]:
    return (state, summary.tasks[state], summary.moved[state], summary.there(state), summary.kept(state))
