"""`tidegate db size`."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_size
from tidegate.cli.output import print_json, print_message
from tidegate.cli.table import print_table
from tidegate.store.retention_rows import StoreSize, TableSize
from tidegate.store.task_tables import TASK_TABLES

_DATA = {table.name: str(table.data) for table in TASK_TABLES}


@click.command("size")
@location_options
@json_option
def size_command(location: StoreLocation, as_json: bool) -> None:
    """Show the size of the database and of each table. Large tables are estimated: ~ marks estimates."""
    size = run(_size(location))
    if as_json:
        print_json(size)
        return
    print_table(
        ["TABLE", "ROWS", "SIZE", "DATA"],
        [
            [table.table, _rows(table), format_size(table.bytes), _DATA.get(table.table, "")]
            for table in size.tables
        ],
        numbers={"ROWS", "SIZE"},
    )
    print_message(f"in all {format_size(size.bytes)}{_details(size)}")


async def _size(location: StoreLocation) -> StoreSize:
    async with opened_store(location) as store:
        return await store.get_sizes()


def _rows(table: TableSize) -> str:
    return f"{'~' if table.is_estimate else ''}{table.rows:,}"


def _details(size: StoreSize) -> str:
    parts = []
    if size.free_bytes:
        parts.append(f"{format_size(size.free_bytes)} of it free for new rows")
    if size.log_bytes:
        parts.append(f"{format_size(size.log_bytes)} more in the write-ahead log")
    return f", {', '.join(parts)}" if parts else ""
