"""What becomes of a gate's row, decided here and written by each back end; and the rows people see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from tidegate.domain.calls import CallsMade
from tidegate.domain.upstream import Declared, Gate, GateKind, GateRow, Limits, Signal, is_key_gate
from tidegate.domain.usage import Heard
from tidegate.policy import budget, pacing
from tidegate.policy import gate as gates
from tidegate.policy.backlog import GateStanding
from tidegate.policy.learned import learn
from tidegate.store.rows import BudgetRow, UpstreamRow
from tidegate.store.text import finite, storable


class Run(Protocol):
    """A run that has ended, as far as gates are concerned."""

    @property
    def upstream(self) -> str:
        """Its own; empty for none."""

    @property
    def probe(self) -> bool | int:
        """Whether it was sent to try a held upstream."""


class Told(NamedTuple):
    """What came of a failure that a call met."""

    gate: Gate
    """Of the upstream."""
    is_of_one_key: bool
    """Another key of the upstream flows: the task may go on with that one."""


def goes_well(run: Run, calls: CallsMade) -> bool:
    """Whether a run that succeeded counts as one good call of its upstream.

    One that used transports does if its last call of that upstream went well. Calls of other upstreams, and
    calls that failed before the body found another way, have moved their gates themselves.
    """
    return bool(run.upstream) and (calls.count == 0 or calls.own is True)


def is_silent_probe(run: Run, calls: CallsMade) -> bool:
    """Whether a run was sent to try its upstream and has not called it."""
    return bool(run.upstream and run.probe) and calls.own is None


class Good(NamedTuple):
    """A run that went well."""

    upstream: str
    seconds: float
    is_probe: bool


class GoodRuns(NamedTuple):
    """What runs of one upstream that went well tell its gate."""

    seconds: float
    """Each, in the mean."""
    goods: int
    is_probe: bool
    """One of them tried whether it works."""


MESSAGE_CHARACTERS = 500
"""Of a failure's own words, as many as an operator reads."""


def after_failure(
    row: GateRow,
    signal: Signal,
    now: float,
    keys: Sequence[GateRow] = (),
    *,
    began_at: float | None = None,
) -> GateRow:
    """Return the row after a failure that a call met.

    Args:
        row: The gate.
        signal: What the failure tells.
        now: The present moment.
        keys: The gates of its keys, if it has some: while one flows, the shortage of another is not its own.
        began_at: When the run began, if it is known. What hung in an outage says nothing once that is over.
    """
    if signal.seconds is not None:
        began_at = now - signal.seconds
    seen = _beyond_one_key(signal, keys, now)
    before = gates.as_of(row.gate, row.limits, now)
    if seen is None or (seen.reason in gates.FAULTS and gates.is_of_before(before, began_at)):
        return row
    signal = seen
    return replace(row, gate=gates.after_failure(before, _storable(signal), row.limits, now))


def is_of_one_key(signal: Signal, keys: Sequence[GateRow], now: float) -> bool:
    """Whether what a call met holds up some keys alone: others flow, and tasks go on with them."""
    if signal.reason not in gates.CAPACITY | gates.ACCOUNT:
        return False
    flowing = sum(gates.as_of(key.gate, key.limits, now).by is None for key in keys)
    return 0 < flowing < len(keys)


def by_upstream(good: Iterable[Good]) -> Iterator[tuple[str, GoodRuns]]:
    """Yield what these runs tell each upstream, in the order in which gates are locked."""
    runs_of: dict[str, list[Good]] = {}
    for run in good:
        runs_of.setdefault(run.upstream, []).append(run)
    for upstream, runs in sorted(runs_of.items()):
        seconds = sum(run.seconds for run in runs) / len(runs)
        yield upstream, GoodRuns(seconds, len(runs), any(run.is_probe for run in runs))


def after_success(row: GateRow, now: float, good: GoodRuns) -> GateRow:
    """Return the row after good runs."""
    before = gates.as_of(row.gate, row.limits, now)
    after = gates.after_success(
        before, row.limits, now, seconds=good.seconds, goods=good.goods, is_probe=good.is_probe
    )
    return replace(row, gate=after)


def after_answer(row: GateRow, now: float) -> GateRow:
    """Return the row after a call that went well; the same one if nothing waits to hear of it."""
    gate = row.gate
    if not (gate.failures or gate.failed_for or gate.parked_for or gate.limited_for):
        return row
    return replace(row, gate=gates.after_answer(gates.as_of(row.gate, row.limits, now), now))


def after_learning(row: GateRow, heard: Sequence[Heard], now: float) -> GateRow:
    """Return the row after answers that showed limits; the same one if they say nothing new."""
    known = learn(row.gate.learned, heard, now)
    return row if known == row.gate.learned else replace(row, gate=replace(row.gate, learned=known))


def after_silence(row: GateRow, now: float, *, began_at: float) -> GateRow:
    """Return the row after a probe that began then and told nothing; the same one if nothing changes."""
    before = gates.as_of(row.gate, row.limits, now)
    after = gates.after_silence(before, now, began_at=began_at)
    return row if after is before else replace(row, gate=after)


def with_limits(row: GateRow, limits: Limits, now: float) -> GateRow:
    """Return the row with other limits, and with what was used of the old ones as the new ones count it."""
    windows = pacing.carried_over(row.meters, row.limits.windows, limits.windows, now)
    after = replace(row, limits=limits, meters=windows)
    return replace(after, meters=budget.carried_over(row, after, now))


def as_declared(row: GateRow | None, declared: Declared, now: float) -> GateRow:
    """Return the row that counts after a declaration; the same one if nothing changes.

    One rule for upstreams, functions and the system: the code counts, except for limits set by hand.
    """
    if row is None:
        return GateRow(declared.kind, declared.name, declared.limits, Gate(since_at=now))
    limits = row.limits.declared_as(declared.limits)
    return row if limits == row.limits else with_limits(row, limits, now)


def upstream_rows(
    rows: Sequence[GateRow],
    now: float,
    *,
    in_flight: Mapping[str, int],
    waiting: Mapping[tuple[str, str], int],
) -> list[UpstreamRow]:
    """Return every upstream with what stands before it.

    Args:
        rows: All gates, by name.
        now: The present moment.
        in_flight: Runs and calls under way by upstream.
        waiting: Tasks by upstream and `ready` or `retrying`.
    """
    return [
        _upstream_row(
            each,
            now,
            in_flight=in_flight.get(each.name, 0),
            ready=waiting.get((each.name, "ready"), 0),
            retrying=waiting.get((each.name, "retrying"), 0),
        )
        for each in rows
        if each.kind is GateKind.UPSTREAM
    ]


def _upstream_row(row: GateRow, now: float, *, in_flight: int, ready: int, retrying: int) -> UpstreamRow:
    standing = GateStanding(row, in_flight, now)
    is_open = standing.block is None
    paced = max(0, ready - standing.left) if is_open and standing.left is not None else 0
    return UpstreamRow(
        name=row.name,
        limits=row.limits,
        gate=gates.as_of(row.gate, row.limits, now),
        block=standing.block,
        in_flight=in_flight,
        ready=ready,
        retrying=retrying,
        paced=paced,
        waits_for="; ".join(standing.reasons(ready)) if paced else "",
    )


def budget_rows(rows: Sequence[GateRow], held: Sequence[tuple[str, str, int]], now: float) -> list[BudgetRow]:
    """Return the retry budgets, the system's first, then those of upstreams.

    Args:
        rows: All gates, by name.
        held: What holds tasks back (`gate`, `upstream`, `system`), their upstream, and how many.
        now: The present moment.
    """
    sums: Counter[tuple[str, str]] = Counter()
    for by, upstream, tasks in held:
        sums[by, upstream if by == "upstream" else ""] += tasks
    system = next((row for row in rows if row.kind is GateKind.SYSTEM), GateRow(GateKind.SYSTEM, ""))
    upstreams = [row for row in rows if row.kind is GateKind.UPSTREAM and not is_key_gate(row.name)]
    return [
        _budget_row(row, now, sums[str(row.kind), row.name])
        for row in (system, *upstreams)
        if budget.per_minute(row) is not None
    ]


def _beyond_one_key(signal: Signal, keys: Sequence[GateRow], now: float) -> Signal | None:
    """Return what a shortage of one key is for the whole ring: nothing, or the wait until one flows again.

    Where all of them flow, the call that met it was made with none.
    """
    if not keys or signal.no_key_flows or signal.reason not in gates.CAPACITY | gates.ACCOUNT:
        return signal
    states = [gates.as_of(key.gate, key.limits, now) for key in keys]
    flowing = sum(gate.by is None for gate in states)
    if flowing == len(states):
        return signal
    if flowing:
        return None
    waits = [gate.until_at - now for gate in states if gate.until_at is not None]
    return replace(signal, wait_seconds=min(waits), needs_person=False) if waits else signal


def _budget_row(row: GateRow, now: float, held: int) -> BudgetRow:
    rate = budget.per_minute(row)
    assert rate is not None
    window = row.limits.retry_window_seconds
    return BudgetRow(
        kind=row.kind,
        name=row.name,
        amount=rate * window / 60.0,
        window_seconds=window,
        used=budget.used(row, now),
        held=held,
        next_at=now + budget.Budget(row, now).wait(urgent=False),
        used_since_at=budget.counted_since(row, now),
    )


def _storable(signal: Signal) -> Signal:
    wait = None if signal.wait_seconds is None else finite(signal.wait_seconds, 0.0)
    return replace(signal, message=storable(signal.message[:MESSAGE_CHARACTERS]), wait_seconds=wait)
