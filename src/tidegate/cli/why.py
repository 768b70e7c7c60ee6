"""`tidegate tasks why`: what a task waits for."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, opened_store
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json
from tidegate.operations.tasks import explain, read_task


async def print_why(location: StoreLocation, task_id: str, as_json: bool) -> None:
    """Print why a task does not run yet, the main reason first.

    Raises:
        TaskNotFoundError: The task does not exist.
    """
    async with opened_store(location) as store:
        row = await read_task(store, task_id)
        reasons = await explain(store, row, location.functions)
    if as_json:
        print_json({"task_id": row.id, "state": row.state, "why": reasons})
        return
    click.echo(f"{row.state}")
    for reason in reasons:
        click.echo(f"  {printable(reason)}")
