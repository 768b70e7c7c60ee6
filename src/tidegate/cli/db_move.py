"""`tidegate db move`: the tasks of a SQLite file to a PostgreSQL database."""

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
@click.option("--finished", is_flag=True, help="Take succeeded and cancelled tasks with their results along.")
@click.option("--undo", is_flag=True, help="Unseal SOURCE, if no task of it is at TARGET.")
@dry_run_option
@json_option
def move_command(source: str, target: str, finished: bool, undo: bool, dry_run: bool, as_json: bool) -> int:
    """Move waiting, ready and dead tasks with their history from a SQLite file to PostgreSQL.

    Stop the workers of SOURCE and all that enqueue there first. SOURCE is then sealed: nothing runs or is
    enqueued there any more, and nothing of it is deleted. Safe to interrupt and to repeat. Exit code 1 if
    tasks were kept back: another task has their key or unique name at TARGET, or it cannot store them.
    """
    if undo and (dry_run or finished):
        raise UsageError("--undo goes alone", fix="leave out --dry-run and --finished")
    if undo:
        was_sealed = run(_undo(source, target))
        if as_json:
            print_json({"unsealed": was_sealed})
        print_message("unsealed: work may go on there" if was_sealed else "it was not sealed")
        return 0
    tally = run(_survey(source, target, finished) if dry_run else _move(source, target, finished))
    _print(tally, dry_run=dry_run, as_json=as_json)
    return FAILED if tally.kept_back else 0


async def _move(source: str, target: str, finished: bool) -> TransferSummary:
    from tidegate.store.transfer import steps

    async with _both(source, target) as (leaving, arriving):
        tally = await steps.transfer_tasks(
            leaving, arriving, finished=finished, on_progress=_progress_printer()
        )
        print_message(
            f"{leaving.path} is sealed; its tasks are at {arriving.location}: start everything with that URL"
        )
    return tally


async def _survey(source: str, target: str, finished: bool) -> TransferSummary:
    from tidegate.store.transfer import steps

    async with _both(source, target) as (leaving, arriving):
        return await steps.preview_transfer(leaving, arriving, finished=finished)


async def _undo(source: str, target: str) -> bool:
    from tidegate.store.transfer import steps

    async with _both(source, target) as (leaving, arriving):
        return await steps.undo_transfer(leaving, arriving)


@asynccontextmanager
async def _both(source: str, target: str) -> AsyncIterator[tuple[Source, Target]]:
    """Return the two ends of a move for the block.

    Raises:
        ConfigError: They are no two ends of a move.
        StoreUnavailableError: The file is not there.
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
    leaving, arriving = _open_both(sqlite_path(source), target)
    try:
        yield leaving, arriving
    finally:
        await leaving.close()
        await arriving.close()


def _open_both(path: Any, url: str) -> tuple[Source, Target]:
    from tidegate.store.connect import open_store

    open_store(url)  # says so if the driver is not installed
    from tidegate.store.transfer.source import Source
    from tidegate.store.transfer.target import Target

    return Source(path), Target(url)


def _progress_printer() -> Callable[[int], None]:
    """Return what tells a person of progress, now and then."""
    printed_at = time.monotonic()

    def print_progress(done: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= _PROGRESS_SECONDS:
            printed_at = time.monotonic()
            print_message(f"{counted(done, 'task')} dealt with")

    return print_progress


def _print(tally: TransferSummary, *, dry_run: bool, as_json: bool) -> None:
    rows = [_row(tally, state) for state in sorted(tally.tasks) if tally.tasks[state]]
    if as_json:
        states = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
        print_json({"dry_run": dry_run, "states": states, "kept_back": sorted(tally.kept_back)})
        return
    if dry_run:
        print_table(("state", "tasks"), [row[:2] for row in rows], numbers=_NUMBERS)
        return
    print_table(("state", *_NUMBERS), rows, numbers=_NUMBERS)
    for task_id, kept in sorted(tally.kept_back.items()):
        print_message(f"kept back: {task_id} ({kept.state}): {kept.why}")


def _row(tally: TransferSummary, state: str) -> tuple[str, int, int, int, int]:
    return (state, tally.tasks[state], tally.moved[state], tally.there(state), tally.kept(state))
