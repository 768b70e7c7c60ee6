"""`tidegate db retention` and `tidegate db archive`."""

from __future__ import annotations

import math
from pathlib import Path

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.error_report import NOT_FOUND
from tidegate.cli.formatting import format_duration, format_since, format_size, moment, printable
from tidegate.cli.output import jsonable, print_json, print_message
from tidegate.cli.table import print_table
from tidegate.cli.values import as_task_id
from tidegate.config import load_config
from tidegate.domain.retention import Retention
from tidegate.domain.text import counted
from tidegate.errors import ConfigError
from tidegate.operations.retention import RulePreview, preview_retention
from tidegate.store.archive import Archive


@click.command("retention")
@location_options
@json_option
def retention_command(location: StoreLocation, as_json: bool) -> None:
    """Show what each rule of [retention] would remove now: how many tasks, and the oldest.

    Removes nothing.
    """
    rules = _retention(location)
    found, now = run(_preview(location, rules))
    if as_json:
        for each in found:
            print_json(each)
        return
    print_table(
        ["RULE", "QUEUE", "KEPT", "DUE", "OLDEST"],
        [
            [
                each.rule,
                each.queue or "all",
                "for ever" if each.kept_seconds == math.inf else format_duration(each.kept_seconds),
                f"{each.due:,}{'+' if each.is_least else ''}",
                "-" if each.oldest_at is None else format_since(each.oldest_at, now),
            ]
            for each in found
        ],
        numbers={"DUE"},
    )
    archive = f"rows are archived in {rules.archive} first" if rules.archive else "no archive is set"
    print_message(f"workers and schedulers remove due data each minute; {archive}")


async def _preview(location: StoreLocation, retention: Retention) -> tuple[list[RulePreview], float]:
    async with opened_store(location) as store:
        return await preview_retention(store, retention), await store.now()


@click.group("archive")
def archive_command() -> None:
    """List and show the rows that retention has archived."""


@archive_command.command("ls")
@location_options
@json_option
def list_command(location: StoreLocation, as_json: bool) -> None:
    """List the days of the archive, with one line for each kind of data."""
    days = _archive(location).days()
    if as_json:
        for day in days:
            print_json(jsonable(day) | {"day": day.day.isoformat()})
        return
    if days:
        print_table(
            ["DAY", "DATA", "FILES", "SIZE"],
            [[day.day.isoformat(), day.data, day.files, format_size(day.bytes)] for day in days],
            numbers={"FILES", "SIZE"},
        )
    print_message(f"in all {format_size(sum(day.bytes for day in days))} in {_archive(location).folder}")


@archive_command.command("show")
@click.argument("task_id", metavar="ID", type=as_task_id)
@location_options
@json_option
def show_command(task_id: str, location: StoreLocation, as_json: bool) -> int:
    """Show the archived rows of one task, by its full id. The rows may contain private data."""
    rows = list(_archive(location).rows(task_id))
    for row in rows:
        if as_json:
            print_json({name: getattr(row, name) for name in row.__struct_fields__})
        else:
            click.echo(f"{row.table}  archived {moment(row.archived_at)}")
            for name, value in row.row.items():
                if value is not None:
                    click.echo(f"  {name}  {printable(str(value))}")
    if not rows:
        print_message(f"the archive has no rows of task {task_id}; give its full id")
        return NOT_FOUND
    print_message(counted(len(rows), "row"))
    return 0


def _retention(location: StoreLocation) -> Retention:
    """Return the retention rules of the application of `--app`, otherwise the configured rules."""
    return load_config().retention if location.application is None else location.application.retention


def _archive(location: StoreLocation) -> Archive:
    """Return the configured archive.

    Raises:
        ConfigError: No archive is configured.
    """
    rules = _retention(location)
    if rules.archive is None:
        raise ConfigError(
            "no archive is configured",
            fix='set archive = "FOLDER" in [retention], or TIDEGATE_RETENTION_ARCHIVE',
            place="[retention]",
            option="archive",
        )
    return Archive(Path(rules.archive), rules.archive_format)
