"""Acting on dead letters, by id or by filter: in chunks, and only for declared functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.errors import NotAcceptedError
from tidegate.store.protocol import Store
from tidegate.store.rows import ActionStatus, DeadLetterRow, TaskFilter

CHUNK_SIZE = 500
"""Dead letters in one transaction: few enough that no other writer waits long."""

ProgressCallback = Callable[["BulkResult"], None]
"""Called after each chunk with what was done so far."""


@dataclass(slots=True)
class BulkResult:
    """What a bulk act did so far."""

    done: int = 0
    refused: int = 0
    """No longer dead when their turn came, or a live task holds their unique name."""
    undeclared: Counter[str] = field(default_factory=Counter)
    """Letters left alone because nobody declares their function, by function."""

    def add(self, answers: Mapping[str, ActionStatus]) -> None:
        """Count the answers of one chunk."""
        done = sum(answer is ActionStatus.DONE for answer in answers.values())
        self.done += done
        self.refused += len(answers) - done


async def declared_functions(store: Store) -> frozenset[str]:
    """Return the task functions of all manifests that workers have kept in the store."""
    manifests = await store.load_manifests()
    return frozenset(name for manifest in manifests.values() for name in manifest.get("functions", ()))


async def redrive_tasks(
    store: Store,
    task_ids: Sequence[str],
    declared: Collection[str],
    *,
    args: Mapping[str, tuple[bytes, str]] | None = None,
) -> dict[str, ActionStatus]:
    """Send these dead letters back to the main queue; answer per id. Safe to repeat.

    Args:
        store: Where they are.
        task_ids: Any number; sent in chunks.
        declared: Functions that some application declares.
        args: Payloads to replace: {id: (bytes, codec tag)}.

    Raises:
        NotAcceptedError: One belongs to a function that nobody declares. Nothing was done.
    """
    rows = await store.read_tasks(task_ids)
    require_declared({row.function for row in rows.values()}, declared)
    answers: dict[str, ActionStatus] = {}
    for start in range(0, len(task_ids), CHUNK_SIZE):
        chunk = task_ids[start : start + CHUNK_SIZE]
        replaced = {task_id: args[task_id] for task_id in chunk if task_id in args} if args else None
        answers |= await store.redrive(chunk, args=replaced)
    return answers


def require_declared(functions: Collection[str], declared: Collection[str]) -> None:
    """Return if all these functions are declared.

    Raises:
        NotAcceptedError: It names those that are not: their tasks would wait for a worker that never comes.
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
    """Send back every dead letter that matches and was dead when this began.

    One that fails again meanwhile is not taken twice. Letters of undeclared functions stay and are counted.

    Args:
        store: Where they are.
        task_filter: The filter.
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
    """Delete every dead letter that matches and was dead when this began, with payload and history."""

    async def act(letters: Sequence[DeadLetterRow], result: BulkResult) -> Mapping[str, ActionStatus]:
        return await store.purge([dead_letter.task_id for dead_letter in letters])

    return await _act_on_matching(store, task_filter, act, on_progress)


async def purge_tasks(store: Store, task_ids: Sequence[str]) -> dict[str, ActionStatus]:
    """Delete these dead letters, in chunks; answer per id. Safe to repeat."""
    answers: dict[str, ActionStatus] = {}
    for start in range(0, len(task_ids), CHUNK_SIZE):
        answers |= await store.purge(task_ids[start : start + CHUNK_SIZE])
    return answers


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
    # Pages continue after the last letter that stayed: those acted on are gone, and so is their place.
    stayed: str | None = None
    while letters := await store.list_dead_letters(task_filter, after=stayed, limit=CHUNK_SIZE):
        answers = await act(letters, result)
        result.add(answers)
        left = [
            dead_letter.task_id
            for dead_letter in letters
            if answers.get(dead_letter.task_id) is not ActionStatus.DONE
        ]
        stayed = left[-1] if left else stayed
        on_progress(result)
    return result
