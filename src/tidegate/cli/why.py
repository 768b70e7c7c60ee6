"""`tidegate why`: what delays a queue."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import printable
from tidegate.cli.output import print_json, print_message
from tidegate.operations.queue_causes import explain_queue


@click.command()
@click.argument("queue", metavar="QUEUE")
@location_options
@json_option
def command(queue: str, location: StoreLocation, as_json: bool) -> int:
    """Show when a queue will be empty, what limits it, and why its tasks wait.

    The estimate shows what limits it, with numbers: the slots of the workers, or the requests or parallel
    calls of an upstream. Examples of waiting tasks follow, with their ids; `tidegate tasks why ID` explains
    any other task.
    """
    return run(_why(location, queue, as_json))


async def _why(location: StoreLocation, queue: str, as_json: bool) -> int:
    async with opened_store(location) as store:
        found = await explain_queue(store, queue, ())
    if found is None:
        print_message(f"{queue}: no task is or was lately in a queue of this name: check the spelling")
        return 3
    if as_json:
        print_json(found)
        return 0
    for cause in found.causes:
        click.echo(printable(cause))
    for example in found.examples:
        reasons = "; ".join(example.why)
        click.echo(printable(f"  {example.task_id} {example.state} {example.function}: {reasons}"))
    return 0
