"""Moving house, step by step. Interrupted anywhere and begun again, it ends in the same.

A task must never run at both ends. So the source is sealed before the first task leaves it, by triggers that
hold for every process; a batch is committed at the target, then noted at the source, and what is noted is
never sent again, even when the target's retention has long removed it.
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
_IDS = 5_000

OnProgress = Callable[[int], None]
"""Told how many tasks have been dealt with."""


async def preview_transfer(source: Source, target: Target, *, finished: bool) -> TransferSummary:
    """Return what a move would find, and change nothing.

    Raises:
        SchemaError: The schema of one of them is not this version's.
        NotAcceptedError: Something is at work at the source.
    """
    await _open(source, target)
    await source.require_idle()
    return TransferSummary(await source.states(finished=finished))


async def transfer_tasks(
    source: Source, target: Target, *, finished: bool, on_progress: OnProgress
) -> TransferSummary:
    """Move all tasks that are not at the target yet; return what was done.

    Args:
        source: What they leave; sealed from now on.
        target: Where they go.
        finished: Whether succeeded and cancelled tasks come along.
        on_progress: Called after each batch.

    Raises:
        SchemaError: The schema of one of them is not this version's.
        NotAcceptedError: Something is at work at the source, or its tasks are on their way elsewhere.
        StoreError: Some did not arrive.
    """
    target_id = await _open(source, target)
    await source.seal(target_id, target.location)
    summary = TransferSummary(await source.states(finished=finished))
    await _copy_finished_keys(source, target)
    await target.copy_shared_tables(await source.shared_tables())
    await _move_tasks(source, target, summary, finished=finished, on_progress=on_progress)
    await _require_all_arrived(source, summary, finished=finished)
    return summary


async def undo_transfer(source: Source, target: Target) -> bool:
    """Unseal the source, so that work goes on there; tell whether it was sealed.

    Raises:
        NotAcceptedError: The target holds some of its tasks, or is not the one that they went to.
    """
    opened = await _open(source, target)
    destination = await source.destination()
    if destination is None:
        return False
    target_id, location = destination
    if location != target.location:
        raise NotAcceptedError(f"the tasks of this file went to {location}", fix="name that database")
    if (opened == target_id and await source.count_moved()) or await _any_arrived(source, target):
        raise NotAcceptedError(
            f"tasks of this file are at {location} and would run at both",
            fix="finish the move; or, if nothing has run there, drop the schema there and upgrade it anew",
        )
    await source.unseal()
    return True


async def _open(source: Source, target: Target) -> str:
    """Check both schemas; return which database the target is."""
    try:
        await source.open()
    except SchemaError as error:
        raise _error_at("source", error) from error
    try:
        return await target.open()
    except SchemaError as error:
        raise _error_at("target", error) from error


def _error_at(end: str, error: SchemaError) -> SchemaError:
    """Return an error that says of which end it is."""
    return SchemaError(
        f"the {end}: {error.message}", fix=f"{error.fix} (with --database and the {end}'s URL)", **error.facts
    )


async def _copy_finished_keys(source: Source, target: Target) -> None:
    """Move the keys of finished and forgotten tasks: their work must not be done again."""
    after = ("", "")
    while (keys := await source.finished_keys(after, _KEYS_PER_BATCH)).rows:
        await target.copy_finished_keys(keys)
        after = (keys.column("tenant")[-1], keys.column("name")[-1])


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
    """Return if nothing is left at the source but what was kept back.

    Raises:
        StoreError: Something is.
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
