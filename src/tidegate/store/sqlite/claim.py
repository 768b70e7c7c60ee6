"""Taking ready tasks: look, peek lane by lane, share the slots, move exactly the chosen rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from tidegate.domain.outcome import Fence
from tidegate.domain.spec import Priority
from tidegate.policy.order import apportion
from tidegate.store import ids
from tidegate.store.columns import PRIORITIES, claimed
from tidegate.store.rows import Claim, ClaimAsk, CrashTerms
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load

_SQL = load("claim")
_HELD = load("lost_claims")["held"]

_BEFORE_ALL = -1

MANY_LANES = 2_000
"""Steps from lane to lane after which one walk over everything ready is cheaper: say, a queue a user."""


class Lane(NamedTuple):
    """The part of a channel that one function's tasks form."""

    queue: str
    priority: int
    upstream: str
    function: str


def look(db: apsw.Connection, ask: ClaimAsk) -> Claim | None:
    """Return the answer of a claim that can take nothing; None if there is something to take."""
    if not _is_alive(db, ask.worker_id):
        return Claim((), alive=False)
    for steps, lane in enumerate(_lanes(db, ask)):
        if lane.function in ask.functions:
            return None
        if steps == MANY_LANES:
            return None if _walk(db, None, ask, 1) else Claim(())
    return Claim(())


def claim(db: apsw.Connection, now: float, ask: ClaimAsk) -> Claim:
    """Move up to `ask.slots` ready tasks to this worker."""
    if not _is_alive(db, ask.worker_id):
        return Claim((), alive=False)
    chosen = _choose(db, ask)
    if not chosen:
        return Claim(())
    array = query.array(chosen)
    rows = query.rows(db, _SQL["load"], (array,))
    for terms, mine in _by_terms(rows, ask).items():
        db.execute(
            _SQL["start"],
            (query.array(mine), ask.worker_id, now, terms.crash_limit, terms.base_seconds, terms.cap_seconds),
        )
    db.execute(_SQL["remove"], (array,))
    if any(row[18] is not None for row in rows):
        db.execute(_SQL["resume"], (array, now))
    return Claim(tuple([claimed(row, now, ids.text) for row in rows]))


def lost_claims(db: apsw.Connection, worker_id: str, known: frozenset[Fence]) -> list[Fence]:
    """Return the runs this worker holds by the store's word that are not among `known`."""
    held = (Fence(ids.text(task_id), run) for task_id, run in query.rows(db, _HELD, (worker_id,)))
    return [fence for fence in held if fence not in known]


def _is_alive(db: apsw.Connection, worker_id: str) -> bool:
    """Whether the worker is registered and not retired."""
    return query.row(db, _SQL["retired"], (worker_id,)) == (0,)


def _lanes(db: apsw.Connection, ask: ClaimAsk) -> Iterator[Lane]:
    """Yield the lanes of the served queues that hold tasks, queue by queue as listed."""
    if "*" in ask.queues:
        yield from _skip_scan(db, "", None)
        return
    for queue in dict.fromkeys(ask.queues):
        yield from _skip_scan(db, queue, queue)


def _skip_scan(db: apsw.Connection, start: str, only: str | None) -> Iterator[Lane]:
    """Step from lane to lane through the index; the tasks in a lane cost nothing."""
    at: tuple[Any, ...] = (start, _BEFORE_ALL, "", "")
    while (found := query.row(db, _SQL["next_lane"], at)) is not None:
        lane = Lane(*found)
        if only is not None and lane.queue != only:
            return
        yield lane
        at = lane


def _known_lanes(db: apsw.Connection, ask: ClaimAsk) -> dict[int, list[Lane]] | None:
    """Return the lanes this process can run tasks of, by priority; None if there are too many of any."""
    lanes: dict[int, list[Lane]] = {}
    for steps, lane in enumerate(_lanes(db, ask)):
        if steps == MANY_LANES and not ask.strict:
            return None
        if lane.function in ask.functions:
            lanes.setdefault(lane.priority, []).append(lane)
    return lanes


def _walk(db: apsw.Connection, priority: Priority | None, ask: ClaimAsk, at_most: int) -> list[bytes]:
    """Return the first tasks this process can run, of one priority or any, by one walk over all lanes."""
    functions, queues = _names(ask.functions), _names(ask.queues)
    rows = query.rows(db, _SQL["walk"], (priority, functions, "*" in ask.queues, queues, at_most))
    return [task_id for _, task_id in rows]


def _names(names: Iterable[str]) -> apsw.CArrayBinding:
    """Return names for `carray`, as bytes: text may hold a NUL, which it does not take."""
    return apsw.carray(tuple(name.encode("utf-8", "replace") for name in names) or (b"",))


def _choose(db: apsw.Connection, ask: ClaimAsk) -> tuple[bytes, ...]:
    """Return the ids to take, in the order to take them."""
    lanes = _known_lanes(db, ask)
    heads: dict[Priority, list[bytes]] = {}

    def found(priority: Priority, at_most: int) -> int:
        if priority not in heads and lanes is None:
            heads[priority] = _walk(db, priority, ask, ask.slots)
        elif priority not in heads and lanes is not None:
            heads[priority] = _heads(db, lanes.get(priority, []), ask)
        return min(len(heads[priority]), at_most)

    taken = dict.fromkeys(PRIORITIES, 0)
    chosen: list[bytes] = []
    for priority, tasks in apportion(ask.slots, ask.reserved, found):
        begin = taken[priority]
        taken[priority] = begin + tasks
        chosen += heads[priority][begin : begin + tasks]
    return tuple(chosen)


def _heads(db: apsw.Connection, lanes: Sequence[Lane], ask: ClaimAsk) -> list[bytes]:
    """Return the first tasks of one priority over its lanes: by rank, or by listed queue if strict."""
    groups: dict[str, list[tuple[float, bytes]]] = {}
    for lane in lanes:
        peeked = query.rows(db, _SQL["peek"], (*lane, ask.slots))
        groups.setdefault(lane.queue if ask.strict else "", []).extend(peeked)
    # Lanes come in listed order, so the groups do.
    ordered = [task_id for group in groups.values() for _, task_id in sorted(group)]
    return ordered[: ask.slots]


def _by_terms(rows: Sequence[tuple[Any, ...]], ask: ClaimAsk) -> dict[CrashTerms, tuple[bytes, ...]]:
    """Group the chosen ids by what the steward must know of their functions; mostly there is one group."""
    by_function: dict[str, list[bytes]] = {}
    for row in rows:
        by_function.setdefault(row[2], []).append(row[0])
    groups: dict[CrashTerms, list[bytes]] = {}
    for function, mine in by_function.items():
        groups.setdefault(ask.functions[function], []).extend(mine)
    return {terms: tuple(mine) for terms, mine in groups.items()}
