"""The steps of a transfer. An interrupted transfer can be run again and ends in the same state.

A task must never run at both ends. So the source is sealed before the first task leaves it, by triggers that
stop every process. Each batch is committed at the target, then recorded at the source. A recorded task is
never sent again, even if the target's retention has deleted it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError, SchemaError, StoreError
from tidegate.store.transfer.rows import TransferSummary
from tidegate.store.transfer.source import Source
from tidegate.store.transfer.target import Target

BATCH_TASKS = 250
_KEYS_PER_BATCH = 1_000
_LETTERS_PER_BATCH = 1_000
_IDS = 5_000

OnProgress = Callable[[int], None]
"""Called with the number of tasks handled so far."""


async def preview_transfer(source: Source, target: Target, *, finished: bool) -> TransferSummary:
    """Return what a transfer would do, and change nothing.

    Raises:
        SchemaError: The schema of the source or the target is not this version's.
        NotAcceptedError: A worker or a task is running at the source.
    """
    await _open(source, target)
    await source.require_idle()
    return TransferSummary(await source.states(finished=finished))


async def transfer_tasks(
    source: Source, target: Target, *, finished: bool, on_progress: OnProgress
) -> TransferSummary:
    """Move all tasks that are not at the target yet; return a summary.

    Args:
        source: The file to move from. The source is sealed from now on.
        target: The database to move to.
        finished: Whether to move succeeded and cancelled tasks too if no task waits for them.
        on_progress: Called after each batch.

    Raises:
        SchemaError: The schema of the source or the target is not this version's.
        NotAcceptedError: A worker or a task is running at the source, or a transfer to another target has
            begun.
        StoreError: Some tasks did not arrive.
    """
    target_id = await _open(source, target)
    await source.seal(target_id, target.location)
    summary = TransferSummary(await source.states(finished=finished))
    await _copy_finished_keys(source, target)
    await target.copy_shared_tables(await source.shared_tables())
    await _move_tasks(source, target, summary, finished=finished, on_progress=on_progress)
    await _copy_operations(source, target)
    await target.copy_shared_tables(await source.late_tables(finished=finished))
    await _require_all_arrived(source, summary, finished=finished)
    return summary


async def undo_transfer(source: Source, target: Target) -> bool:
    """Unseal the source, so that work continues there; return whether it was sealed.

    Raises:
        NotAcceptedError: The target has some of its tasks, or is not the target of the transfer.
    """
    opened = await _open(source, target)
    destination = await source.destination()
    if destination is None:
        return False
    target_id, location = destination
    if location != target.location:
        raise NotAcceptedError(
            f"the tasks of this file went to {location}", fix="name that database", place=location
        )
    if (opened == target_id and await source.count_moved()) or await _any_arrived(source, target):
        raise NotAcceptedError(
            f"tasks of this file are at {location} and would run at both",
            fix="finish the move; or, if nothing has run there, drop the schema there and run `tidegate db"
            " upgrade` again",
            place=location,
        )
    await source.unseal()
    return True


async def _open(source: Source, target: Target) -> str:
    """Check both schemas; return the identity of the target."""
    try:
        await source.open()
    except SchemaError as error:
        raise _error_at("source", error) from error
    try:
        return await target.open()
    except SchemaError as error:
        raise _error_at("target", error) from error


def _error_at(end: str, error: SchemaError) -> SchemaError:
    """Return the error with the name of the store that it is about: source or target."""
    return SchemaError(
        f"the {end}: {error.message}", fix=f"{error.fix} (with --database and the {end}'s URL)", **error.facts
    )


async def _copy_finished_keys(source: Source, target: Target) -> None:
    """Copy the keys of finished and deleted tasks, whose work must not be done again."""
    after = ("", "")
    while (keys := await source.finished_keys(after, _KEYS_PER_BATCH)).rows:
        await target.copy_finished_keys(keys)
        after = (keys.column("tenant")[-1], keys.column("name")[-1])


async def _copy_operations(source: Source, target: Target) -> None:
    """Copy the operations after all their letters, so that no process goes on with a part of them."""
    after = ("", b"")
    while (letters := await source.letters(after, _LETTERS_PER_BATCH)).rows:
        await target.copy_shared_tables([letters])
        after = (letters.column("operation_id")[-1], letters.column("task_id")[-1])
    await target.copy_shared_tables([await source.operations()])


async def _move_tasks(
    source: Source, target: Target, summary: TransferSummary, *, finished: bool, on_progress: OnProgress
) -> None:
    after, done = b"", 0
    while batch := await source.next_batch(after, finished=finished, limit=BATCH_TASKS):
        batch_result = await target.import_batch(batch)
        await source.mark_moved(batch_result.moved | batch_result.there)
        summary.add(batch, batch_result)
        after, done = batch.tasks[-1], done + len(batch.tasks)
        on_progress(done)


async def _require_all_arrived(source: Source, summary: TransferSummary, *, finished: bool) -> None:
    """Raise `StoreError` if the source has tasks that were neither moved nor kept back.

    Raises:
        StoreError: Tasks are left.
    """
    left, after = 0, b""
    while batch := await source.next_batch(after, finished=finished, limit=BATCH_TASKS):
        left, after = left + len(batch.tasks), batch.tasks[-1]
    if left != len(summary.kept_back):
        raise StoreError(f"{counted(left - len(summary.kept_back), 'task')} did not arrive", fix="move again")


async def _any_arrived(source: Source, target: Target) -> bool:
    after = b""
    while ids := await source.next_ids(after, _IDS):
        if await target.there(ids):
            return True
        after = ids[-1]
    return False
