"""The steps that runs begin and end: one statement for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidegate.store.common import cached, ids
from tidegate.store.common.steps import PAID_TWICE, UNANSWERED, in_rounds, storable_begin, storable_end
from tidegate.store.postgres.errors import refused_content
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.step_rows import BeginStatus, BegunStep, EndedStep, EndStatus, StepBegin, StepEnd

_SQL = load("steps")


async def begin_steps(db: PostgresSession, begins: Sequence[StepBegin]) -> list[BegunStep]:
    """Record that runs are about to do these steps; return what became of each, in order."""

    async def write(places: Sequence[int]) -> dict[int, BegunStep]:
        rows = [_columns(storable_begin(begins[place]), place) for place in places if _has_id(begins[place])]
        answers = dict.fromkeys(places, BegunStep(BeginStatus.FENCED))
        for place, status, data, codec, is_repeat, arguments in await _run(db, "begin", rows, UNANSWERED):
            if status is None:
                del answers[place]
            else:
                answers[place] = BegunStep(
                    BeginStatus(status), data or b"", codec or "", bool(is_repeat), arguments or ""
                )
        return answers

    return await in_rounds(begins, write)


async def end_steps(db: PostgresSession, ends: Sequence[StepEnd]) -> list[EndedStep]:
    """Record how these steps ended; return what became of each, in order."""

    async def write(places: Sequence[int]) -> dict[int, EndedStep]:
        rows = [_columns(storable_end(ends[place]), place) for place in places if _has_id(ends[place])]
        answers = dict.fromkeys(places, EndedStep(EndStatus.GONE))
        for place, status, data, codec in await _run(db, "end", rows, PAID_TWICE):
            answers[place] = EndedStep(EndStatus(status), data or b"", codec or "")
        return answers

    return await in_rounds(ends, write)


async def begin_cached_step(db: PostgresSession, begin: StepBegin) -> BegunStep:
    """Begin a step with a cache, or return the result that serves."""
    return await cached.begin_step(db, begin, partial(_begin_plainly, db), partial(_end_plainly, db))


async def end_cached_step(db: PostgresSession, end: StepEnd) -> EndedStep:
    """End a step with a result, and keep the result for other tasks."""
    return await cached.end_step(db, end, partial(_end_plainly, db))


async def _begin_plainly(db: PostgresSession, begin: StepBegin) -> BegunStep:
    (begun,) = await begin_steps(db, [begin])
    return begun


async def _end_plainly(db: PostgresSession, end: StepEnd) -> EndedStep:
    (ended,) = await end_steps(db, [end])
    return ended


def _has_id(given: StepBegin | StepEnd) -> bool:
    return ids.canonical_or_none(given.fence.task_id) is not None


def _columns(given: StepBegin | StepEnd, place: int) -> tuple[Any, ...]:
    """Return the values of a row, in the order of the fields without `cache`: so the statements take them."""
    return (*given.fence, *given[1:-1], place)


async def _run(db: PostgresSession, name: str, rows: Sequence[Sequence[Any]], cause: str) -> list[Any]:
    """Run a statement with the columns of these rows as arrays."""
    if not rows:
        return []
    with refused_content():
        return await db.rows(_SQL[name], db.at, *map(list, zip(*rows, strict=True)), cause)
