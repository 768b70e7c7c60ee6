"""Claim ready tasks: check for work, read channel by channel, share the slots, move the chosen rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from tidegate.domain.spec import Priority
from tidegate.limits.admission import MAX_PROBE_CANDIDATES, Admission, Closed, GateCheck, GateChecks, admit
from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.values import GateRow
from tidegate.policy.order import apportion
from tidegate.store.common import control, gates, ids
from tidegate.store.common.columns import PRIORITIES, StoredClaim, build_claimed_task
from tidegate.store.rows import ClaimRequest, ClaimResult, CrashPolicy
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.sqlite.work import SqliteSession, complete

_SQL = load("claim")
_GATES = load("gates")

# A claim reads its rows by place: names would cost a third more.
_TASK_ID, _FUNCTION, _PARKED_AT = map(StoredClaim._fields.index, ("task_id", "function", "parked_at"))
_BEFORE_ALL = -1
_UNLIMITED = Admission()

MANY_CHANNELS = 2_000
"""Number of channels above which one scan of all ready tasks is cheaper (for example, a queue per user)."""


class _Candidate(NamedTuple):
    """A task that may be chosen."""

    task_id: bytes
    upstream: str
    function: str


class Channel(NamedTuple):
    """The part of a channel that one function's tasks form."""

    queue: str
    priority: int
    upstream: str
    function: str


def precheck(db: apsw.Connection, now: float, request: ClaimRequest) -> ClaimResult | None:
    """Return the result of a claim that can take no task; None if there is a task to take."""
    if not _is_alive(db, request.worker_id):
        return ClaimResult((), is_alive=False)
    claim_limits = _ClaimLimits(_load_gate_checks(db, now))
    for steps, channel in enumerate(_channels(db, request)):
        if channel.function in request.functions and claim_limits.is_open(channel):
            return None
        if steps == MANY_CHANNELS:
            return (
                None
                if _walk(db, None, request, 1, claim_limits)
                else ClaimResult((), next_claim_seconds=claim_limits.next_check_seconds())
            )
    return ClaimResult((), next_claim_seconds=claim_limits.next_check_seconds())


def claim(db: apsw.Connection, now: float, request: ClaimRequest) -> ClaimResult:
    """Move up to `request.slots` ready tasks to this worker; return them."""
    if not _is_alive(db, request.worker_id):
        return ClaimResult((), is_alive=False)
    claim_limits = _ClaimLimits(_load_gate_checks(db, now))
    chosen = _choose(db, request, claim_limits)
    if not chosen:
        return ClaimResult((), next_claim_seconds=claim_limits.next_check_seconds())
    array = query.array(tuple(chosen))
    rows = query.rows(db, _SQL["load"], (array,))
    for crash_policies, mine in _by_crash_policy(rows, request).items():
        db.execute(
            _SQL["start"],
            (
                query.array(mine),
                request.worker_id,
                now,
                crash_policies.crash_limit,
                crash_policies.base_seconds,
                crash_policies.max_seconds,
            ),
        )
    db.execute(_SQL["remove"], (array,))
    if any(row[_PARKED_AT] is not None for row in rows):
        db.execute(_SQL["resume"], (array, now))
    _charge(db, now, claim_limits, chosen)
    tasks = tuple([build_claimed_task(row, now, ids.to_text, chosen[row[_TASK_ID]]) for row in rows])
    return ClaimResult(tasks, next_claim_seconds=claim_limits.next_check_seconds())


def _load_gate_checks(db: apsw.Connection, now: float) -> GateChecks | None:
    """Return the checks of gates and pauses; None if the store has no gate and no pause."""
    has_gates, has_pauses = query.row(db, _GATES["any"]) or (0, 0)
    if not has_gates and not has_pauses:
        return None
    session = SqliteSession(db, now)
    pauses = Pauses(complete(control.list_pauses(session))) if has_pauses else NO_PAUSES
    return GateChecks(_StoredGates(session), now, pauses)


class _StoredGates:
    """Reads each gate of the store when a claim needs it."""

    def __init__(self, session: SqliteSession) -> None:
        self._session = session

    def row(self, kind: GateKind, name: str) -> GateRow | None:
        """Return a gate; None if there is none."""
        return complete(gates.locked_row(self._session, kind, name))

    def rows(self) -> Iterable[GateRow]:
        """Return all gates."""
        return complete(gates.rows(self._session))

    def in_flight(self, upstream: str) -> int:
        """Return the number of runs and calls of this upstream in flight."""
        return complete(gates.in_flight(self._session, self._session.at, [upstream]))[upstream]


def _is_alive(db: apsw.Connection, worker_id: str) -> bool:
    """Whether the worker is registered and not retired."""
    return query.row(db, _SQL["retired"], (worker_id,)) == (0,)


def _channels(db: apsw.Connection, request: ClaimRequest) -> Iterator[Channel]:
    """Yield the channels of the served queues that have tasks, in the listed order of queues."""
    if "*" in request.queues:
        yield from _skip_scan(db, "", None)
        return
    for queue in dict.fromkeys(request.queues):
        yield from _skip_scan(db, queue, queue)


def _skip_scan(db: apsw.Connection, start: str, only: str | None) -> Iterator[Channel]:
    """Step from channel to channel through the index, without reading the tasks in between."""
    at: tuple[Any, ...] = (start, _BEFORE_ALL, "", "")
    while (found := query.row(db, _SQL["next_channel"], at)) is not None:
        channel = Channel(*found)
        if only is not None and channel.queue != only:
            return
        yield channel
        at = channel


def _known_channels(db: apsw.Connection, request: ClaimRequest) -> dict[int, list[Channel]] | None:
    """Return the channels whose tasks this process can run, by priority; None if there are too many."""
    channels: dict[int, list[Channel]] = {}
    for steps, channel in enumerate(_channels(db, request)):
        if steps == MANY_CHANNELS and not request.is_strict:
            return None
        if channel.function in request.functions:
            channels.setdefault(channel.priority, []).append(channel)
    return channels


def _walk(
    db: apsw.Connection,
    priority: Priority | None,
    request: ClaimRequest,
    at_most: int,
    claim_limits: _ClaimLimits,
) -> list[_Candidate]:
    """Return the first tasks this process can run, of one or every priority, by one scan of all channels."""
    closed = claim_limits.closed()
    named = [
        query.names_array(names)
        for names in (request.functions, request.queues, closed.upstreams, closed.functions, closed.queues)
    ]
    rows = query.rows(db, _SQL["walk"], (priority, named[0], "*" in request.queues, *named[1:], at_most))
    return [_Candidate(task_id, upstream, function) for _, task_id, upstream, function in rows]


def _choose(db: apsw.Connection, request: ClaimRequest, claim_limits: _ClaimLimits) -> dict[bytes, Admission]:
    """Return the ids to take, in order, each with the slot that the limits grant it."""
    channels = _known_channels(db, request)
    candidates: dict[Priority, Iterator[_Candidate]] = {}
    taken = dict.fromkeys(PRIORITIES, 0)
    chosen: dict[bytes, Admission] = {}

    def found(priority: Priority, at_most: int) -> int:
        if priority not in candidates and channels is None:
            candidates[priority] = iter(_walk(db, priority, request, request.slots, claim_limits))
        elif priority not in candidates and channels is not None:
            candidates[priority] = iter(_candidates(db, channels.get(priority, []), request, claim_limits))
        for candidate in candidates[priority]:
            if claim_limits.admits_only_probes(candidate) and not _may_try(
                db, candidate, request, claim_limits
            ):
                continue
            if (admitted := claim_limits.admit(candidate)) is not None:
                chosen[candidate.task_id] = admitted
                taken[priority] += 1
            if taken[priority] == at_most:
                break
        return taken[priority]

    apportion(
        request.slots, request.reserved, found
    )  # the slots are enough for all found tasks, so all of them are chosen
    return chosen


def _candidates(
    db: apsw.Connection, channels: Sequence[Channel], request: ClaimRequest, claim_limits: _ClaimLimits
) -> list[_Candidate]:
    """Return the first tasks of one priority over its channels: by rank, or by listed queue if strict."""
    groups: dict[str, list[tuple[float, _Candidate]]] = {}
    for channel in channels:
        if claim_limits.is_open(channel):
            if claim_limits.admits_only_probes(channel):
                peeked = _prober(db, channel, request)
            else:
                peeked = query.rows(db, _SQL["peek"], (*channel, request.slots))
            found = [
                (rank, _Candidate(task_id, channel.upstream, channel.function)) for rank, task_id in peeked
            ]
            groups.setdefault(channel.queue if request.is_strict else "", []).extend(found)
    # Channels come in the listed order of queues, and so do the groups.
    return [candidate for group in groups.values() for _, candidate in sorted(group)]


def _prober(db: apsw.Connection, channel: Channel, request: ClaimRequest) -> list[tuple[Any, ...]]:
    """Return the first task of a channel that is not on its last attempt, or the first task if all are."""
    most = request.functions[channel.function].max_attempts
    return query.rows(db, _SQL["prober"], (*channel, most, MAX_PROBE_CANDIDATES))


def _may_try(
    db: apsw.Connection, candidate: _Candidate, request: ClaimRequest, claim_limits: _ClaimLimits
) -> bool:
    """Whether a task may probe its gate."""
    most = request.functions[candidate.function].max_attempts
    is_last = bool(query.value(db, _SQL["is_on_last_attempt"], (candidate.task_id, most)))
    return claim_limits.may_admit(candidate, on_last_attempt=is_last)


def _charge(
    db: apsw.Connection, now: float, claim_limits: _ClaimLimits, chosen: dict[bytes, Admission]
) -> None:
    """Write what the chosen tasks charged to their limits, and mark the probes."""
    if claim_limits.gate_checks is None:
        return
    complete(gates.save(SqliteSession(db, now), now, claim_limits.gate_checks.changed()))
    if probes := tuple([task_id for task_id, admitted in chosen.items() if admitted.is_probe]):
        db.execute(_SQL["mark_probes"], (query.array(probes),))


class _ClaimLimits:
    """The gate checks of this claim, and which of them held tasks back.

    The check costs nothing if there are no gates.

    Args:
        gate_checks: The checks of all gates; None if the store has no gate.
    """

    def __init__(self, gate_checks: GateChecks | None) -> None:
        self.gate_checks = gate_checks
        self._kept_back: dict[GateCheck, None] = {}

    def is_open(self, channel: Channel) -> bool:
        """Whether a task of this channel may be claimed now."""
        if self.gate_checks is None:
            return True
        if self.gate_checks.is_paused(channel.queue, channel.function):
            return False
        return self._all_open(self.gate_checks.of(channel.upstream, channel.function))

    def admits_only_probes(self, of: Channel | _Candidate) -> bool:
        """Whether only a probe may start."""
        return self.gate_checks is not None and any(
            gate_check.admits_only_probes for gate_check in self.gate_checks.of(of.upstream, of.function)
        )

    def may_admit(self, candidate: _Candidate, *, on_last_attempt: bool) -> bool:
        """Whether a task, on its last attempt or not, may probe its gates."""
        gate_checks = (
            () if self.gate_checks is None else self.gate_checks.of(candidate.upstream, candidate.function)
        )
        return all(gate_check.may_admit(on_last_attempt=on_last_attempt) for gate_check in gate_checks)

    def admit(self, candidate: _Candidate) -> Admission | None:
        """Admit one task and charge its limits; return None if one of its gates is closed."""
        if self.gate_checks is None:
            return _UNLIMITED
        gate_checks = self.gate_checks.of(candidate.upstream, candidate.function)
        if not gate_checks:
            return _UNLIMITED
        return admit(gate_checks) if self._all_open(gate_checks) else None

    def next_check_seconds(self) -> float | None:
        """Return the seconds until tasks held back may be claimed; None if that does not depend on time."""
        times = [
            seconds
            for gate_check in self._kept_back
            if (seconds := gate_check.next_check_seconds()) is not None
        ]
        return min(times, default=None)

    def closed(self) -> Closed:
        """Return the upstreams, functions and queues whose tasks may not be claimed."""
        return Closed([], [], []) if self.gate_checks is None else self.gate_checks.closed()

    def _all_open(self, gate_checks: tuple[GateCheck, ...]) -> bool:
        closed = [gate_check for gate_check in gate_checks if not gate_check.is_open]
        self._kept_back.update(dict.fromkeys(closed))
        return not closed


def _by_crash_policy(
    rows: Sequence[tuple[Any, ...]], request: ClaimRequest
) -> dict[CrashPolicy, tuple[bytes, ...]]:
    """Group the chosen ids by the crash policy of their functions; mostly there is one group."""
    by_function: dict[str, list[bytes]] = {}
    for row in rows:
        by_function.setdefault(row[_FUNCTION], []).append(row[_TASK_ID])
    groups: dict[CrashPolicy, list[bytes]] = {}
    for function, mine in by_function.items():
        groups.setdefault(request.functions[function], []).extend(mine)
    return {crash_policies: tuple(mine) for crash_policies, mine in groups.items()}
