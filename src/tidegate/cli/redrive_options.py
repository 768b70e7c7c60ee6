"""The options of `tidegate dead redrive` that decide how letters are sent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidegate.operations.bulk import redrive_settings

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--to-queue", metavar="NAME", help="Send the letters to this queue instead of their own."),
    click.option(
        "--keep-attempts",
        is_flag=True,
        help="Keep counting from the attempts charged so far; default: start from zero.",
    ),
    click.option(
        "--repeat-doubts",
        is_flag=True,
        help="Also send letters in doubt: their calls may have been processed.",
    ),
    click.option(
        "--stop-above",
        metavar="PERCENT",
        type=click.FloatRange(0, 100),
        default=20,
        show_default=True,
        help="Stop when a larger share of the first attempts than this fails.",
    ),
    click.option(
        "--canary-within",
        metavar="DURATION",
        default="10m",
        show_default=True,
        help="Stop if the first attempts of the canary take longer.",
    ),
    click.option(
        "--expect",
        metavar="NUMBER",
        type=click.IntRange(0),
        help="Refuse if the filter matches more letters than this.",
    ),
    click.option("--wait", is_flag=True, help="Print the progress until the operation ends."),
)


def redrive_options(command: Command) -> Command:
    """Add the options; the command receives `settings`, `expect` and `wait`."""

    @functools.wraps(command)
    def with_settings(
        *args: Any,
        to_queue: str | None,
        keep_attempts: bool,
        repeat_doubts: bool,
        stop_above: float,
        canary_within: str,
        **options: Any,
    ) -> Any:
        settings = redrive_settings(
            to_queue=to_queue,
            keep_attempts=keep_attempts,
            repeat_doubts=repeat_doubts,
            stop_above=stop_above / 100,
            canary_within=canary_within,
        )
        return command(*args, settings=settings, **options)

    decorated: Any = with_settings
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
