"""`tidegate dead export`: write dead letters as lines of JSON, or one dead letter as a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from tidegate.cli.common import StoreLocation, json_option, load_app, location_options, opened_store, run
from tidegate.cli.dead_filters import filter_options
from tidegate.cli.output import json_text, print_json, print_message
from tidegate.cli.rendering import dead_letter_json
from tidegate.cli.values import as_task_id
from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError
from tidegate.operations import dead_letters
from tidegate.operations.dead_export import arguments_of, read_letters
from tidegate.operations.dead_letters import DeadLetterFilters
from tidegate.operations.recorded_task import read_recorded

if TYPE_CHECKING:
    from tidegate.application.core import Core
    from tidegate.operations.regression_test import RegressionTest

_HOW_TO_CHOOSE = "give filters, --all for every dead letter, or an id with --as-test"


@click.command("export")
@click.argument("task_id", metavar="[ID]", required=False, type=as_task_id)
@click.option(
    "--as-test", is_flag=True, help="Write one dead letter as a pytest that reproduces the failure."
)
@filter_options
@click.option("--all", "everything", is_flag=True, help="Export every dead letter.")
@click.option(
    "--args", "with_args", is_flag=True, help="Also export the arguments, with secrets replaced by stars."
)
@click.option(
    "--unredacted", is_flag=True, help="With --args: export the arguments as stored, with their secrets."
)
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write to this new file. A test can also be written into a directory.",
)
@location_options
@json_option
def export_command(
    task_id: str | None,
    as_test: bool,
    filters: DeadLetterFilters,
    everything: bool,
    with_args: bool,
    unredacted: bool,
    out: Path | None,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Write dead letters as lines of JSON (NDJSON), or one dead letter as a test.

    Each line has the fields of `dead ls --json`, the latest failure first. Lines are written while the
    letters are read. Arguments are left out, because they may be private.

    A test needs the application that declares the function: --app, or the configured one. The test contains
    the arguments with secrets replaced by stars, uses tidegate.testing, and passes while the fault exists.
    """
    if as_test:
        if task_id is None:
            raise click.UsageError("--as-test needs the id of one dead letter")
        _export_test(task_id, out, location, as_json)
        return
    if task_id is not None:
        raise click.UsageError("an id alone is written as a test: --as-test")
    if unredacted and not with_args:
        raise click.UsageError("--unredacted needs --args")
    dead_letters.require_one_choice(None, filters, everything=everything, fix=_HOW_TO_CHOOSE)
    count = run(_export_lines(location, filters, out, with_args=with_args, unredacted=unredacted))
    print_message(f"{counted(count, 'dead letter')} exported" + ("" if out is None else f" to {out}"))


async def _export_lines(
    location: StoreLocation,
    filters: DeadLetterFilters,
    out: Path | None,
    *,
    with_args: bool,
    unredacted: bool,
) -> int:
    """Write a line for each dead letter; return how many were written."""
    count = 0
    async with opened_store(location) as store:
        which = await dead_letters.task_filter(store, filters)
        with _new_file(out) as file:
            async for letter in read_letters(store, which):
                fields = dead_letter_json(letter)
                if with_args:
                    fields["args"] = arguments_of(letter, unredacted=unredacted)
                click.echo(json_text(fields), file=file)
                count += 1
    return count


@contextlib.contextmanager
def _new_file(path: Path | None) -> Iterator[IO[str] | None]:
    """Open a file that must not exist yet; return None, which stands for stdout, without a path.

    Raises:
        NotAcceptedError: The file exists.
        UsageError: The file cannot be written.
    """
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise NotAcceptedError(
            f"{path} exists already; nothing was written", fix="choose another file with --out"
        ) from None
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
    with file:
        yield file


def _export_test(task_id: str, out: Path | None, location: StoreLocation, as_json: bool) -> None:
    core = load_app(None) if location.application is None else location.application
    test = run(_as_test(location, task_id, core))
    path = None if out is None else out / test.file_name if out.is_dir() else out
    if path is not None:
        with _new_file(path) as file:
            click.echo(test.source, file=file, nl=False)
    if as_json:
        facts = {"kind": test.kind, "file": str(path or test.file_name), "masked": test.masked}
        print_json(facts | ({"source": test.source} if path is None else {}))
    elif path is None:
        click.echo(test.source, nl=False)
    else:
        click.echo(path)
    if test.masked:
        print_message(f"secrets were replaced by *** in: {', '.join(test.masked)}")
    print_message("the arguments may hold private data: read the test before you commit it")


async def _as_test(location: StoreLocation, task_id: str, core: Core) -> RegressionTest:
    from tidegate.operations.regression_test import write_test

    async with opened_store(location) as store:
        return write_test(await read_recorded(store, task_id, only_dead=True), core)
