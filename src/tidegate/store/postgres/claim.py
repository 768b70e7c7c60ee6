"""Taking ready tasks: peek without a lock, share the slots, lock and move exactly so many of each lane."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.domain.spec import Priority
from tidegate.policy.admission import PROBERS, Admitted, Door, Doors, admit, counted
from tidegate.policy.order import Portion, apportion
from tidegate.store.columns import PRIORITIES, claimed
from tidegate.store.common import gates
from tidegate.store.postgres.database import Database
from tidegate.store.postgres.lanes import KnownLanes, Lane
from tidegate.store.postgres.session import PostgresSession
from tidegate.store.postgres.statements import load
from tidegate.store.rows import Claim, ClaimAsk, ClaimedTask, CrashTerms
from tidegate.store.text import storable

_SQL = load("claim")

MANY_LANES = 2_000
"""Steps from lane to lane after which one walk over everything ready is cheaper: say, a queue a user."""

_ROUNDS = 4
"""In which one claim looks for tasks that limits let through."""

Terms = Mapping[str, CrashTerms]


async def claim(database: Database, known: KnownLanes, ask: ClaimAsk) -> Claim:
    """Move up to `ask.slots` ready tasks to this worker; nothing is locked while there is none."""
    terms = {storable(function): terms for function, terms in ask.functions.items()}
    lane = known.only(ask)
    if lane is None:
        return await _look_and_take(database, known, ask, terms)
    tasks = await _take(database, ask, terms, [lane], minds_gates=False)
    if len(tasks) < ask.slots:
        rest = await _look_and_take(database, known, replace(ask, slots=ask.slots - len(tasks)), terms)
        return replace(rest, tasks=(*tasks, *rest.tasks))
    return Claim(tuple(tasks))


async def _look_and_take(database: Database, known: KnownLanes, ask: ClaimAsk, terms: Terms) -> Claim:
    is_alive, lanes, doors = await database.read(lambda db: _look(db, known, ask, list(terms)), steady=True)
    if not is_alive or not lanes:
        return Claim((), alive=is_alive)
    if doors is not None and any(doors.of(lane.upstream, lane.function) for lane in lanes):
        return await _through_doors(database, ask, terms, lanes, doors)
    tasks = await _take(database, ask, terms, lanes, minds_gates=True)
    if doors is None and len(lanes) == 1 and len(tasks) == ask.slots:
        known.found_only(ask, lanes[0])
    return Claim(tuple(tasks))


async def _take(
    database: Database, ask: ClaimAsk, terms: Terms, lanes: Sequence[Lane], *, minds_gates: bool
) -> list[ClaimedTask]:
    """Take what the slots hold of lanes that no gate stands before."""
    portions = _portions(ask, lanes)
    wanted = _wanted(terms, _tasks_by_lane(lanes, portions))
    rows = await database.once(
        lambda db: db.rows(_SQL["take"], db.at, ask.worker_id, *wanted, minds_gates, None),
        repeatable=False,
        steady=True,
    )
    return [claimed(row[:-1], row[-1], str) for row in _dealt(rows, portions)]


async def _through_doors(
    database: Database, ask: ClaimAsk, terms: Terms, lanes: Sequence[Lane], doors: Doors
) -> Claim:
    """Take what limits let through, round by round: what one lane may not give, others may."""
    tasks: list[ClaimedTask] = []
    every = list(lanes)
    for _ in range(_ROUNDS):
        left = replace(ask, slots=ask.slots - len(tasks))
        if any(not _is_open(doors, lane) for lane in lanes):
            lanes = await database.once(
                lambda db: _open_lanes(db, left, list(terms), doors),  # noqa: B023
                steady=True,
            )
        if not lanes:
            break
        portions = _portions(left, lanes)
        shares = _tasks_by_lane(lanes, portions)
        taken, doors = await database.transact(
            lambda db: _take_charged(db, left, terms, shares),  # noqa: B023
            repeatable=False,
            steady=True,
        )
        by_row = {row["task_id"]: admitted for row, admitted in taken}
        rows = _dealt([row for row, _ in taken], portions)
        tasks += [claimed(row[:-1], row[-1], str, by_row[row["task_id"]]) for row in rows]
        was_short = len(taken) < min(left.slots, sum(number for _, number in shares))
        if not taken or not was_short or len(tasks) >= ask.slots:
            break
    return Claim(tuple(tasks), again_seconds=_again_seconds(doors, every))


async def _take_charged(
    db: PostgresSession, ask: ClaimAsk, terms: Terms, shares: Sequence[tuple[Lane, int]]
) -> tuple[list[tuple[Any, Admitted]], Doors]:
    """Lock the gates, take as much of each lane as they let through, and charge exactly what was taken."""
    now = await db.now()
    rows = await gates.locked_rows(db)
    in_flight = await gates.in_flight(db, now, counted(rows, now))
    trial, doors = Doors(rows, in_flight, now), Doors(rows, in_flight, now)
    numbers = []
    only: list[Any] = []
    for lane, wanted in sorted(shares, key=lambda share: (share[0].priority, share[0].first_rank or 0.0)):
        number = 0
        prober = None
        held = [door for door in trial.of(lane.upstream, lane.function) if door.is_held]
        if held and _is_open(trial, lane):
            prober = await _prober(db, lane, terms[lane.function].max_attempts, held)
            if prober is None:
                continue
        while number < wanted and _is_open(trial, lane):
            admit(trial.of(lane.upstream, lane.function))
            number += 1
        if number:
            numbers.append((lane, number))
            only.append(prober)
    if not numbers:
        return [], doors
    found = await db.rows(_SQL["take"], db.at, ask.worker_id, *_wanted(terms, numbers), True, only)
    taken = [(row, admit(doors.of(row["upstream"], row["function"]))) for row in found]
    await gates.save(db, now, doors.changed())
    if probes := [row["task_id"] for row, admitted in taken if admitted.is_probe]:
        await db.run(_SQL["mark_probes"], probes)
    return taken, doors


async def _prober(db: PostgresSession, lane: Lane, max_attempts: int, held: Sequence[Door]) -> Any:
    """Return the id of the task of a lane that may try its held gate; None if none of the first ones may."""
    row = await db.row(_SQL["prober"], *lane.name, max_attempts, PROBERS)
    if row is None or not all(door.lets_only(on_last_attempt=row["is_last"]) for door in held):
        return None
    return row["task_id"]


def _is_open(doors: Doors, lane: Lane) -> bool:
    return all(door.is_open for door in doors.of(lane.upstream, lane.function))


def _again_seconds(doors: Doors, lanes: Sequence[Lane]) -> float | None:
    """Return when it is worth looking again for what doors keep back; None: no time decides that."""
    shut = [d for lane in lanes for d in doors.of(lane.upstream, lane.function) if not d.is_open]
    times = [seconds for door in shut if (seconds := door.again_seconds()) is not None]
    return min(times, default=None)


async def _look(
    db: PostgresSession, known: KnownLanes, ask: ClaimAsk, functions: list[str]
) -> tuple[bool, list[Lane], Doors | None]:
    """Return whether the worker is alive, the lanes with the first tasks, and what stands before them."""
    is_alive, has_gates, lanes = await _peek(db, known, ask, functions)
    if not lanes or not has_gates:
        return is_alive, lanes, None
    rows, now = await gates.rows(db), await db.now()
    return is_alive, lanes, Doors(rows, await gates.in_flight(db, now, counted(rows, now)), now)


async def _open_lanes(db: PostgresSession, ask: ClaimAsk, functions: list[str], doors: Doors) -> list[Lane]:
    """Return the lanes of which something may be handed out, as if there were no others."""
    upstreams, shut = doors.shut()
    may_run = [function for function in functions if function not in shut]
    *_, lanes = await _peek(db, KnownLanes(), ask, may_run, list(map(storable, upstreams)))
    return lanes


async def _peek(
    db: PostgresSession, known: KnownLanes, ask: ClaimAsk, functions: list[str], shut: Sequence[str] = ()
) -> tuple[bool, bool, list[Lane]]:
    """Return whether the worker is alive, whether any gate is to be minded, and the lanes' first tasks."""
    queues = None if "*" in ask.queues else [storable(queue) for queue in dict.fromkeys(ask.queues)]
    given = known.columns(ask)
    at_most = None if ask.strict else MANY_LANES
    rows = await db.rows(
        _SQL["peek"], ask.worker_id, queues, functions, ask.slots, ask.strict, at_most, *given, shut
    )
    if rows[0]["lanes_met"] == at_most:
        rows = await db.rows(_SQL["walk"], ask.worker_id, queues, functions, ask.slots, shut)
    is_alive, has_gates, _, queue, *_, entries = rows[0]
    if queue is None:
        return is_alive, has_gates, []
    lanes = [_lane(row, strict=ask.strict) for row in rows]
    known.found(ask, lanes, entries, everywhere=given[0] is None)
    return is_alive, has_gates, [lane for lane in lanes if lane.first_rank is not None]


def _lane(row: Sequence[Any], *, strict: bool) -> Lane:
    _, _, _, queue, priority, upstream, function, place, first_rank, places, _ = row
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
