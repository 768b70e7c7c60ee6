"""What becomes of a gate's row after failures, successes, observed limits and declarations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from tidegate.domain.calls import CallSummary
from tidegate.domain.failure import ACCOUNT_REASONS, CAPACITY_REASONS, FAULT_REASONS, CallFailure
from tidegate.domain.text import escaped
from tidegate.limits import gate as gates
from tidegate.limits import retry_budget, token_bucket
from tidegate.limits.learned_limits import merge_observed
from tidegate.limits.settings import LimitDeclaration, Limits
from tidegate.limits.values import Gate, GateRow, ObservedLimit


class EndedRun(Protocol):
    """A run that has ended, as far as gates are concerned."""

    @property
    def upstream(self) -> str:
        """Its own; empty for none."""

    @property
    def probe(self) -> bool | int:
        """Whether it was sent to try a held upstream."""


class FailureEffect(NamedTuple):
    """What came of a failure that a call met."""

    gate: Gate
    """Of the upstream."""
    is_of_one_key: bool
    """Another key of the upstream flows: the task may go on with that one."""


def goes_well(run: EndedRun, calls: CallSummary) -> bool:
    """Whether a run that succeeded counts as one good call of its upstream.

    One that used transports does if its last call of that upstream went well. Calls of other upstreams, and
    calls that failed before the body found another way, have moved their gates themselves.
    """
    return bool(run.upstream) and (calls.count == 0 or calls.own_succeeded is True)


def is_silent_probe(run: EndedRun, calls: CallSummary) -> bool:
    """Whether a run was sent to try its upstream and has not called it."""
    return bool(run.upstream and run.probe) and calls.own_succeeded is None


class SuccessfulRun(NamedTuple):
    """A run that went well."""

    upstream: str
    seconds: float
    is_probe: bool


class SuccessfulRuns(NamedTuple):
    """What runs of one upstream that went well tell its gate."""

    seconds: float
    """Each, in the mean."""
    successes: int
    is_probe: bool
    """One of them tried whether it works."""


MESSAGE_CHARACTERS = 500
"""Of a failure's own words, as many as an operator reads."""


def apply_failure(
    row: GateRow,
    call_failure: CallFailure,
    now: float,
    keys: Sequence[GateRow] = (),
    *,
    began_at: float | None = None,
) -> GateRow:
    """Return the row after a failure that a call met.

    Args:
        row: The gate.
        call_failure: What the failure tells.
        now: The present moment.
        keys: The gates of its keys, if it has some: while one flows, the shortage of another is not its own.
        began_at: When the run began, if it is known. What hung in an outage says nothing once that is over.
    """
    if call_failure.began_seconds_ago is not None:
        began_at = now - call_failure.began_seconds_ago
    seen = _beyond_one_key(call_failure, keys, now)
    before = gates.gate_at(row.gate, row.limits, now)
    if seen is None or (seen.reason in FAULT_REASONS and gates.started_before_reopening(before, began_at)):
        return row
    call_failure = seen
    return replace(row, gate=gates.apply_failure(before, _storable(call_failure), row.limits, now))


def is_of_one_key(call_failure: CallFailure, keys: Sequence[GateRow], now: float) -> bool:
    """Whether what a call met holds up some keys alone: others flow, and tasks go on with them."""
    if call_failure.reason not in CAPACITY_REASONS | ACCOUNT_REASONS:
        return False
    flowing = sum(gates.gate_at(key.gate, key.limits, now).parked_by is None for key in keys)
    return 0 < flowing < len(keys)


def by_upstream(good: Iterable[SuccessfulRun]) -> Iterator[tuple[str, SuccessfulRuns]]:
    """Yield what these runs tell each upstream, in the order in which gates are locked."""
    runs_of: dict[str, list[SuccessfulRun]] = {}
    for run in good:
        runs_of.setdefault(run.upstream, []).append(run)
    for upstream, runs in sorted(runs_of.items()):
        seconds = sum(run.seconds for run in runs) / len(runs)
        yield upstream, SuccessfulRuns(seconds, len(runs), any(run.is_probe for run in runs))


def apply_success(row: GateRow, now: float, good: SuccessfulRuns) -> GateRow:
    """Return the row after good runs."""
    before = gates.gate_at(row.gate, row.limits, now)
    after = gates.apply_success(
        before, row.limits, now, seconds=good.seconds, successes=good.successes, is_probe=good.is_probe
    )
    return replace(row, gate=after)


def apply_call_success(row: GateRow, now: float) -> GateRow:
    """Return the row after a call that went well; the same one if nothing waits to hear of it."""
    gate = row.gate
    if not (gate.failures or gate.failed_task_ids or gate.overloaded_tasks or gate.limited_for):
        return row
    return replace(row, gate=gates.apply_call_success(gates.gate_at(row.gate, row.limits, now), now))


def apply_observed_limits(row: GateRow, observed: Sequence[ObservedLimit], now: float) -> GateRow:
    """Return the row after answers that showed limits; the same one if they say nothing new."""
    known = merge_observed(row.gate.learned_limits, observed, now)
    return (
        row
        if known == row.gate.learned_limits
        else replace(row, gate=replace(row.gate, learned_limits=known))
    )


def apply_unfinished_probe(row: GateRow, now: float, *, began_at: float) -> GateRow:
    """Return the row after a probe that began then and told nothing; the same one if nothing changes."""
    before = gates.gate_at(row.gate, row.limits, now)
    after = gates.apply_unfinished_probe(before, now, began_at=began_at)
    return row if after is before else replace(row, gate=after)


def with_limits(row: GateRow, limits: Limits, now: float) -> GateRow:
    """Return the row with other limits, and with what was used of the old ones as the new ones count it."""
    windows = token_bucket.rescale_buckets(row.buckets, row.limits.windows, limits.windows, now)
    after = replace(row, limits=limits, buckets=windows)
    return replace(after, buckets=retry_budget.rescale_buckets(row, after, now))


def as_declared(row: GateRow | None, declared: LimitDeclaration, now: float) -> GateRow:
    """Return the row that counts after a declaration; the same one if nothing changes.

    One rule for upstreams, functions and the system: the code counts, except for limits set by hand.
    """
    if row is None:
        return GateRow(declared.kind, declared.name, declared.limits, Gate(since_at=now))
    limits = row.limits.merged_with(declared.limits)
    return row if limits == row.limits else with_limits(row, limits, now)


def _beyond_one_key(call_failure: CallFailure, keys: Sequence[GateRow], now: float) -> CallFailure | None:
    """Return what a shortage of one key is for the whole ring: nothing, or the wait until one flows again.

    Where all of them flow, the call that met it was made with none.
    """
    if (
        not keys
        or call_failure.is_for_all_keys
        or call_failure.reason not in CAPACITY_REASONS | ACCOUNT_REASONS
    ):
        return call_failure
    states = [gates.gate_at(key.gate, key.limits, now) for key in keys]
    flowing = sum(gate.parked_by is None for gate in states)
    if flowing == len(states):
        return call_failure
    if flowing:
        return None
    waits = [gate.until_at - now for gate in states if gate.until_at is not None]
    return replace(call_failure, wait_seconds=min(waits), needs_person=False) if waits else call_failure


def _storable(call_failure: CallFailure) -> CallFailure:
    wait = (
        None
        if call_failure.wait_seconds is None
        else call_failure.wait_seconds
        if math.isfinite(call_failure.wait_seconds)
        else 0.0
    )
    return replace(
        call_failure, message=escaped(call_failure.message[:MESSAGE_CHARACTERS]), wait_seconds=wait
    )
