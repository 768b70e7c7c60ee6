"""Options that select dead letters: ids, a filter, or all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from tidegate.cli.values import as_labels, as_named_value, before_moment
from tidegate.store.protocol import Store
from tidegate.store.rows import TaskFilter
from tidegate.store.short_ids import full_ids

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """The dead letters that the command line selects."""

    which: TaskFilter
    before: str | None
    task_ids: tuple[str, ...] = ()
    all: bool = False

    async def filter(self, store: Store) -> TaskFilter:
        """Return the filter. An age in `--before` counts back from the store's present time."""
        return replace(self.which, before=before_moment(self.before, await store.now()))

    async def with_full_ids(self, store: Store) -> DeadLetterSelection:
        """Return the same selection with full ids in place of short ones.

        Raises:
            OptionError: Several tasks have an id that begins with one of the short ids.
        """
        return replace(self, task_ids=tuple(await full_ids(store, self.task_ids)))

    def require_choice(self) -> None:
        """Raise a usage error unless exactly one of ids, a filter or `--all` is given.

        An empty filter would select every dead letter.
        """
        filtered = not self.which.is_empty or self.before is not None
        if self.task_ids and (filtered or self.all):
            raise click.UsageError("give ids or a filter, not both")
        if self.all and filtered:
            raise click.UsageError("give a filter or --all, not both")
        if not (self.task_ids or filtered or self.all):
            raise click.UsageError("give ids, a filter, or --all for every dead letter")


def filter_options(command: Command) -> Command:
    """Add the options that filter dead letters; the command receives them as its argument `selection`."""

    @functools.wraps(command)
    def with_filter(
        *args: Any,
        queue: str | None,
        function: str | None,
        reason: str | None,
        error_class: str | None,
        tenant: str | None,
        labels: Sequence[tuple[str, str]],
        before: str | None,
        task_ids: Sequence[str] = (),
        everything: bool = False,
        **options: Any,
    ) -> Any:
        which = TaskFilter(
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            tenant=tenant,
            labels=as_labels(labels),
        )
        return command(
            *args, selection=DeadLetterSelection(which, before, tuple(task_ids), everything), **options
        )

    decorated: Any = with_filter
    for option in reversed(
        (
            click.option("--queue", metavar="NAME", help="Only this queue."),
            click.option("--function", metavar="NAME", help="Only this task function, by its full name."),
            click.option("--reason", metavar="WORD", help="Only this reason: content_policy, crash…"),
            click.option(
                "--error", "error_class", metavar="CLASS", help="Only this error class, with its module."
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
                "--before",
                metavar="WHEN",
                help="Only failures before this time (ISO 8601 with offset) or older than an age (7d).",
            ),
        )
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
