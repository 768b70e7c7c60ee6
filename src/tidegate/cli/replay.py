"""`tidegate replay`: run the function of a stored task here, without its store or the network."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from tidegate.cli.common import StoreLocation, json_option, load_app, opened_store, run
from tidegate.cli.error_report import FAILED
from tidegate.cli.formatting import format_duration, printable
from tidegate.cli.output import json_text, jsonable, print_json, result_json, stored_json
from tidegate.cli.rendering import join_parts
from tidegate.cli.values import as_seconds, as_task_id
from tidegate.codec.tags import CODEC
from tidegate.domain.outcome import Dead, Retrying
from tidegate.domain.redaction import redact
from tidegate.operations.recorded_answer import recorded_answer

if TYPE_CHECKING:
    from tidegate.application.core import Core
    from tidegate.context import Progress
    from tidegate.domain.failure import Failure
    from tidegate.operations.recorded_task import RecordedTask
    from tidegate.store.rows import HistoryRow
    from tidegate.testing.replay import Replay


@click.command()
@click.argument("task_id", metavar="ID", type=as_task_id)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=as_seconds,
    help="Stop the function after this time (default: the function's timeout).",
)
@click.option(
    "--allow", "allowed", metavar="HOST", multiple=True, help="Allow connections to this host. Repeatable."
)
@click.option("--debug", is_flag=True, help="If the function raises, examine it in pdb.")
@click.option("--database", metavar="URL", help="Use this database instead of the application's.")
@click.option("--app", metavar="MODULE:NAME", help="The application that declares the function.")
@json_option
def command(
    task_id: str,
    timeout: float | None,
    allowed: Sequence[str],
    debug: bool,
    database: str | None,
    app: str | None,
    as_json: bool,
) -> int:
    """Run the function of a task once, in this process, and show what it does.

    The task and its store stay unchanged: tasks that the function enqueues go to a temporary store, and every
    network connection is refused. Exits with 0 if the function returned, 1 if it failed.
    """
    if debug and as_json:
        raise click.UsageError("--debug is for people, --json for programs: give one of them")
    from tidegate.testing.kit.network_guard import blocked_network

    core = load_app(app)
    task = run(_read(StoreLocation(core.url if database is None else database), task_id))
    printer = _Printer(None if as_json else sys.stdout)
    printer.head(task)
    with blocked_network(allowed, what="a replay") as blocked:
        replayed = _replay(core, task, printer, timeout=timeout)
        if as_json:
            print_json(_record(task, replayed, blocked))
        printer.end(task, replayed, blocked)
        if debug and replayed.error is not None:
            _debug(replayed.error)
    return 0 if replayed.failure is None else FAILED


async def _read(location: StoreLocation, task_id: str) -> RecordedTask:
    from tidegate.operations.recorded_task import read_recorded

    async with opened_store(location) as store:
        return await read_recorded(store, task_id)


def _replay(core: Core, task: RecordedTask, printer: _Printer, *, timeout: float | None) -> Replay:
    from tidegate.testing.replay import Observer, replay

    observer = Observer(printer.progress, printer.chunk)
    with contextlib.redirect_stdout(sys.stderr):
        return run(replay(core, task, timeout_seconds=timeout, observer=observer))


def _debug(error: BaseException) -> None:
    """Examine an error where it was raised."""
    import pdb

    from tidegate.testing.replay import own_traceback

    pdb.post_mortem(own_traceback(error))


class _Printer:
    """Prints a replay for people to the command's stdout. The output of the function goes to stderr.

    Args:
        out: Where to print; None prints nothing.
    """

    def __init__(self, out: TextIO | None) -> None:
        self._out = out

    def head(self, task: RecordedTask) -> None:
        """Print which task is replayed and how its last run failed."""
        row, failed = task.row, task.last_failed_run
        self._line("task", f"{row.id} {row.function}, {row.state} after run {row.run}")
        if failed is not None:
            self._line("recorded", join_parts(failed.reason, failed.error_class, failed.message))

    def progress(self, progress: Progress) -> None:
        """Print progress as the function reports it."""
        total = "" if progress.total is None else f"/{progress.total:g}"
        self._line("progress", f"{progress.done:g}{total} {progress.note}".rstrip())

    def chunk(self, chunk: bytes) -> None:
        """Print a chunk as the function emits it."""
        self._line("chunk", redact(chunk.decode(errors="replace")))

    def end(self, task: RecordedTask, replayed: Replay, blocked: Sequence[str]) -> None:
        """Print what the function did and how that compares with the record."""
        recorded = task.last_failed_run
        answer = "no recorded answer" if recorded is None else format_answer(recorded)
        for call in replayed.calls:
            self._line("call", f"{call.method} {redact(call.url)} → {answer}")
        for address in dict.fromkeys(blocked):
            self._line("blocked", f"a connection to {address} (let it through with --allow)")
        for row in replayed.enqueued:
            self._line("enqueued", f"{row.function}, queue {row.queue} (not in the task's store)")
        self._line("outcome", f"{_outcome(replayed)} after {format_duration(replayed.seconds)}")
        if replayed.result is not None:
            self._line("result", redact(json_text(result_json(replayed.result, CODEC))))
        failure = replayed.failure
        if failure is None:
            return
        self._line("error", join_parts(failure.reason, failure.error_class, failure.message))
        for line in (replayed.stack or failure.traceback).splitlines():
            self._text(f"  │ {printable(line)}")
        if task.last_failed_run is not None:
            self._line("compare", _COMPARED[is_same_failure(task, replayed)])

    def _line(self, name: str, value: str) -> None:
        self._text(f"{name:<8}  {printable(value)}")

    def _text(self, text: str) -> None:
        if self._out is not None:
            click.echo(text, file=self._out)


def format_answer(recorded: HistoryRow) -> str:
    """Return a text: how the calls of a replay were answered."""
    answer = recorded_answer(recorded)
    if answer is None:
        return "no recorded answer"
    return f"{answer.error or f'status {answer.status}'}, as recorded"


_COMPARED = {True: "the same failure as recorded", False: "not the recorded failure"}


def _outcome(replayed: Replay) -> str:
    """Return a text: what a worker would have done after this run."""
    outcome = replayed.outcome
    if isinstance(outcome, Retrying):
        return f"would run again in {format_duration(outcome.delay_seconds)} ({outcome.why})"
    if isinstance(outcome, Dead):
        return f"dead ({outcome.why})"
    return type(outcome).__name__.lower()


def is_same_failure(task: RecordedTask, replayed: Replay) -> bool:
    """Return whether the run failed as the task's last failed run did: the same reason, class and message."""
    was, now = task.last_failed_run, replayed.failure
    return (
        was is not None
        and now is not None
        and (was.reason, was.error_class, was.message) == (now.reason, now.error_class, now.message)
    )


def _record(task: RecordedTask, replayed: Replay, blocked: Sequence[str]) -> dict[str, Any]:
    """Return a replay as one JSON object."""
    failure, was = replayed.failure, task.last_failed_run
    return {
        "task_id": task.row.id,
        "function": task.row.function,
        "run": task.row.run,
        "outcome": type(replayed.outcome).__name__.lower(),
        "why": replayed.why,
        "seconds": replayed.seconds,
        "result": None if replayed.result is None else result_json(replayed.result, CODEC),
        "failure": None if failure is None else _failure(failure),
        "stack": replayed.stack,
        "recorded": None if was is None else _failure(was),
        "is_same_failure": is_same_failure(task, replayed),
        "progress": jsonable(replayed.progress),
        "chunks": [stored_json(chunk, CODEC) for chunk in replayed.chunks],
        "calls": [{"method": call.method, "url": redact(call.url)} for call in replayed.calls],
        "blocked": list(dict.fromkeys(blocked)),
        "enqueued": [{"function": row.function, "queue": row.queue} for row in replayed.enqueued],
    }


def _failure(failure: Failure | HistoryRow) -> dict[str, Any]:
    names = ("verdict", "reason", "error_class", "message", "status", "code", "evidence", "traceback")
    return {name: jsonable(getattr(failure, name)) for name in names}
