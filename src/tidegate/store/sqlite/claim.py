"""Taking ready tasks: look, peek lane by lane, share the slots, move exactly the chosen rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from tidegate.domain.spec import Priority
from tidegate.policy.admission import PROBERS, Admitted, Door, Doors, admit
from tidegate.policy.order import apportion
from tidegate.store import ids
from tidegate.store.columns import PRIORITIES, claimed
from tidegate.store.common import gates
from tidegate.store.rows import Claim, ClaimAsk, CrashTerms
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

_SQL = load("claim")
_GATES = load("upstreams")

_BEFORE_ALL = -1
_FREE = Admitted()

MANY_LANES = 2_000
"""Steps from lane to lane after which one walk over everything ready is cheaper: say, a queue a user."""


class _Head(NamedTuple):
    """A task that may be chosen."""

    task_id: bytes
    upstream: str
    function: str


class Lane(NamedTuple):
    """The part of a channel that one function's tasks form."""

    queue: str
    priority: int
    upstream: str
    function: str


def look(db: apsw.Connection, now: float, ask: ClaimAsk) -> Claim | None:
    """Return the answer of a claim that can take nothing; None if there is something to take."""
    if not _is_alive(db, ask.worker_id):
        return Claim((), alive=False)
    way = _Way(_doors(db, now))
    for steps, lane in enumerate(_lanes(db, ask)):
        if lane.function in ask.functions and way.is_open(lane):
            return None
        if steps == MANY_LANES:
            return None if _walk(db, None, ask, 1, way) else Claim((), again_seconds=way.again_seconds())
    return Claim((), again_seconds=way.again_seconds())


def claim(db: apsw.Connection, now: float, ask: ClaimAsk) -> Claim:
    """Move up to `ask.slots` ready tasks to this worker."""
    if not _is_alive(db, ask.worker_id):
        return Claim((), alive=False)
    way = _Way(_doors(db, now))
    chosen = _choose(db, ask, way)
    if not chosen:
        return Claim((), again_seconds=way.again_seconds())
    array = query.array(tuple(chosen))
    rows = query.rows(db, _SQL["load"], (array,))
    for terms, mine in _by_terms(rows, ask).items():
        db.execute(
            _SQL["start"],
            (query.array(mine), ask.worker_id, now, terms.crash_limit, terms.base_seconds, terms.cap_seconds),
        )
    db.execute(_SQL["remove"], (array,))
    if any(row[18] is not None for row in rows):
        db.execute(_SQL["resume"], (array, now))
    _charge(db, now, way, chosen)
    tasks = tuple([claimed(row, now, ids.text, chosen[row[0]]) for row in rows])
    return Claim(tasks, again_seconds=way.again_seconds())


def _doors(db: apsw.Connection, now: float) -> Doors | None:
    """Return the doors of all gates; None if there is no gate at all."""
    if not query.value(db, _GATES["any"]):
        return None
    return complete(gates.doors(SqliteSession(db, now), now))


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


def _walk(
    db: apsw.Connection, priority: Priority | None, ask: ClaimAsk, at_most: int, way: _Way
) -> list[_Head]:
    """Return the first tasks this process can run, of one priority or any, by one walk over all lanes."""
    shut = way.shut()
    named = [
        query.names_array(names) for names in (ask.functions, ask.queues, shut.upstreams, shut.functions)
    ]
    rows = query.rows(db, _SQL["walk"], (priority, named[0], "*" in ask.queues, *named[1:], at_most))
    return [_Head(task_id, upstream, function) for _, task_id, upstream, function in rows]


def _choose(db: apsw.Connection, ask: ClaimAsk, way: _Way) -> dict[bytes, Admitted]:
    """Return the ids to take, in the order to take them, and what the limits say of each."""
    lanes = _known_lanes(db, ask)
    heads: dict[Priority, Iterator[_Head]] = {}
    taken = dict.fromkeys(PRIORITIES, 0)
    chosen: dict[bytes, Admitted] = {}

    def found(priority: Priority, at_most: int) -> int:
        if priority not in heads and lanes is None:
            heads[priority] = iter(_walk(db, priority, ask, ask.slots, way))
        elif priority not in heads and lanes is not None:
            heads[priority] = iter(_heads(db, lanes.get(priority, []), ask, way))
        for head in heads[priority]:
            if way.is_held(head) and not _may_try(db, head, ask, way):
                continue
            if (admitted := way.admit(head)) is not None:
                chosen[head.task_id] = admitted
                taken[priority] += 1
            if taken[priority] == at_most:
                break
        return taken[priority]

    apportion(ask.slots, ask.reserved, found)  # what it asks for it takes, so what is found is chosen
    return chosen


def _heads(db: apsw.Connection, lanes: Sequence[Lane], ask: ClaimAsk, way: _Way) -> list[_Head]:
    """Return the first tasks of one priority over its lanes: by rank, or by listed queue if strict."""
    groups: dict[str, list[tuple[float, _Head]]] = {}
    for lane in lanes:
        if way.is_open(lane):
            if way.is_held(lane):
                peeked = _prober(db, lane, ask)
            else:
                peeked = query.rows(db, _SQL["peek"], (*lane, ask.slots))
            found = [(rank, _Head(task_id, lane.upstream, lane.function)) for rank, task_id in peeked]
            groups.setdefault(lane.queue if ask.strict else "", []).extend(found)
    # Lanes come in listed order, so the groups do.
    return [head for group in groups.values() for _, head in sorted(group)]


def _prober(db: apsw.Connection, lane: Lane, ask: ClaimAsk) -> list[tuple[Any, ...]]:
    """Return the first task of a lane that is not on its last attempt, else the first."""
    most = ask.functions[lane.function].max_attempts
    return query.rows(db, _SQL["prober"], (*lane, most, PROBERS))


def _may_try(db: apsw.Connection, head: _Head, ask: ClaimAsk, way: _Way) -> bool:
    """Whether a task may be the one that tries its held gate."""
    most = ask.functions[head.function].max_attempts
    is_last = bool(query.value(db, _SQL["is_on_last_attempt"], (head.task_id, most)))
    return way.lets_only(head, on_last_attempt=is_last)


def _charge(db: apsw.Connection, now: float, way: _Way, chosen: dict[bytes, Admitted]) -> None:
    """Write what the chosen tasks took of their limits, and mark those that probe."""
    if way.doors is None:
        return
    complete(gates.save(SqliteSession(db, now), now, way.doors.changed()))
    if probes := tuple([task_id for task_id, admitted in chosen.items() if admitted.is_probe]):
        db.execute(_SQL["mark_probes"], (query.array(probes),))


class _Shut(NamedTuple):
    upstreams: list[str]
    functions: list[str]


class _Way:
    """The doors of this claim, and which of them kept tasks back. Without any gate it costs nothing.

    Args:
        doors: None: there is no gate in this store.
    """

    def __init__(self, doors: Doors | None) -> None:
        self.doors = doors
        self._kept_back: dict[Door, None] = {}

    def is_open(self, lane: Lane) -> bool:
        """Whether a task of this lane may be handed out now."""
        return self.doors is None or self._all_open(self.doors.of(lane.upstream, lane.function))

    def is_held(self, of: Lane | _Head) -> bool:
        """Whether only a probe may go."""
        return self.doors is not None and any(
            door.is_held for door in self.doors.of(of.upstream, of.function)
        )

    def lets_only(self, head: _Head, *, on_last_attempt: bool) -> bool:
        """Whether held gates may be tried by such a task."""
        doors = () if self.doors is None else self.doors.of(head.upstream, head.function)
        return all(door.lets_only(on_last_attempt=on_last_attempt) for door in doors)

    def admit(self, head: _Head) -> Admitted | None:
        """Let one task through, charging its limits; None if one of its doors is shut."""
        if self.doors is None:
            return _FREE
        doors = self.doors.of(head.upstream, head.function)
        if not doors:
            return _FREE
        return admit(doors) if self._all_open(doors) else None

    def again_seconds(self) -> float | None:
        """Return when it is worth looking again for what was kept back; None: no time decides that."""
        times = [seconds for door in self._kept_back if (seconds := door.again_seconds()) is not None]
        return min(times, default=None)

    def shut(self) -> _Shut:
        """Return the upstreams and functions of which nothing may be handed out."""
        return _Shut([], []) if self.doors is None else _Shut(*self.doors.shut())

    def _all_open(self, doors: tuple[Door, ...]) -> bool:
        shut = [door for door in doors if not door.is_open]
        self._kept_back.update(dict.fromkeys(shut))
        return not shut


def _by_terms(rows: Sequence[tuple[Any, ...]], ask: ClaimAsk) -> dict[CrashTerms, tuple[bytes, ...]]:
    """Group the chosen ids by what the steward must know of their functions; mostly there is one group."""
    by_function: dict[str, list[bytes]] = {}
    for row in rows:
        by_function.setdefault(row[2], []).append(row[0])
    groups: dict[CrashTerms, list[bytes]] = {}
    for function, mine in by_function.items():
        groups.setdefault(ask.functions[function], []).extend(mine)
    return {terms: tuple(mine) for terms, mine in groups.items()}
