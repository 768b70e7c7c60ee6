"""The gates of upstreams and limited functions: read, told of failures and successes, changed by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import apsw

from tidegate.domain.upstream import Declared, Gate, GateKind, GateRow, Limits, Signal, Slot
from tidegate.policy import gate as gates
from tidegate.policy.admission import Doors, blocked, slot_for_call
from tidegate.store.gate_json import from_json, to_json
from tidegate.store.rows import UpstreamRow
from tidegate.store.sqlite import query
from tidegate.store.sqlite.statements import load
from tidegate.store.text import finite, storable

_SQL = load("upstreams")

MESSAGE_CHARACTERS = 500
"""Of a failure's own words, as many as an operator reads."""


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
    return Doors(rows(db), in_flight(db), now)


def in_flight(db: apsw.Connection) -> dict[str, int]:
    """Return the runs under way by upstream."""
    return dict(query.rows(db, _SQL["in_flight"]))


def take_slot(db: apsw.Connection, now: float, upstream: str, patience_seconds: float) -> Slot:
    """Charge one call that no claim charged; nothing where it is not granted."""
    found = row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return Slot(True, 0.0)
    slot, after = slot_for_call(found, patience_seconds=patience_seconds, now=now)
    if slot.is_granted and found.limits.windows:
        save(db, now, [after])
    return slot


# --- what runs tell --------------------------------------------------------------------------------------


def told(db: apsw.Connection, now: float, upstream: str, signal: Signal) -> Gate:
    """Let a failure move the gate of an upstream; return the gate."""
    found = row(db, GateKind.UPSTREAM, upstream) or GateRow(GateKind.UPSTREAM, upstream)
    before = gates.as_of(found.gate, found.limits, now)
    after = gates.after_failure(before, _storable(signal), found.limits, now)
    save(db, now, [replace(found, gate=after)])
    return after


def went_well(
    db: apsw.Connection, now: float, upstream: str, *, seconds: float, goods: int, is_probe: bool
) -> None:
    """Let good runs move the gate of an upstream that has one."""
    found = row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return
    before = gates.as_of(found.gate, found.limits, now)
    after = gates.after_success(before, found.limits, now, seconds=seconds, goods=goods, is_probe=is_probe)
    save(db, now, [replace(found, gate=after)])


# --- what people and applications say --------------------------------------------------------------------


def declare(db: apsw.Connection, now: float, declared: Sequence[Declared]) -> list[GateRow]:
    """Keep what is new of upstreams; take over functions and the system; return the rows that count."""
    kept = []
    for each in declared:
        found = row(db, each.kind, each.name)
        if found is None:
            found = GateRow(each.kind, each.name, each.limits, Gate(since_at=now))
            save(db, now, [found])
        elif each.kind is not GateKind.UPSTREAM and found.limits != each.limits:
            found = replace(found, limits=each.limits)
            save(db, now, [found])
        kept.append(found)
    return kept


def set_limits(db: apsw.Connection, now: float, name: str, limits: Limits) -> bool:
    """Give an upstream other limits; tell whether there is such an upstream."""
    found = row(db, GateKind.UPSTREAM, name)
    if found is None:
        return False
    save(db, now, [replace(found, limits=limits)])
    return True


def park(db: apsw.Connection, now: float, name: str, seconds: float | None, why: str) -> bool:
    """Park an upstream by hand; tell whether there is such an upstream."""
    return _moved(db, now, name, lambda found: gates.parked_by_person(found.gate, now, seconds, why))


def open_gate(db: apsw.Connection, now: float, name: str) -> bool:
    """Open a gate by hand; tell whether there is such an upstream."""
    return _moved(db, now, name, lambda found: gates.opened(found.gate, found.limits, now))


def probe(db: apsw.Connection, now: float, name: str) -> bool:
    """Let the next task of an upstream try whether it works; tell whether there is such an upstream."""
    return _moved(db, now, name, lambda found: gates.probed_by_person(found.gate, now))


def upstreams(db: apsw.Connection, now: float) -> list[UpstreamRow]:
    """Return every upstream with what stands before it, by name."""
    flying, waiting = in_flight(db), _waiting(db)
    return [
        UpstreamRow(
            name=each.name,
            limits=each.limits,
            gate=gates.as_of(each.gate, each.limits, now),
            block=blocked(each, now),
            in_flight=flying.get(each.name, 0),
            ready=waiting[each.name, "ready"],
            retrying=waiting[each.name, "retrying"],
        )
        for each in rows(db)
        if each.kind is GateKind.UPSTREAM
    ]


def _moved(db: apsw.Connection, now: float, name: str, move: Callable[[GateRow], Gate]) -> bool:
    found = row(db, GateKind.UPSTREAM, name)
    if found is None:
        return False
    save(db, now, [replace(found, gate=move(found))])
    return True


def _storable(signal: Signal) -> Signal:
    wait = None if signal.wait_seconds is None else finite(signal.wait_seconds, 0.0)
    return replace(signal, message=storable(signal.message[:MESSAGE_CHARACTERS]), wait_seconds=wait)


def _waiting(db: apsw.Connection) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for upstream, state, tasks in query.rows(db, _SQL["waiting"]):
        counts[upstream, state] = tasks
    return counts
