"""Steps of tasks: what both back ends do alike with what runs begin and end, and reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from tidegate.domain.failure import MESSAGE_LIMIT
from tidegate.domain.step import StepState
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.step_rows import StepBegin, StepEnd, StepRow

UNANSWERED = "its run ended without an answer"
"""The cause of a doubt whose run named no cause."""
PAID_TWICE = "its answer came after another result was recorded"
"""The cause in the ledger of a call that was paid twice."""

T = TypeVar("T")


def storable_begin(begin: StepBegin) -> StepBegin:
    """Return a begin with texts that each store accepts."""
    return begin._replace(
        key=storable(begin.key), name=storable(begin.name), upstream=storable(begin.upstream)
    )


def storable_end(end: StepEnd) -> StepEnd:
    """Return an end with texts that each store accepts."""
    return end._replace(
        key=storable(end.key),
        codec=storable(end.codec),
        cause=storable(end.cause[:MESSAGE_LIMIT]),
        upstream=storable(end.upstream),
        request_id=storable(end.request_id[:MESSAGE_LIMIT]),
    )


async def in_rounds(
    given: Sequence[StepBegin] | Sequence[StepEnd],
    write: Callable[[Sequence[int]], Coroutine[Any, Any, Mapping[int, T]]],
) -> list[T]:
    """Write these begins or ends by a function that takes each step once, in the order of task and key.

    Args:
        given: The begins or ends. Several of one step are written one after the other, as given.
        write: Writes the steps at these positions, and returns their answers. Steps without an answer are
            written again.
    """
    answers: dict[int, T] = {}
    left = list(range(len(given)))
    while left:
        first: dict[tuple[str, str], int] = {}
        for place in left:
            first.setdefault((given[place].fence.task_id, given[place].key), place)
        answers.update(await write([first[step] for step in sorted(first)]))
        left = [place for place in left if place not in answers]
    return [answers[place] for place in range(len(given))]


async def read_steps(
    db: Session,
    task_id: str,
    *,
    with_data: bool = True,
    max_bytes: int | None = None,
    max_total_bytes: int | None = None,
) -> list[StepRow]:
    """Return the steps of a task, in the order in which they were first begun."""
    task = db.id(task_id)
    if task is None:
        return []
    rows = await db.rows(db.sql("steps")["rows"], task, with_data, max_bytes, max_total_bytes)
    return [StepRow(key, name, StepState(state), *rest) for key, name, state, *rest in rows]
