"""Dead letters: choose some by id or by filter, then count, redrive or purge them.

Filters work in chunks. Only tasks whose function some application declares are redriven.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypedDict

from tidegate.domain.readers import Seconds, instant_option, require_names, seconds_option
from tidegate.domain.states import State
from tidegate.errors import NotAcceptedError, UsageError
from tidegate.store.live_workers import declared_functions
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, TaskFilter
from tidegate.store.short_ids import TaskIds, full_ids

CHUNK_SIZE = 500
"""Dead letters per transaction: few enough that other writers do not wait long."""


class DeadLetterFilters(TypedDict, total=False):
    """Which dead letters; every given one must match."""

    queue: str | None
    function: str | None
    """The full name of the task function."""
    tenant: str | None
    reason: str | None
    """A value of `Reason`: `content_policy`, `crash`…"""
    error_class: str | None
    """Dotted name of the exception class."""
    labels: Mapping[str, str] | None
    before: datetime | Seconds | None
    """Only failed before this moment; a duration is an age: `"7d"` for longer than a week ago."""


@dataclass(frozen=True, slots=True)
class DeadLetterReport:
    """What a redrive or purge did; with `dry_run`, what it would have done."""

    matched: int
    """Dead letters that the ids or the filter named."""
    done: int = 0
    """Redriven or purged; 0 for a dry run."""
    refused: int = 0
    """No longer dead when their turn came, or a live task holds their unique name."""
    unknown: int = 0
    """Ids of no task."""
    undeclared: Mapping[str, int] = field(default_factory=dict)
    """Dead letters left alone because no application declares their function, by function."""
    answers: Mapping[str, ActionStatus] = field(default_factory=dict)
    """What was done to each task, where ids were given."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetterChoice:
    """The dead letters that a person chose."""

    task_ids: Sequence[str] | None
    """Full ids; None: the filter chooses."""
    which: TaskFilter = field(default_factory=TaskFilter)


def require_one_choice(
    task_ids: Iterable[str] | None, filters: DeadLetterFilters, *, everything: bool, fix: str
) -> None:
    """Raise unless exactly one of ids, a filter or everything is given: an empty filter would be everything.

    Raises:
        UsageError: It is not clear which dead letters are meant; the error has this fix.
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
    """Return the filter. An age counts back from the store's present time.

    Raises:
        OptionError: A value is invalid.
    """
    require_names(filters, DeadLetterFilters.__annotations__)
    return TaskFilter(
        queue=filters.get("queue"),
        function=filters.get("function"),
        tenant=filters.get("tenant"),
        reason=filters.get("reason"),
        error_class=filters.get("error_class"),
        labels=filters.get("labels") or {},
        before=_moment(filters.get("before"), await store.now()),
    )


def _moment(before: datetime | Seconds | None, now: float) -> float | None:
    if before is None:
        return None
    return (
        instant_option("before", before)
        if isinstance(before, datetime)
        else now - seconds_option("before", before)
    )


async def preview(store: Store, choice: DeadLetterChoice) -> DeadLetterReport:
    """Count what a redrive or purge would change, and change nothing."""
    if choice.task_ids is None:
        return DeadLetterReport(await store.count_dead_letters(choice.which), is_dry_run=True)
    rows = await store.read_tasks(choice.task_ids)
    dead = sum(row.state is State.DEAD for row in rows.values())
    return DeadLetterReport(
        dead, refused=len(rows) - dead, unknown=len(choice.task_ids) - len(rows), is_dry_run=True
    )


async def redrive(
    store: Store,
    choice: DeadLetterChoice,
    own: Collection[str],
    *,
    args: Mapping[str, tuple[bytes, str]] | None = None,
    on_progress: Callable[[int], None] = lambda seen: None,
) -> DeadLetterReport:
    """Send the chosen dead letters back to the main queue.

    By filter: every one that matches and was dead when this call began. One that fails again meanwhile is not
    taken twice. Those of undeclared functions are only counted.

    Args:
        store: Where they are.
        choice: Which.
        own: Functions that the caller's application declares.
        args: New payloads for some ids: {id: (bytes, codec tag)}.
        on_progress: Called after each chunk of a filter, with the number seen so far.

    Raises:
        NotAcceptedError: No application declares the function of a chosen task or of the filter.
            Nothing was done.
    """
    if choice.task_ids is not None:
        return _report_of_ids(await redrive_tasks(store, choice.task_ids, own, args=args))
    declared = await declared_functions(store, own)
    if choice.which.function is not None:
        _require_declared({choice.which.function}, declared)
    return await _act_on_matching(store, choice.which, store.redrive, on_progress, declared)


async def purge(
    store: Store, choice: DeadLetterChoice, *, on_progress: Callable[[int], None] = lambda seen: None
) -> DeadLetterReport:
    """Delete the chosen dead letters with their payloads and history.

    By filter: every one that matches and was dead when this call began.

    Args:
        store: Where they are.
        choice: Which.
        on_progress: Called after each chunk of a filter, with the number seen so far.
    """
    if choice.task_ids is not None:
        return _report_of_ids(await purge_tasks(store, choice.task_ids))
    return await _act_on_matching(store, choice.which, store.purge, on_progress)


async def redrive_tasks(
    store: Store,
    task_ids: Sequence[str],
    own: Collection[str],
    *,
    args: Mapping[str, tuple[bytes, str]] | None = None,
) -> dict[str, ActionStatus]:
    """Send these dead letters back to the main queue and return a status per id. Safe to repeat.

    Args:
        store: Where they are.
        task_ids: Full ids, any number; sent in chunks.
        own: Functions that the caller's application declares.
        args: New payloads for some of them: {id: (bytes, codec tag)}.

    Raises:
        NotAcceptedError: No application declares the function of one of them. Nothing was done.
    """
    rows = await store.read_tasks(task_ids)
    _require_declared({row.function for row in rows.values()}, await declared_functions(store, own))
    statuses: dict[str, ActionStatus] = {}
    for chunk in _chunks(task_ids):
        replaced = {task_id: args[task_id] for task_id in chunk if task_id in args} if args else None
        statuses |= await store.redrive(chunk, args=replaced)
    return statuses


async def purge_tasks(store: Store, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Delete these dead letters in chunks and return a status per id. Safe to repeat."""
    statuses: dict[str, ActionStatus] = {}
    for chunk in _chunks(task_ids):
        statuses |= await store.purge(chunk)
    return statuses


def _chunks(task_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (task_ids[start : start + CHUNK_SIZE] for start in range(0, len(task_ids), CHUNK_SIZE))


def _require_declared(functions: Collection[str], declared: Collection[str]) -> None:
    """Raise `NotAcceptedError` unless all these functions are declared.

    Raises:
        NotAcceptedError: Some are not; it names them. Their tasks would wait for a worker that never comes.
    """
    unknown = sorted(set(functions) - set(declared))
    if unknown:
        raise NotAcceptedError(
            f"no application declares {', '.join(unknown)}; nothing was redriven",
            fix="start a worker that has it, or name the application that does",
            functions=tuple(unknown),
        )


async def _act_on_matching(
    store: Store,
    which: TaskFilter,
    act: Callable[[Sequence[str]], Awaitable[Mapping[str, ActionStatus]]],
    on_progress: Callable[[int], None],
    declared: Collection[str] | None = None,
) -> DeadLetterReport:
    """Act on every matching dead letter; if `declared` is given, only on letters of these functions."""
    now = await store.now()
    which = replace(which, before=now if which.before is None else min(which.before, now))
    seen = done = 0
    undeclared: Counter[str] = Counter()
    # The next page starts after the last letter that stayed: letters that were acted on are no longer listed.
    last_kept: str | None = None
    while letters := await store.list_dead_letters(which, after=last_kept, limit=CHUNK_SIZE):
        chosen = [letter for letter in letters if declared is None or letter.function in declared]
        if declared is not None:
            undeclared.update(letter.function for letter in letters if letter.function not in declared)
        statuses = await act([letter.task_id for letter in chosen]) if chosen else {}
        kept = [letter.task_id for letter in letters if statuses.get(letter.task_id) is not ActionStatus.DONE]
        last_kept = kept[-1] if kept else last_kept
        seen += len(letters)
        done += len(letters) - len(kept)
        on_progress(seen)
    return DeadLetterReport(seen, done, seen - done - undeclared.total(), undeclared=dict(undeclared))


def _report_of_ids(answers: Mapping[str, ActionStatus]) -> DeadLetterReport:
    given = list(answers.values())
    done = given.count(ActionStatus.DONE)
    return DeadLetterReport(
        matched=done,
        done=done,
        refused=given.count(ActionStatus.REFUSED),
        unknown=given.count(ActionStatus.UNKNOWN),
        answers=answers,
    )
