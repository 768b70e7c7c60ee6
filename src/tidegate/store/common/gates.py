"""The gates of upstreams and limited functions: read, told of failures and successes, changed by people.

A gate is read, judged by `policy` and written back while its row is locked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tidegate.domain.upstream import Declared, Gate, GateKind, GateRow, Limits, Signal, is_key_gate, ring_of
from tidegate.domain.usage import Heard
from tidegate.policy import budget
from tidegate.policy import gate as gates
from tidegate.policy.admission import Doors, counted
from tidegate.store.common.session import Session
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
    budget_rows,
    is_of_one_key,
    upstream_rows,
    with_limits,
)
from tidegate.store.rows import BudgetRow, UpstreamRow
from tidegate.store.text import storable


async def rows(db: Session) -> list[GateRow]:
    """Return every gate, by kind and name."""
    return [from_json(*found) for found in await db.rows(db.sql("upstreams")["all"])]


async def locked_rows(db: Session) -> list[GateRow]:
    """Return every gate, by kind and name, locked until the transaction ends."""
    return [from_json(*found) for found in await db.rows(db.sql("upstreams")["all_locked"])]


async def locked_row(db: Session, kind: GateKind, name: str) -> GateRow | None:
    """Return one gate, locked until the transaction ends, if it was ever declared or told of."""
    found = await db.row(db.sql("upstreams")["one_locked"], str(kind), storable(name))
    return None if found is None else from_json(*found)


async def save(db: Session, now: float, changed: Iterable[GateRow]) -> None:
    """Write these gates, whose rows are locked, as they are."""
    rows = [(str(row.kind), storable(row.name), *to_json(row)) for row in changed]
    await db.run_each(db.sql("upstreams")["save"], rows, now)


async def in_flight(db: Session, now: float, upstreams: Sequence[str]) -> dict[str, int]:
    """Return the runs and calls under way of these upstreams; nothing is asked where none is named."""
    rows = await db.run_each(db.sql("upstreams")["in_flight"], [(storable(name),) for name in upstreams], now)
    return dict(map(tuple, rows))


async def doors(db: Session, now: float) -> Doors:
    """Return the doors of all gates, as they are without a lock."""
    every = await rows(db)
    return Doors(every, await in_flight(db, now, counted(every, now)), now)


# --- what runs tell --------------------------------------------------------------------------------------


async def told(db: Session, upstream: str, signal: Signal, *, began_at: float | None = None) -> Told:
    """Let a failure move the gate of an upstream; return what came of it."""
    now = await db.now()
    if signal.is_reported:
        every = await rows(db)
        keys = [each for each in every if is_key_gate(each.name, upstream)]
        fresh = GateRow(GateKind.UPSTREAM, upstream)
        row = next((each for each in every if (each.kind, each.name) == (fresh.kind, fresh.name)), fresh)
        return Told(row.gate, is_of_one_key(signal, keys, now))
    found = await made(db, now, GateRow(GateKind.UPSTREAM, upstream))
    keys = [each for each in await rows(db) if is_key_gate(each.name, upstream)]
    after = after_failure(found, signal, now, keys, began_at=began_at)
    await save(db, now, [after])
    return Told(after.gate, is_of_one_key(signal, keys, now))


async def learned(db: Session, upstream: str, heard: Sequence[Heard]) -> GateRow | None:
    """Keep what answers showed of the limits of an upstream that has a gate; return the gate."""
    return await _changed(db, upstream, lambda found, now: after_learning(found, heard, now))


async def went_well(db: Session, upstream: str, good: GoodRuns) -> None:
    """Let good runs move the gate of an upstream that has one."""
    await _changed(db, upstream, lambda found, now: after_success(found, now, good))


async def answered(db: Session, upstream: str) -> None:
    """Let a call that went well clear what failures left in the gate of an upstream that has one."""
    found = next(
        (row for row in await rows(db) if (row.kind, row.name) == (GateKind.UPSTREAM, upstream)), None
    )
    if found is not None and after_answer(found, await db.now()) is not found:
        await _changed(db, upstream, after_answer)


async def told_nothing(db: Session, upstream: str, began_at: float) -> None:
    """Let the gate be tried again after a probe that began then and told nothing."""
    await _changed(db, upstream, lambda found, now: after_silence(found, now, began_at=began_at))


async def tried(db: Session, upstream: str, seconds: float, *, is_good: bool) -> None:
    """Let a call that tried a held upstream, begun so long ago, open it or leave it to the next."""
    if is_good:
        await went_well(db, upstream, GoodRuns(seconds, 1, is_probe=True))
    else:
        await _changed(db, upstream, lambda found, now: after_silence(found, now, began_at=now - seconds))


# --- what people and applications say --------------------------------------------------------------------


async def declare(db: Session, declared: Sequence[Declared]) -> list[GateRow]:
    """Take over declared limits, except those set by hand; return the rows that count."""
    now = await db.now()
    kept: dict[int, GateRow] = {}
    for place in sorted(range(len(declared)), key=lambda place: (declared[place].kind, declared[place].name)):
        found = await made(db, now, as_declared(None, declared[place], now))
        counts = as_declared(found, declared[place], now)
        if counts is not found:
            await save(db, now, [counts])
            await _hasten(db, now, found, counts)
        kept[place] = counts
    return [kept[place] for place in range(len(declared))]


async def set_limits(db: Session, name: str, limits: Limits) -> bool:
    """Give an upstream other limits; tell whether there is such an upstream."""
    found = await locked_row(db, GateKind.UPSTREAM, name)
    if found is None:
        return False
    now = await db.now()
    after = with_limits(found, limits, now)
    await save(db, now, [after])
    await _hasten(db, now, found, after)
    return True


async def park(db: Session, name: str, seconds: float | None, why: str) -> bool:
    """Park an upstream by hand; tell whether there is such an upstream."""
    return await _moved(db, name, lambda found, now: gates.parked_by_person(found.gate, now, seconds, why))


async def open_gate(db: Session, name: str) -> bool:
    """Open a gate by hand, also for what its server told to wait; tell whether there is such an upstream."""
    if ring := ring_of(name):
        await locked_row(db, GateKind.UPSTREAM, ring)  # gates are locked in the order of their names
    if not await _moved(db, name, lambda found, now: gates.opened_by_person(found.gate, found.limits, now)):
        return False
    if ring:
        await _moved(db, ring, lambda found, now: gates.opened_with_key(found.gate, found.limits, now))
    await db.run(db.sql("promote")["lift_floors"], storable(ring or name), await db.now())
    return True


async def probe(db: Session, name: str) -> bool:
    """Let the next task of an upstream try whether it works; tell whether there is such an upstream."""
    if not await _moved(db, name, lambda found, now: gates.probed_by_person(found.gate, now)):
        return False
    await db.run(db.sql("promote")["lift_floors"], storable(name), await db.now())
    return True


async def upstreams(db: Session) -> list[UpstreamRow]:
    """Return every upstream with what stands before it, by name."""
    waiting = {
        (upstream, state): tasks for upstream, state, tasks in await db.rows(db.sql("upstreams")["waiting"])
    }
    every, now = await rows(db), await db.now()
    flying = await in_flight(db, now, [each.name for each in every])
    return upstream_rows(every, now, in_flight=flying, waiting=waiting)


async def budgets(db: Session) -> list[BudgetRow]:
    """Return the retry budgets, the system's first, then those of upstreams by name."""
    held = [(by, upstream, tasks) for by, upstream, tasks in await db.rows(db.sql("budgets")["held"])]
    return budget_rows(await rows(db), held, await db.now())


async def made(db: Session, now: float, fresh: GateRow) -> GateRow:
    """Return the gate of this kind and name, locked; made if it is not there."""
    await db.run(db.sql("upstreams")["make"], str(fresh.kind), storable(fresh.name), *to_json(fresh), now)
    return await locked_row(db, fresh.kind, fresh.name) or fresh


async def _hasten(db: Session, now: float, before: GateRow, after: GateRow) -> None:
    """Let what a retry budget that is larger now holds back go sooner, in the same order."""
    if (ratio := budget.quickened(before, after)) < 1:
        await db.run(db.sql("promote")["hasten"], str(after.kind), storable(after.name), now, ratio)


async def _moved(db: Session, name: str, move: Callable[[GateRow, float], Gate]) -> bool:
    after = await _changed(db, name, lambda found, now: replace(found, gate=move(found, now)))
    return after is not None


async def _changed(db: Session, name: str, change: Callable[[GateRow, float], GateRow]) -> GateRow | None:
    """Change the gate of an upstream, at the moment of its turn; return it, None if there is none."""
    found = await locked_row(db, GateKind.UPSTREAM, name)
    if found is None:
        return None
    now = await db.now()
    after = change(found, now)
    if after is not found:
        await save(db, now, [after])
    return after
