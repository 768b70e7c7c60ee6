"""Gates of upstreams and limited functions: read them, apply failures and successes, let people change them.

To change a gate, an operation locks its row, reads it, lets `limits` compute the new gate, and writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import msgspec

from tidegate.domain.failure import CallFailure
from tidegate.domain.usage import TokenUse
from tidegate.limits import gate as gates
from tidegate.limits import retry_budget, tokens
from tidegate.limits.gate_rows import (
    FailureEffect,
    SuccessfulRuns,
    apply_call_success,
    apply_failure,
    apply_observed_limits,
    apply_success,
    apply_unfinished_probe,
    as_declared,
    closes_only_some_keys,
    with_limits,
)
from tidegate.limits.settings import GateKind, LimitDeclaration, Limits
from tidegate.limits.values import (
    Gate,
    GateRow,
    ObservedLimit,
    TokenBucket,
    is_key_gate,
    upstream_of_key_gate,
)
from tidegate.store.common.session import Session
from tidegate.store.common.text import storable
from tidegate.store.upstream_rows import RetryBudgetRow, UpstreamRow, budget_rows, upstream_rows

# Most reads find the texts of the read before, so each text is decoded once.
_decode_limits = lru_cache(maxsize=256)(msgspec.json.Decoder(Limits).decode)
_decode_gate = lru_cache(maxsize=256)(msgspec.json.Decoder(Gate).decode)
_decode_buckets = lru_cache(maxsize=256)(msgspec.json.Decoder(dict[str, TokenBucket]).decode)


async def rows(db: Session) -> list[GateRow]:
    """Return every gate, by kind and name."""
    return [from_json(*found) for found in await db.rows(db.sql("gates")["all"])]


async def locked_rows(db: Session) -> list[GateRow]:
    """Return every gate, by kind and name, locked until the transaction ends."""
    return [from_json(*found) for found in await db.rows(db.sql("gates")["all_locked"])]


async def rows_of(db: Session, upstreams: Iterable[str], functions: Iterable[str]) -> list[GateRow]:
    """Return the gates of these upstreams and functions, without a lock."""
    return await _rows_named(db, "named", upstreams, functions)


async def locked_rows_of(db: Session, upstreams: Iterable[str], functions: Iterable[str]) -> list[GateRow]:
    """Return the gates of these upstreams and functions, locked until the transaction ends."""
    return await _rows_named(db, "named_locked", upstreams, functions)


async def _rows_named(
    db: Session, statement: str, upstreams: Iterable[str], functions: Iterable[str]
) -> list[GateRow]:
    names = [(str(GateKind.UPSTREAM), storable(name)) for name in upstreams]
    names += [(str(GateKind.FUNCTION), storable(name)) for name in functions]
    return [from_json(*found) for found in await db.run_each(db.sql("gates")[statement], names)]


async def locked_row(db: Session, kind: GateKind, name: str) -> GateRow | None:
    """Return one gate, locked until the transaction ends; None if it does not exist."""
    found = await db.row(db.sql("gates")["one_locked"], str(kind), storable(name))
    return None if found is None else from_json(*found)


async def save(db: Session, now: float, changed: Iterable[GateRow]) -> None:
    """Write these gates. The caller has locked their rows."""
    rows = [(str(row.kind), storable(row.name), *_to_json(row)) for row in changed]
    await db.run_each(db.sql("gates")["save"], rows, now)


async def in_flight(db: Session, now: float, upstreams: Sequence[str]) -> dict[str, int]:
    """Return the number of current runs and calls per upstream. Without upstreams no query is run."""
    rows = await db.run_each(db.sql("gates")["in_flight"], [(storable(name),) for name in upstreams], now)
    return dict(map(tuple, rows))


# --- reports of runs --------------------------------------------------------------------------------------


async def report_failure(
    db: Session, upstream: str, failure: CallFailure, *, began_at: float | None = None
) -> FailureEffect:
    """Apply a failure to the gate of an upstream; return the effect."""
    now = await db.now()
    if failure.is_reported:
        all_rows = await rows(db)
        keys = [each for each in all_rows if is_key_gate(each.name, upstream)]
        fresh = GateRow(GateKind.UPSTREAM, upstream)
        row = next((each for each in all_rows if (each.kind, each.name) == (fresh.kind, fresh.name)), fresh)
        return FailureEffect(row.gate, closes_only_some_keys(failure, keys, now))
    found = await ensure_row(db, now, GateRow(GateKind.UPSTREAM, upstream))
    keys = [each for each in await rows(db) if is_key_gate(each.name, upstream)]
    after = apply_failure(found, failure, now, keys, began_at=began_at)
    await save(db, now, [after])
    return FailureEffect(after.gate, closes_only_some_keys(failure, keys, now))


async def record_limits(db: Session, upstream: str, observed: Sequence[ObservedLimit]) -> GateRow | None:
    """Store the limits that responses showed of an upstream that has a gate; return the gate."""
    return await _update(db, upstream, lambda found, now: apply_observed_limits(found, observed, now))


async def apply_successes(db: Session, upstream: str, successes: SuccessfulRuns) -> None:
    """Apply successful runs to the gate of an upstream, if it has a gate."""
    await _update(db, upstream, lambda found, now: apply_success(found, now, successes))


async def settle_tokens(db: Session, upstream: str, uses: Sequence[TokenUse]) -> None:
    """Settle the tokens of calls that have ended at the gate of an upstream, if it has a gate."""
    await _update(db, upstream, lambda found, now: tokens.settle_tokens(found, uses, now))


async def report_success(db: Session, upstream: str) -> None:
    """Apply a successful call to the gate of an upstream, if it has a gate: the gate forgets its failures."""
    found = next(
        (row for row in await rows(db) if (row.kind, row.name) == (GateKind.UPSTREAM, upstream)), None
    )
    if found is not None and apply_call_success(found, await db.now()) is not found:
        await _update(db, upstream, apply_call_success)


async def apply_unused_probe(db: Session, upstream: str, began_at: float) -> None:
    """Let the gate be probed again after a probe that began at `began_at` and showed nothing."""
    await _update(db, upstream, lambda found, now: apply_unfinished_probe(found, now, began_at=began_at))


async def apply_probe(db: Session, upstream: str, seconds: float, *, is_good: bool) -> None:
    """Apply a probe that began `seconds` ago: a good probe opens the gate, otherwise another may follow."""
    if is_good:
        await apply_successes(db, upstream, SuccessfulRuns(seconds, 1, is_probe=True))
    else:
        await _update(
            db, upstream, lambda found, now: apply_unfinished_probe(found, now, began_at=now - seconds)
        )


# --- changes by people and applications --------------------------------------------------------------------


async def declare_limits(db: Session, declared: Sequence[LimitDeclaration]) -> list[GateRow]:
    """Store declared limits, except those set by hand; return the rows now in force."""
    now = await db.now()
    kept: dict[int, GateRow] = {}
    for place in sorted(range(len(declared)), key=lambda place: (declared[place].kind, declared[place].name)):
        found = await ensure_row(db, now, as_declared(None, declared[place], now))
        counts = as_declared(found, declared[place], now)
        if counts is not found:
            await save(db, now, [counts])
            await _reschedule_earlier(db, now, found, counts)
        kept[place] = counts
    return [kept[place] for place in range(len(declared))]


async def set_limits(db: Session, upstream: str, limits: Limits) -> bool:
    """Give an upstream new limits; return whether the upstream exists."""
    found = await locked_row(db, GateKind.UPSTREAM, upstream)
    if found is None:
        return False
    now = await db.now()
    after = with_limits(found, limits, now)
    await save(db, now, [after])
    await _reschedule_earlier(db, now, found, after)
    return True


async def set_function_limits(db: Session, function: str, limits: Limits | None) -> None:
    """Give a function a new rate limit; None removes the stored limit."""
    if limits is None:
        await db.run(db.sql("gates")["remove"], str(GateKind.FUNCTION), storable(function))
        return
    now = await db.now()
    found = await ensure_row(db, now, GateRow(GateKind.FUNCTION, function, limits, Gate(since_at=now)))
    await save(db, now, [with_limits(found, limits, now)])


async def park_gate(db: Session, upstream: str, *, seconds: float | None, why: str) -> bool:
    """Park an upstream by hand; return whether the upstream exists."""
    return await _update_state(
        db, upstream, lambda found, now: gates.park_by_person(found.gate, now, seconds, why)
    )


async def open_gate(db: Session, upstream: str) -> bool:
    """Open a gate by hand and clear the server's waits; return whether the upstream exists."""
    if ring := upstream_of_key_gate(upstream):
        await locked_row(db, GateKind.UPSTREAM, ring)  # gates are locked in the order of their names
    if not await _update_state(
        db, upstream, lambda found, now: gates.open_by_person(found.gate, found.limits, now)
    ):
        return False
    if ring:
        await _update_state(db, ring, lambda found, now: gates.open_with_key(found.gate, found.limits, now))
    await db.run(db.sql("promote")["clear_server_waits"], storable(ring or upstream), await db.now())
    return True


async def request_probe(db: Session, upstream: str) -> bool:
    """Let the next task of an upstream run as a probe; return whether the upstream exists."""
    if not await _update_state(db, upstream, lambda found, now: gates.request_probe(found.gate, now)):
        return False
    await db.run(db.sql("promote")["clear_server_waits"], storable(upstream), await db.now())
    return True


async def list_upstreams(db: Session) -> list[UpstreamRow]:
    """Return every upstream with its counts of tasks and calls, by name."""
    waiting = {
        (upstream, state): tasks for upstream, state, tasks in await db.rows(db.sql("gates")["waiting"])
    }
    all_rows, now = await rows(db), await db.now()
    flying = await in_flight(db, now, [each.name for each in all_rows])
    return upstream_rows(all_rows, now, in_flight=flying, waiting=waiting)


async def list_retry_budgets(db: Session) -> list[RetryBudgetRow]:
    """Return the system's retry budget, then those of the upstreams, ordered by name."""
    held = [
        (by, upstream, tasks) for by, upstream, tasks in await db.rows(db.sql("list_retry_budgets")["held"])
    ]
    return budget_rows(await rows(db), held, await db.now())


async def ensure_row(db: Session, now: float, fresh: GateRow) -> GateRow:
    """Return the gate of this kind and name, locked. Create it if it does not exist."""
    await db.run(db.sql("gates")["make"], str(fresh.kind), storable(fresh.name), *_to_json(fresh), now)
    return await locked_row(db, fresh.kind, fresh.name) or fresh


async def _reschedule_earlier(db: Session, now: float, before: GateRow, after: GateRow) -> None:
    """If a retry budget is larger now, reschedule the tasks that it holds back. Their order stays."""
    if (ratio := retry_budget.speed_up_ratio(before, after)) < 1:
        await db.run(
            db.sql("promote")["reschedule_earlier"], str(after.kind), storable(after.name), now, ratio
        )


async def _update_state(db: Session, name: str, move: Callable[[GateRow, float], Gate]) -> bool:
    after = await _update(db, name, lambda found, now: replace(found, gate=move(found, now)))
    return after is not None


async def _update(db: Session, name: str, change: Callable[[GateRow, float], GateRow]) -> GateRow | None:
    """Lock the gate of an upstream, change it, and return it; None if there is no gate."""
    found = await locked_row(db, GateKind.UPSTREAM, name)
    if found is None:
        return None
    now = await db.now()
    after = change(found, now)
    if after is not found:
        await save(db, now, [after])
    return after


# --- the stored form ---------------------------------------------------------------------------------------


def _to_json(row: GateRow) -> tuple[str, str, str]:
    """Return limits, gate and buckets as JSON."""
    limits, gate = (msgspec.json.encode(part).decode() for part in (row.limits, row.gate))
    return limits, gate, encode_buckets(row.buckets)


def decode_gate(state: str) -> Gate:
    """Return a gate from its stored form."""
    return _decode_gate(state)


def encode_buckets(buckets: Mapping[str, TokenBucket]) -> str:
    """Return buckets in their stored form."""
    return msgspec.json.encode(buckets).decode()


def from_json(kind: str, name: str, limits: str, gate: str, buckets: str) -> GateRow:
    """Return the row that `_to_json` wrote. Fields that a newer version wrote are ignored."""
    return GateRow(GateKind(kind), name, _decode_limits(limits), _decode_gate(gate), _decode_buckets(buckets))
