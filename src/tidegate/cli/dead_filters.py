"""The options by which every command of `tidegate dead` chooses dead letters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from tidegate.cli.values import as_labels, as_named_value, as_task_id
from tidegate.operations import dead_letters
from tidegate.operations.dead_letters import DeadLetterFilters

Command = TypeVar("Command", bound=Callable[..., Any])

_HOW_TO_CHOOSE = "give ids, a filter, or --all for every dead letter: one of the three"
_FILTERS = (
    click.option("--queue", metavar="NAME", help="Only this queue."),
    click.option("--function", metavar="NAME", help="Only this task function, by its full name."),
    click.option("--reason", metavar="WORD", help="Only this reason: content_policy, crash…"),
    click.option(
        "--error",
        "error_class",
        metavar="CLASS",
        help="Only this error class, with its module unless Python has it built in.",
    ),
    click.option("--tenant", metavar="NAME", help="Only this tenant."),
    click.option(
        "--label",
        "labels",
        metavar="NAME=VALUE",
        type=as_named_value,
        multiple=True,
        help="Only with this label. Repeatable.",
    ),
    click.option(
        "--fingerprint",
        metavar="HEX",
        help="Only this fingerprint, or its first digits: see dead groups.",
    ),
    click.option(
        "--since",
        metavar="WHEN",
        help="Only failures since this time (ISO 8601 with offset), or since this long ago (7d).",
    ),
    click.option(
        "--before",
        "--until",
        "before",
        metavar="WHEN",
        help="Only failures before this time (ISO 8601 with offset), or older than this age (7d).",
    ),
)


def filter_options(command: Command) -> Command:
    """Add the options that filter dead letters; the command receives them as its argument `filters`."""

    @functools.wraps(command)
    def with_filters(
        *args: Any,
        queue: str | None,
        function: str | None,
        reason: str | None,
        error_class: str | None,
        tenant: str | None,
        labels: Sequence[tuple[str, str]],
        fingerprint: str | None,
        since: str | None,
        before: str | None,
        **options: Any,
    ) -> Any:
        filters = DeadLetterFilters(
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            tenant=tenant,
            labels=as_labels(labels),
            fingerprint=fingerprint,
            since=since,
            before=before,
        )
        return command(*args, filters=filters, **options)

    decorated: Any = with_filters
    for option in reversed(_FILTERS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def choice_options(command: Command) -> Command:
    """Add ids, filters and `--all`; the command receives `task_ids` (None for a filter) and `filters`."""

    @functools.wraps(command)
    def with_choice(*args: Any, task_ids: Sequence[str], everything: bool, **options: Any) -> Any:
        ids = task_ids or None
        dead_letters.require_one_choice(ids, options["filters"], everything=everything, fix=_HOW_TO_CHOOSE)
        return command(*args, task_ids=ids, **options)

    decorated: Any = click.option("--all", "everything", is_flag=True, help="Select every dead letter.")(
        with_choice
    )
    ids_argument = click.argument("task_ids", metavar="[ID]...", nargs=-1, type=as_task_id)
    return ids_argument(filter_options(decorated))  # type: ignore[no-any-return]
