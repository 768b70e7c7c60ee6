"""Redrive and purge dead letters, by id or by filter. Works in chunks; redrives only declared functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.errors import NotAcceptedError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, DeadLetterRow, TaskFilter

CHUNK_SIZE = 500
"""Dead letters per transaction: few enough that other writers do not wait long."""

ProgressCallback = Callable[["BulkResult"], None]
"""Called after each chunk with the counts so far."""


@dataclass(slots=True)
class BulkResult:
    """Counts of a bulk action."""

    done: int = 0
    refused: int = 0
    """Letters that were no longer dead, or whose unique name a live task holds."""
    undeclared: Counter[str] = field(default_factory=Counter)
    """Letters skipped because no application declares their function; counted per function."""

    def add(self, statuses: Mapping[str, ActionStatus]) -> None:
        """Count the statuses of one chunk."""
        done = sum(status is ActionStatus.DONE for status in statuses.values())
        self.done += done
        self.refused += len(statuses) - done


async def declared_functions(store: Store) -> frozenset[str]:
    """Return the task functions of all manifests that workers saved in the store."""
    manifests = await store.load_manifests()
    return frozenset(name for manifest in manifests.values() for name in manifest.get("functions", ()))


async def redrive_tasks(
    store: Store,
    task_ids: Sequence[str],
    declared: Collection[str],
    *,
    args: Mapping[str, tuple[bytes, str]] | None = None,
) -> dict[str, ActionStatus]:
    """Send these dead letters back to the main queue and return a status per id. Safe to repeat.

    Args:
        store: Holds the dead letters.
        task_ids: Any number; sent in chunks.
        declared: Functions that some application declares.
        args: New payloads for some of them: {id: (bytes, codec tag)}.

    Raises:
        NotAcceptedError: No application declares the function of one of them. Nothing was done.
    """
    rows = await store.read_tasks(task_ids)
    require_declared({row.function for row in rows.values()}, declared)
    statuses: dict[str, ActionStatus] = {}
    for start in range(0, len(task_ids), CHUNK_SIZE):
        chunk = task_ids[start : start + CHUNK_SIZE]
        replaced = {task_id: args[task_id] for task_id in chunk if task_id in args} if args else None
        statuses |= await store.redrive(chunk, args=replaced)
    return statuses


def require_declared(functions: Collection[str], declared: Collection[str]) -> None:
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


async def redrive_matching(
    store: Store,
    task_filter: TaskFilter,
    declared: Collection[str],
    *,
    on_progress: ProgressCallback = lambda result: None,
) -> BulkResult:
    """Redrive every dead letter that matches and was dead when this call began.

    A task that dies again meanwhile is not redriven twice. Letters of undeclared functions are only counted.

    Args:
        store: Holds the dead letters.
        task_filter: Which dead letters.
        declared: Functions that some application declares.
        on_progress: Called after each chunk.
    """

    async def act(letters: Sequence[DeadLetterRow], result: BulkResult) -> Mapping[str, ActionStatus]:
        result.undeclared.update(
            dead_letter.function for dead_letter in letters if dead_letter.function not in declared
        )
        chosen = [dead_letter.task_id for dead_letter in letters if dead_letter.function in declared]
        return await store.redrive(chosen) if chosen else {}

    return await _act_on_matching(store, task_filter, act, on_progress)


async def purge_matching(
    store: Store, task_filter: TaskFilter, *, on_progress: ProgressCallback = lambda result: None
) -> BulkResult:
    """Delete every matching letter that was dead when this call began, with its payload and history."""

    async def act(letters: Sequence[DeadLetterRow], result: BulkResult) -> Mapping[str, ActionStatus]:
        return await store.purge([dead_letter.task_id for dead_letter in letters])

    return await _act_on_matching(store, task_filter, act, on_progress)


async def purge_tasks(store: Store, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Delete these dead letters in chunks and return a status per id. Safe to repeat."""
    statuses: dict[str, ActionStatus] = {}
    for start in range(0, len(task_ids), CHUNK_SIZE):
        statuses |= await store.purge(task_ids[start : start + CHUNK_SIZE])
    return statuses


async def _act_on_matching(
    store: Store,
    task_filter: TaskFilter,
    act: Callable[[Sequence[DeadLetterRow], BulkResult], Awaitable[Mapping[str, ActionStatus]]],
    on_progress: ProgressCallback,
) -> BulkResult:
    now = await store.now()
    task_filter = replace(
        task_filter, before=now if task_filter.before is None else min(task_filter.before, now)
    )
    result = BulkResult()
    # The next page starts after the last letter that stayed: letters that were acted on are no longer listed.
    last_kept: str | None = None
    while letters := await store.list_dead_letters(task_filter, after=last_kept, limit=CHUNK_SIZE):
        statuses = await act(letters, result)
        result.add(statuses)
        kept = [
            dead_letter.task_id
            for dead_letter in letters
            if statuses.get(dead_letter.task_id) is not ActionStatus.DONE
        ]
        last_kept = kept[-1] if kept else last_kept
        on_progress(result)
    return result
