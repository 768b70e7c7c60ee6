"""Moving house, step by step. Interrupted anywhere and begun again, it ends in the same.

A task must never run at both ends. So the source is sealed before the first task leaves it, by triggers that
hold for every process; a batch is committed at the target, then noted at the source, and what is noted is
never sent again, even when the target's retention has long removed it.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.domain.text import counted
from tidegate.errors import NotAcceptedError, SchemaError, StoreError
from tidegate.store.moving.rows import Tally
from tidegate.store.moving.source import Source
from tidegate.store.moving.target import Target

BATCH_TASKS = 250
_ANSWERS = 1_000
_IDS = 5_000

Told = Callable[[int], None]
"""Told how many tasks have been dealt with."""


async def survey(source: Source, target: Target, *, finished: bool) -> Tally:
    """Return what a move would find, and change nothing.

    Raises:
        SchemaError: The schema of one of them is not this version's.
        NotAcceptedError: Something is at work at the source.
    """
    await _open(source, target)
    await source.demand_quiet()
    return Tally(await source.states(finished=finished))


async def move(source: Source, target: Target, *, finished: bool, told: Told) -> Tally:
    """Move all tasks that are not at the target yet; return what was done.

    Args:
        source: What they leave; sealed from now on.
        target: Where they go.
        finished: Whether succeeded and cancelled tasks come along.
        told: Called after each batch.

    Raises:
        SchemaError: The schema of one of them is not this version's.
        NotAcceptedError: Something is at work at the source, or its tasks are on their way elsewhere.
        StoreError: Some did not arrive.
    """
    home = await _open(source, target)
    await source.seal(home, target.place)
    tally = Tally(await source.states(finished=finished))
    await _move_answers(source, target)
    await target.furnish(await source.household())
    await _move_tasks(source, target, tally, finished=finished, told=told)
    await _demand_all(source, tally, finished=finished)
    return tally


async def undo(source: Source, target: Target) -> bool:
    """Unseal the source, so that work goes on there; tell whether it was sealed.

    Raises:
        NotAcceptedError: The target holds some of its tasks, or is not the one that they went to.
    """
    opened = await _open(source, target)
    goal = await source.goal()
    if goal is None:
        return False
    home, place = goal
    if place != target.place:
        raise NotAcceptedError(f"the tasks of this file went to {place}", fix="name that database")
    if (opened == home and await source.moved()) or await _any_there(source, target):
        raise NotAcceptedError(
            f"tasks of this file are at {place} and would run at both",
            fix="finish the move; or, if nothing has run there, drop the schema there and upgrade it anew",
        )
    await source.unseal()
    return True


async def _open(source: Source, target: Target) -> str:
    """Check both schemas; return which database the target is."""
    try:
        await source.open()
    except SchemaError as error:
        raise _of("source", error) from error
    try:
        return await target.open()
    except SchemaError as error:
        raise _of("target", error) from error


def _of(end: str, error: SchemaError) -> SchemaError:
    """Return an error that says of which end it is."""
    return SchemaError(
        f"the {end}: {error.message}", fix=f"{error.fix} (with --database and the {end}'s URL)", **error.facts
    )


async def _move_answers(source: Source, target: Target) -> None:
    """Move the keys of finished and forgotten tasks: their work must not be done again."""
    after = ("", "")
    while (keys := await source.answers(after, _ANSWERS)).rows:
        await target.take_answers(keys)
        after = (keys.column("tenant")[-1], keys.column("name")[-1])


async def _move_tasks(source: Source, target: Target, tally: Tally, *, finished: bool, told: Told) -> None:
    after, done = b"", 0
    while batch := await source.next_batch(after, finished=finished, limit=BATCH_TASKS):
        landed = await target.arrive(batch)
        await source.note_moved(landed.moved | landed.there)
        tally.add(batch, landed)
        after, done = batch.tasks[-1], done + len(batch.tasks)
        told(done)


async def _demand_all(source: Source, tally: Tally, *, finished: bool) -> None:
    """Return if nothing is left at the source but what was kept back.

    Raises:
        StoreError: Something is.
    """
    left, after = 0, b""
    while batch := await source.next_batch(after, finished=finished, limit=BATCH_TASKS):
        left, after = left + len(batch.tasks), batch.tasks[-1]
    if left != len(tally.kept_back):
        raise StoreError(f"{counted(left - len(tally.kept_back), 'task')} did not arrive", fix="move again")


async def _any_there(source: Source, target: Target) -> bool:
    after = b""
    while ids := await source.some_ids(after, _IDS):
        if await target.there(ids):
            return True
        after = ids[-1]
    return False
