"""Code that the commands for pauses of queues and task functions share."""

from __future__ import annotations

import click

from tidegate.cli.common import StoreLocation, opened_store
from tidegate.cli.output import print_message
from tidegate.limits.pauses import PauseKind
from tidegate.operations.pauses import current_user, resume

why_option = click.option(
    "--why", default="", metavar="TEXT", help="The reason, shown wherever the pause is shown."
)


async def resume_named(location: StoreLocation, kind: PauseKind, name: str) -> None:
    """End the pause of a queue or task function, and print whether it was paused."""
    async with opened_store(location) as store:
        was_paused = await resume(store, kind, name, by=current_user("command line"))
    print_message(f"{name}: {'resumed' if was_paused else 'it was not paused'}")
