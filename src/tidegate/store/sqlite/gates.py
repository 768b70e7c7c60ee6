"""The gates of upstreams and limited functions: read, told of failures and successes, changed by people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import apsw

from tidegate.domain.upstream import Declared, Gate, GateKind, GateRow, Limits, Signal, is_key_gate, ring_of
from tidegate.domain.usage import Heard
from tidegate.policy import budget
from tidegate.policy import gate as gates
from tidegate.policy.admission import Doors, counted
from tidegate.store.gate_json import from_json, to_json
from tidegate.store.gating import (
    GoodRuns,
    Told,
    after_answer,
    after_failure,
    after_learning,
    after_silence,
    after_success,
    as_declared,
    is_of_one_key,
    upstream_rows,
    with_limits,
)
from tidegate.store.rows import UpstreamRow
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import storable

_SQL = load("upstreams")
_PROMOTE = load("promote")


def rows(db: apsw.Connection) -> list[GateRow]:
    """Return every gate, by kind and name."""
    return [from_json(*found) for found in query.rows(db, _SQL["all"])]


def row(db: apsw.Connection, kind: GateKind, name: str) -> GateRow | None:
    """Return one gate, if it was ever declared or told of."""
    found = query.row(db, _SQL["one"], (kind, storable(name)))
    return None if found is None else from_json(*found)


def save(db: apsw.Connection, now: float, changed: Iterable[GateRow]) -> None:
    """Write these gates as they are."""
    for gate in changed:
        db.execute(_SQL["save"], (gate.kind, storable(gate.name), *to_json(gate), now))


def doors(db: apsw.Connection, now: float) -> Doors | None:
    """Return the doors of all gates; None if there is no gate at all."""
    if not query.value(db, _SQL["any"]):
        return None
    every = rows(db)
    return Doors(every, in_flight(db, now, counted(every, now)), now)


def in_flight(db: apsw.Connection, now: float, upstreams: Iterable[str]) -> dict[str, int]:
    """Return the runs and calls under way of these upstreams."""
    return {name: query.value(db, _SQL["in_flight"], (name, now)) for name in upstreams}


# --- what runs tell --------------------------------------------------------------------------------------


def told(
    db: apsw.Connection, now: float, upstream: str, signal: Signal, *, began_at: float | None = None
) -> Told:
    """Let a failure move the gate of an upstream; return what came of it."""
    found = row(db, GateKind.UPSTREAM, upstream) or GateRow(GateKind.UPSTREAM, upstream)
    keys = [each for each in rows(db) if is_key_gate(each.name, upstream)]
    if signal.is_reported:
        return Told(found.gate, is_of_one_key(signal, keys, now))
    after = after_failure(found, signal, now, keys, began_at=began_at)
    save(db, now, [after])
    return Told(after.gate, is_of_one_key(signal, keys, now))


def learned(db: apsw.Connection, now: float, upstream: str, heard: Sequence[Heard]) -> GateRow | None:
    """Keep what answers showed of the limits of an upstream that has a gate; return the gate."""
    return _changed(db, now, upstream, lambda found: after_learning(found, heard, now))


def went_well(db: apsw.Connection, now: float, upstream: str, good: GoodRuns) -> None:
    """Let good runs move the gate of an upstream that has one."""
    _changed(db, now, upstream, lambda found: after_success(found, now, good))


def answered(db: apsw.Connection, now: float, upstream: str) -> None:
    """Let a call that went well clear what failures left in the gate of an upstream that has one."""
    _changed(db, now, upstream, lambda found: after_answer(found, now))


def told_nothing(db: apsw.Connection, now: float, upstream: str, began_at: float) -> None:
    """Let the gate be tried again after a probe that began then and told nothing."""
    _changed(db, now, upstream, lambda found: after_silence(found, now, began_at=began_at))


def tried(db: apsw.Connection, now: float, upstream: str, seconds: float, *, is_good: bool) -> None:
    """Let a call that tried a held upstream, begun so long ago, open it or leave it to the next."""
    if is_good:
        went_well(db, now, upstream, GoodRuns(seconds, 1, is_probe=True))
    else:
        told_nothing(db, now, upstream, now - seconds)


# --- what people and applications say --------------------------------------------------------------------


def declare(db: apsw.Connection, now: float, declared: Sequence[Declared]) -> list[GateRow]:
    """Take over declared limits, except those set by hand; return the rows that count."""
    kept = []
    for each in declared:
        found = row(db, each.kind, each.name)
        counts = as_declared(found, each, now)
        if counts is not found:
            save(db, now, [counts])
            _hasten(db, now, found, counts)
        kept.append(counts)
    return kept


def set_limits(db: apsw.Connection, now: float, name: str, limits: Limits) -> bool:
    """Give an upstream other limits; tell whether there is such an upstream."""
    found = row(db, GateKind.UPSTREAM, name)
    if found is None:
        return False
    after = with_limits(found, limits, now)
    save(db, now, [after])
    _hasten(db, now, found, after)
    return True


def park(db: apsw.Connection, now: float, name: str, seconds: float | None, why: str) -> bool:
    """Park an upstream by hand; tell whether there is such an upstream."""
    return _moved(db, now, name, lambda found: gates.parked_by_person(found.gate, now, seconds, why))


def open_gate(db: apsw.Connection, now: float, name: str) -> bool:
    """Open a gate by hand, also for what its server told to wait; tell whether there is such an upstream."""
    if not _moved(db, now, name, lambda found: gates.opened_by_person(found.gate, found.limits, now)):
        return False
    if ring := ring_of(name):
        _moved(db, now, ring, lambda found: gates.opened_with_key(found.gate, found.limits, now))
    db.execute(_PROMOTE["lift_floors"], (storable(ring or name), now))
    return True


def probe(db: apsw.Connection, now: float, name: str) -> bool:
    """Let the next task of an upstream try whether it works; tell whether there is such an upstream."""
    if not _moved(db, now, name, lambda found: gates.probed_by_person(found.gate, now)):
        return False
    db.execute(_PROMOTE["lift_floors"], (storable(name), now))
    return True


def upstreams(db: apsw.Connection, now: float) -> list[UpstreamRow]:
    """Return every upstream with what stands before it, by name."""
    waiting = {(upstream, state): tasks for upstream, state, tasks in query.rows(db, _SQL["waiting"])}
    every = rows(db)
    flying = in_flight(db, now, [each.name for each in every])
    return upstream_rows(every, now, in_flight=flying, waiting=waiting)


def _hasten(db: apsw.Connection, now: float, before: GateRow | None, after: GateRow) -> None:
    """Let what a retry budget that is larger now holds back go sooner, in the same order."""
    if before is not None and (ratio := budget.quickened(before, after)) < 1:
        db.execute(_PROMOTE["hasten"], (after.kind, storable(after.name), now, ratio))


def _moved(db: apsw.Connection, now: float, name: str, move: Callable[[GateRow], Gate]) -> bool:
    return _changed(db, now, name, lambda found: replace(found, gate=move(found))) is not None


def _changed(
    db: apsw.Connection, now: float, name: str, change: Callable[[GateRow], GateRow]
) -> GateRow | None:
    """Change the gate of an upstream; return it, None if there is none."""
    found = row(db, GateKind.UPSTREAM, name)
    if found is None:
        return None
    after = change(found)
    if after is not found:
        save(db, now, [after])
    return after
