"""Dead letters: choose some by id or by filter, then count, redrive or purge them.

Each redrive and purge is recorded as an operation; `bulk` starts and ends operations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from tidegate.domain.readers import Seconds, require_names
from tidegate.domain.states import State
from tidegate.errors import UsageError
from tidegate.operations import bulk
from tidegate.operations.bulk import PLAIN_SETTINGS
from tidegate.operations.fingerprints import optional_fingerprint
from tidegate.operations.history import past_moment
from tidegate.store.operation_rows import Payloads, RedriveSettings
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter
from tidegate.store.short_ids import TaskIds, full_ids


class DeadLetterFilters(TypedDict, total=False):
    """A filter of dead letters; every given value must match."""

    queue: str | None
    function: str | None
    """The full name of the task function."""
    tenant: str | None
    reason: str | None
    """A value of `Reason`: `content_policy`, `crash`…"""
    error_class: str | None
    """The dotted name of the exception class."""
    labels: Mapping[str, str] | None
    fingerprint: str | None
    """The 16 hex digits of a fingerprint, or the first digits of a known one, as `tidegate dead groups` shows
    them."""
    since: datetime | Seconds | None
    """Only tasks that failed at this moment or later; a duration is an age: `"24h"` for the last day."""
    before: datetime | Seconds | None
    """Only tasks that failed before this moment; a duration is an age: `"7d"` for longer than a week ago."""


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """The result of a redrive or purge; with `dry_run`, what it would have done."""

    matched: int
    """How many dead letters the ids or the filter named."""
    done: int = 0
    """How many were redriven or purged; 0 for a dry run."""
    refused: int = 0
    """How many were skipped: they were no longer dead, or a live task has their unique name."""
    unknown: int = 0
    """Given ids that no task has."""
    answers: Mapping[str, ActionStatus] = field(default_factory=dict)
    """What was done to each task, if ids were given."""
    is_dry_run: bool = False
    operation_id: str = ""
    """The operation that records the redrive or purge. Maintenance continues a redrive that was not done
    immediately."""
    in_doubt: int = 0
    """For a dry run: how many matching letters are left out, because their calls may have been processed. If
    ids were given and one of them is in doubt, none is sent."""
    canary: int = 0
    """For a dry run of a filter: how many letters are sent first."""


@dataclass(frozen=True, slots=True)
class DeadLetterChoice:
    """The dead letters that a person chose."""

    task_ids: Sequence[str] | None
    """The full ids of the chosen letters; None if the filter chooses them."""
    which: TaskFilter = field(default_factory=TaskFilter)


def require_one_choice(
    task_ids: Iterable[str] | None, filters: DeadLetterFilters, *, everything: bool, fix: str
) -> None:
    """Raise unless exactly one of ids, a filter or everything is given: an empty filter matches everything.

    Raises:
        UsageError: It is not clear which dead letters are meant; the error contains this fix.
    """
    is_filtered = any(value not in (None, {}) for value in filters.values())
    if (task_ids is not None) + is_filtered + everything != 1:
        raise UsageError("it is not clear which dead letters are meant", fix=fix)


async def choose(store: Store, task_ids: TaskIds | None, filters: DeadLetterFilters) -> DeadLetterChoice:
    """Return the dead letters of these ids; without ids, the dead letters that match the filter.

    Raises:
        OptionError: A value of a filter cannot work, or a short id matches several tasks.
    """
    if task_ids is not None:
        return DeadLetterChoice(await full_ids(store, task_ids))
    return DeadLetterChoice(None, await task_filter(store, filters))


async def task_filter(store: Store, filters: DeadLetterFilters) -> TaskFilter:
    """Return the filter for the store. Ages count back from the store's present time.

    Raises:
        OptionError: A value is invalid.
    """
    require_names(filters, DeadLetterFilters.__annotations__)
    now = await store.now()
    return TaskFilter(
        queue=filters.get("queue"),
        function=filters.get("function"),
        tenant=filters.get("tenant"),
        reason=filters.get("reason"),
        error_class=filters.get("error_class"),
        labels=filters.get("labels") or {},
        before=_moment("before", filters.get("before"), now),
        fingerprint=await optional_fingerprint(store, filters.get("fingerprint")),
        since=_moment("since", filters.get("since"), now),
    )


def _moment(option: str, value: datetime | Seconds | None, now: float) -> float | None:
    return None if value is None else past_moment(option, value, now)


async def preview(
    store: Store, choice: DeadLetterChoice, settings: RedriveSettings | None = None
) -> DeadLetterReport:
    """Count the letters of a redrive with these settings, or of a purge without settings; change nothing."""
    if choice.task_ids is None and settings is not None:
        found = await bulk.preview_redrive(store, choice.which, settings)
        return DeadLetterReport(found.letters, is_dry_run=True, in_doubt=found.in_doubt, canary=found.canary)
    if choice.task_ids is None:
        return DeadLetterReport(await store.count_dead_letters(choice.which), is_dry_run=True)
    rows = await store.read_tasks(choice.task_ids)
    dead = sum(row.state is State.DEAD for row in rows.values())
    doubts = 0
    if settings is not None and not settings.repeats_doubts:
        doubts = len(await store.find_letters_in_doubt(list(rows)))
    return DeadLetterReport(
        0 if doubts else dead,  # a redrive by id refuses all if one is in doubt
        refused=len(rows) - dead,
        unknown=len(choice.task_ids) - len(rows),
        is_dry_run=True,
        in_doubt=doubts,
    )


async def redrive(
    store: Store,
    choice: DeadLetterChoice,
    own: Collection[str],
    *,
    by: str,
    settings: RedriveSettings = PLAIN_SETTINGS,
    args: Payloads | None = None,
    expect: int | None = None,
    tenant: str | None = None,
) -> DeadLetterReport:
    """Send the chosen dead letters back to the main queue, as one operation.

    A short list of ids is sent immediately. A filter or a long list starts an operation that maintenance
    advances: a canary first, then small batches. The report has the id of the operation.

    Args:
        store: Holds the letters.
        choice: The chosen letters.
        own: The functions that the caller's application declares.
        by: Who does this.
        settings: How the letters are sent.
        args: New payloads for some ids.
        expect: Refuse if the filter matches more letters than this.
        tenant: The tenant that owns the operation; None: the operator.

    Raises:
        NotAcceptedError: No application declares the function of a chosen task or of the filter, a chosen
            task is in doubt, or more letters match than expected. Nothing was done.
    """
    if choice.task_ids is None:
        row = await bulk.start_redrive(
            store, choice.which, by=by, own=own, settings=settings, tenant=tenant, expect=expect
        )
        return DeadLetterReport(row.preview, operation_id=row.id)
    operation_id, answers = await bulk.redrive_ids(
        store, choice.task_ids, own, by=by, settings=settings, args=args, tenant=tenant
    )
    if operation_id and not answers:
        return DeadLetterReport(len(choice.task_ids), operation_id=operation_id)
    return _report_of_ids(answers, operation_id)


async def purge(
    store: Store,
    choice: DeadLetterChoice,
    *,
    by: str,
    tenant: str | None = None,
    on_progress: Callable[[int], None] = lambda seen: None,
) -> DeadLetterReport:
    """Delete the chosen dead letters with their payloads and history, as one operation.

    With a filter, every letter that matches and was dead when this call began is deleted. The purge ends
    early if somebody aborts the operation.

    Args:
        store: Holds the letters.
        choice: The chosen letters.
        by: Who does this.
        tenant: The tenant that owns the operation; None: the operator.
        on_progress: Called after each chunk with the number of letters read so far.
    """
    row, answers = await bulk.purge(
        store, choice.task_ids, choice.which, by=by, tenant=tenant, on_progress=on_progress
    )
    if choice.task_ids is not None:
        return _report_of_ids(answers, row.id)
    return DeadLetterReport(row.chosen, row.sent, row.skipped, operation_id=row.id)


def _report_of_ids(answers: Mapping[str, ActionStatus], operation_id: str) -> DeadLetterReport:
    given = list(answers.values())
    done = given.count(ActionStatus.DONE)
    return DeadLetterReport(
        matched=done,
        done=done,
        refused=given.count(ActionStatus.REFUSED),
        unknown=given.count(ActionStatus.UNKNOWN),
        answers=answers,
        operation_id=operation_id,
    )
