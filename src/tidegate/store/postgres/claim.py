"""Taking ready tasks: peek without a lock, share the slots, lock and move exactly so many of each lane."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.policy.order import Portion, apportion
from tidegate.store.columns import PRIORITIES, claimed
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.lanes import KnownLanes, Lane
from tidegate.store.postgres.session import Session
from tidegate.store.postgres.statements import load
from tidegate.store.rows import Claim, ClaimAsk, CrashTerms
from tidegate.store.text import storable

_SQL = load("claim")
_LOST = load("lost_claims")

MANY_LANES = 2_000
"""Steps from lane to lane after which one walk over everything ready is cheaper: say, a queue a user."""

Terms = Mapping[str, CrashTerms]


async def claim(database: Database, known: KnownLanes, ask: ClaimAsk) -> Claim:
    """Move up to `ask.slots` ready tasks to this worker; nothing is locked while there is none."""
    terms = {storable(function): terms for function, terms in ask.functions.items()}
    is_alive, lanes = await database.once(lambda db: _peek(db, known, ask, list(terms)))
    if not is_alive or not lanes:
        return Claim((), alive=is_alive)
    portions = _portions(ask, lanes)
    wanted = _wanted(terms, _tasks_by_lane(lanes, portions))
    rows = await database.once(
        lambda db: db.rows(_SQL["take"], db.at, ask.worker_id, *wanted), repeatable=False
    )
    return Claim(tuple([claimed(row[:-1], row[-1], str) for row in _dealt(rows, portions)]))


async def lost_claims(db: Session, worker_id: str, known: frozenset[Fence]) -> list[Fence]:
    """Return the runs this worker holds by the store's word that are not among `known`."""
    await db.row(_LOST["wait"], worker_id)
    held = [Fence(str(task_id), run) for task_id, run in await db.rows(_LOST["held"], worker_id)]
    return [fence for fence in held if fence not in known]


async def _peek(
    db: Session, known: KnownLanes, ask: ClaimAsk, functions: list[str]
) -> tuple[bool, list[Lane]]:
    """Return whether the worker is alive, and the lanes with the first tasks."""
    queues = None if "*" in ask.queues else [storable(queue) for queue in dict.fromkeys(ask.queues)]
    given = known.columns(ask)
    at_most = None if ask.strict else MANY_LANES
    rows = await db.rows(
        _SQL["peek"], ask.worker_id, queues, functions, ask.slots, ask.strict, at_most, *given
    )
    if rows[0]["lanes_met"] == at_most:
        rows = await db.rows(_SQL["walk"], ask.worker_id, queues, functions, ask.slots)
    is_alive, _, queue, *_, entries = rows[0]
    if queue is None:
        return is_alive, []
    lanes = [_lane(row, strict=ask.strict) for row in rows]
    known.found(ask, lanes, entries, everywhere=given[0] is None)
    return is_alive, [lane for lane in lanes if lane.first_rank is not None]


def _lane(row: Sequence[Any], *, strict: bool) -> Lane:
    _, _, queue, priority, upstream, function, place, first_rank, places, _ = row
    return Lane(queue, priority, upstream, function, place if strict else 0, first_rank, places or ())


def _portions(ask: ClaimAsk, lanes: Sequence[Lane]) -> list[Portion]:
    """Share the slots between the priorities."""
    if len(lanes) == 1:
        return [Portion(PRIORITIES[lanes[0].priority], ask.slots)]
    ready: dict[Priority, int] = defaultdict(int)
    for lane in lanes:
        ready[PRIORITIES[lane.priority]] += len(lane.places)
    return apportion(ask.slots, ask.reserved, lambda priority, at_most: min(ready[priority], at_most))


def _tasks_by_lane(lanes: Sequence[Lane], portions: Sequence[Portion]) -> list[tuple[Lane, int]]:
    """Return how many tasks to take from each lane that is to give any."""
    shares: dict[int, int] = defaultdict(int)
    for priority, tasks in portions:
        shares[priority] += tasks
    if len(lanes) == 1:
        return [(lanes[0], shares[lanes[0].priority])]
    tasks_of = ((lane, bisect_right(lane.places, shares[lane.priority])) for lane in lanes)
    return [(lane, tasks) for lane, tasks in tasks_of if tasks]


def _wanted(terms: Terms, tasks: Sequence[tuple[Lane, int]]) -> tuple[list[Any], ...]:
    """Return the columns that `take` wants of these lanes: each from where it was just seen to begin."""
    rows = []
    for lane, number in tasks:
        mine = terms[lane.function]
        crash = (mine.crash_limit, mine.base_seconds, mine.cap_seconds)
        rows.append((*lane.name, lane.place, lane.first_rank, number, *crash))
    return tuple([list(column) for column in zip(*rows, strict=True)])


def _dealt(rows: Sequence[Any], portions: Sequence[Portion]) -> Iterator[Any]:
    """Yield what was taken in the order of the portions."""
    if len(portions) == 1:
        yield from rows
        return
    by_priority: dict[int, list[Any]] = defaultdict(list)
    for row in rows:
        by_priority[row["priority"]].append(row)
    begins: dict[int, int] = defaultdict(int)
    for priority, tasks in portions:
        begin = begins[priority]
        begins[priority] = begin + tasks
        yield from by_priority[priority][begin : begin + tasks]
