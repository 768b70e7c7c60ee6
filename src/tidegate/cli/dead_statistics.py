"""`tidegate dead stats` and `dead groups`: count deaths by reason over time, and by fingerprint."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from tidegate.cli.common import StoreLocation, json_option, location_options, opened_store, run
from tidegate.cli.formatting import format_since
from tidegate.cli.output import jsonable, print_json, print_message
from tidegate.cli.rendering import join_parts, short_ids
from tidegate.cli.table import print_table
from tidegate.deadletter.surges import find_surges
from tidegate.domain.text import counted
from tidegate.operations import history
from tidegate.operations.failure_groups import GroupWithState, group_fields, list_groups
from tidegate.operations.fingerprints import optional_fingerprint
from tidegate.operations.history import STEP_MINUTES, DeathFilters, GroupFilters
from tidegate.policy.failure_state import FailureState
from tidegate.store.history_rows import DeathCountRow
from tidegate.store.protocol import Store

Command = TypeVar("Command", bound=Callable[..., Any])

_RANGE = (
    click.option(
        "--since",
        metavar="WHEN",
        default=history.DEFAULT_SINCE,
        show_default=True,
        help="Since this time (ISO 8601 with offset), or since this long ago (7d).",
    ),
    click.option(
        "--until", "--before", "until", metavar="WHEN", help="Only before this time, or until this long ago."
    ),
)
_FILTERS = (
    *_RANGE,
    click.option("--queue", metavar="NAME", help="Only this queue."),
    click.option("--function", metavar="NAME", help="Only this task function, by its full name."),
    click.option("--reason", metavar="WORD", help="Only this reason: content_policy, crash…"),
    click.option(
        "--error",
        "error_class",
        metavar="CLASS",
        help="Only this error class, with its module unless Python has it built in.",
    ),
    click.option("--fingerprint", metavar="HEX", help="Only this fingerprint, or its first digits."),
    click.option("--tenant", metavar="NAME", help="Only this tenant's tasks that are still dead."),
)


def range_options(command: Command) -> Command:
    """Add `--since` and `--until`."""
    decorated: Any = command
    for option in reversed(_RANGE):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def death_filters(command: Command) -> Command:
    """Add the options that choose deaths; the command receives them as its argument `filters`."""

    @functools.wraps(command)
    def with_filters(
        *args: Any,
        since: str,
        until: str | None,
        queue: str | None,
        function: str | None,
        reason: str | None,
        error_class: str | None,
        fingerprint: str | None,
        tenant: str | None,
        **options: Any,
    ) -> Any:
        filters = GroupFilters(
            since=since,
            until=until,
            queue=queue,
            function=function,
            reason=reason,
            error_class=error_class,
            fingerprint=fingerprint,
            tenant=tenant,
        )
        return command(*args, filters=filters, **options)

    decorated: Any = with_filters
    for option in reversed(_FILTERS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


@click.command("stats")
@death_filters
@click.option(
    "--step",
    type=click.Choice(list(STEP_MINUTES)),
    default="hour",
    show_default=True,
    help="The length of a period. Deaths are kept by the minute for two days, by the hour for 35 days.",
)
@location_options
@json_option
def stats_command(filters: DeathFilters, step: str, location: StoreLocation, as_json: bool) -> None:
    """Count the tasks that died, by reason, over hours or days.

    Deaths are counted when they happen: a redrive or a purge does not change the counts. Periods are in UTC.
    Without --until, the functions whose deaths surge now are also reported; `tidegate dead surges` shows the
    numbers. With --json: one line for each period, queue, function and reason.
    """
    run(_stats(location, filters, step, as_json))


async def _stats(location: StoreLocation, filters: DeathFilters, step: str, as_json: bool) -> None:
    async with opened_store(location) as store:
        found = await history.count_deaths(store, filters, step=step)
        if as_json:
            for row in found:
                print_json(jsonable(row))
        elif found:
            _print_counts(found, step)
            await _print_surges(store, filters)
        else:
            print_message("no task died in this time")


async def _print_surges(store: Store, filters: DeathFilters) -> None:
    """Report the functions whose deaths surge now, if the range ends now.

    Surges are not known of an error class or a tenant.
    """
    if any(filters.get(name) is not None for name in ("until", "error_class", "tenant")):
        return
    found = await find_surges(
        store,
        queue=filters.get("queue"),
        function=filters.get("function"),
        reason=filters.get("reason"),
        fingerprint=await optional_fingerprint(store, filters.get("fingerprint")),
    )
    for each in found:
        if each.surge.surges:
            print_message(f"surge: {each.key}: {each.surge.why}")


def _print_counts(found: Sequence[DeathCountRow], step: str) -> None:
    totals: Counter[str] = Counter()
    by_period: dict[float, Counter[str]] = {}
    for row in found:
        totals[row.reason] += row.deaths
        by_period.setdefault(row.at, Counter())[row.reason] += row.deaths
    reasons = [reason for reason, _ in totals.most_common()]

    def line(label: str, counts: Counter[str]) -> list[object]:
        return [label, *(counts[reason] for reason in reasons), counts.total()]

    rows = [line(format_period(at, step), counts) for at, counts in sorted(by_period.items())]
    heads = ["FROM (UTC)", *(reason.upper() for reason in reasons), "ALL"]
    print_table(heads, [*rows, line("all", totals)], numbers=heads[1:], optional=heads[-2:0:-1])


def format_period(at: float, step: str) -> str:
    """Return the start of a period in UTC as text."""
    begins = datetime.fromtimestamp(at, UTC)
    return f"{begins:%Y-%m-%d}" if step == "day" else f"{begins:%Y-%m-%d %H:%M}"


@click.command("groups")
@death_filters
@click.option(
    "--state", type=click.Choice([str(each) for each in FailureState]), help="Only groups in this state."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many."
)
@location_options
@json_option
def groups_command(
    filters: GroupFilters,
    state: str | None,
    limit: int,
    location: StoreLocation,
    as_json: bool,
) -> None:
    """Group the tasks that died by their failure, the largest group first.

    A group has one error class, one message without its numbers, ids and quoted texts, and one innermost
    frame of your code. EXAMPLE is the task that died last; `tidegate dead show` shows it while it is dead.
    Other commands take the FINGERPRINT of a group. STATE is open, resolved, muted or reopened. A reopened
    group was resolved, and a task has died of it since then.
    """
    run(_groups(location, filters, None if state is None else FailureState(state), limit, as_json))


async def _groups(
    location: StoreLocation,
    filters: GroupFilters,
    state: FailureState | None,
    limit: int,
    as_json: bool,
) -> None:
    async with opened_store(location) as store:
        found = await list_groups(store, filters, limit=limit, state=state)
        now = await store.now()
    if as_json:
        for each in found:
            print_json(group_fields(each))
    elif found:
        _print_groups(found, now)
    else:
        print_message("no task died in this time")
    if len(found) == limit:
        print_message(f"{counted(limit, 'group')} shown; --limit shows more")


def _print_groups(found: Sequence[GroupWithState], now: float) -> None:
    groups = [each.group for each in found]
    rows = [
        [
            group.deaths,
            "reopened" if each.state.is_reopened else each.state.state,
            group.fingerprint[:8],
            format_since(group.last_at, now),
            format_since(group.first_at, now),
            ", ".join(group.reasons),
            ", ".join(group.functions),
            example,
            join_parts(group.error_class, group.shape) + (f" ({group.frame})" if group.frame else ""),
        ]
        for each, example, group in zip(
            found, short_ids([group.example_id for group in groups]), groups, strict=True
        )
    ]
    heads = ["DEATHS", "STATE", "FINGERPRINT", "LAST", "FIRST", "REASON", "FUNCTION", "EXAMPLE", "FAILURE"]
    print_table(
        heads, rows, numbers=["DEATHS"], optional=["FIRST", "EXAMPLE", "REASON"], shorten=["FUNCTION"]
    )
