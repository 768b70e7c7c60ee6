"""Applies failures, successes, observed limits and declarations to a stored gate's row.

`gate.py` decides about one gate. This module also considers the gates of the upstream's keys, calls that
began before the gate opened, and limits that a person set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from tidegate.domain.calls import SUCCEEDED, CallSummary
from tidegate.domain.failure import ACCOUNT_REASONS, CAPACITY_REASONS, FAULT_REASONS, CallFailure
from tidegate.domain.spec import Window
from tidegate.domain.text import escaped
from tidegate.domain.usage import TokenUse
from tidegate.limits import gate as gates
from tidegate.limits import in_flight_learning, probes, rate_learning, retry_budget, silence, token_bucket
from tidegate.limits.learned_limits import MINUTE, merge_observed, shown_per_second, with_learned_rates
from tidegate.limits.rate_learning import Attempts
from tidegate.limits.settings import PACING_SECONDS, LimitDeclaration, Limits
from tidegate.limits.tokens import calls_per_second, settle_tokens
from tidegate.limits.values import (
    Gate,
    GateRow,
    GateState,
    InFlightLearning,
    ObservedLimit,
    TokenBucket,
    is_key_gate,
)


class EndedRun(Protocol):
    """A run that has ended: the fields that gates use."""

    @property
    def upstream(self) -> str:
        """The run's own upstream; empty if there is none."""

    @property
    def probe(self) -> bool | int:
        """Whether the run was a probe of its upstream."""


class FailureEffect(NamedTuple):
    """The result of a failure that a call met."""

    gate: Gate
    """The upstream's gate after the failure."""
    closes_only_some_keys: bool
    """Whether another key of the upstream flows, so that the task may go on with that key."""


def counts_as_success(run: EndedRun, calls: CallSummary) -> bool:
    """Whether a run that succeeded counts as one success of its upstream.

    A run that used transports counts if its last call of that upstream succeeded. Calls of other upstreams,
    and failed calls from which the function recovered, were reported to their gates when they ended.
    """
    return bool(run.upstream) and (calls.are_unknown or calls.own_succeeded is True)


def successful_run(run: EndedRun, calls: CallSummary, seconds: float) -> SuccessfulRun:
    """Return what a run that succeeded shows of its upstream."""
    own = (each.calls for each in calls.ended if (each.upstream, each.outcome) == (run.upstream, SUCCEEDED))
    return SuccessfulRun(run.upstream, seconds, bool(run.probe), max(1, sum(own)), calls.tokens)


def is_silent_probe(run: EndedRun, calls: CallSummary) -> bool:
    """Whether a run was a probe of its upstream and has not called it."""
    return bool(run.upstream and run.probe) and calls.own_succeeded is None


class SuccessfulRun(NamedTuple):
    """A run that succeeded."""

    upstream: str
    seconds: float
    is_probe: bool
    calls: int = 1
    """How many of its calls of that upstream succeeded; 1 if they are not known."""
    tokens: TokenUse | None = None
    """What the claim charged for its first call; None if no limit counts tokens."""


class SuccessfulRuns(NamedTuple):
    """The runs of one upstream that succeeded, summed up for its gate."""

    seconds: float
    """How many seconds a run took on average."""
    successes: int
    is_probe: bool
    """Whether one of the runs was a probe."""
    calls: int = 1
    """How many calls of these runs succeeded."""
    tokens: tuple[TokenUse, ...] = ()
    """What the claims charged for the first calls of these runs."""


TIGHT_SECONDS = 0.25
"""If the next free slot is older than this, the demand decides how many calls start, and not the limit."""
SUCCESS_SECONDS = 1.0
"""A gate that only counts successes is written at most once in this time."""
MESSAGE_CHARACTERS = 500
"""A failure's message is cut to this length in the gate."""


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
        row: The gate's row.
        call_failure: The failure.
        now: The current time by the store's clock.
        keys: The gates of the upstream's keys. While one key flows, a rate limit or account failure of
            another key does not close the upstream.
        began_at: When the run began; None if unknown. Network and server failures of a run that began before
            the gate last opened are ignored: such failures belong to the outage that is over.
    """
    if call_failure.began_seconds_ago is not None:
        began_at = now - call_failure.began_seconds_ago
    before = gates.gate_at(row.gate, row.limits, now)
    if call_failure.silent_seconds is not None:
        return replace(row, gate=silence.park_silent(before, call_failure, row.limits, now))
    if silence.is_answer(call_failure):
        before = replace(silence.after_answer(before, row.limits, now), answered_at=now)
    seen = _beyond_one_key(call_failure, keys, now)
    if seen is None or (seen.reason in FAULT_REASONS and gates.started_before_reopening(before, began_at)):
        return row
    gate = gates.apply_failure(
        before, _storable(seen), row.limits, now, attempts=_attempts(row, before, now), began_at=began_at
    )
    after = replace(row, gate=silence.keep_cause(before, gate))
    return (
        after if gate.learned_rate.slowed_at == before.learned_rate.slowed_at else _with_new_rate(after, now)
    )


def _attempts(row: GateRow, gate: Gate, now: float) -> Attempts:
    """Return what the buckets show of the calls at the moment of a failure."""
    declared = [
        calls_per_second(window, gate)
        for window in row.limits.windows
        if not window.is_fixed and window.seconds <= MINUTE and _is_tight(row, window, now)
    ]
    shown = shown_per_second(gate.learned_limits, now)
    learned = rate_learning.window(gate.learned_rate, now)
    attempts = Attempts(
        declared_per_second=min(declared, default=None),
        shown_per_second=shown,
        are_counted=not is_key_gate(row.name),
    )
    if learned is None:
        return attempts
    bucket = row.buckets.get(learned.name, TokenBucket())
    unsent = max(0.0, token_bucket.seconds_ahead(learned, bucket, now)) / token_bucket.slot_interval(learned)
    return replace(attempts, sent=max(0.0, bucket.used - unsent), is_tight=_is_tight(row, learned, now))


def _is_tight(row: GateRow, window: Window, now: float) -> bool:
    """Whether calls used every slot of an evenly paced window until just now."""
    ahead = token_bucket.seconds_ahead(window, row.buckets.get(window.name, TokenBucket()), now)
    return ahead > -TIGHT_SECONDS - token_bucket.slot_interval(window)


def _with_new_rate(row: GateRow, now: float) -> GateRow:
    """Return the row after its rate was learned: calls are counted from now, without slots from before."""
    learned = rate_learning.window(row.gate.learned_rate, now)
    if learned is None:
        return row
    bucket = token_bucket.drop_burst(learned, row.buckets.get(learned.name, TokenBucket()), now)
    return replace(row, buckets={**row.buckets, learned.name: replace(bucket, used=0)})


def closes_only_some_keys(call_failure: CallFailure, keys: Sequence[GateRow], now: float) -> bool:
    """Whether the failure closes only some keys, while others flow and tasks go on with those."""
    if call_failure.reason not in CAPACITY_REASONS | ACCOUNT_REASONS:
        return False
    flowing = sum(gates.gate_at(key.gate, key.limits, now).parked_by is None for key in keys)
    return 0 < flowing < len(keys)


def by_upstream(successful: Iterable[SuccessfulRun]) -> Iterator[tuple[str, SuccessfulRuns]]:
    """Yield the summary of these runs for each upstream, in the order in which gates are locked."""
    runs_of: dict[str, list[SuccessfulRun]] = {}
    for run in successful:
        runs_of.setdefault(run.upstream, []).append(run)
    for upstream, runs in sorted(runs_of.items()):
        seconds = sum(run.seconds for run in runs) / len(runs)
        is_probe, calls = any(run.is_probe for run in runs), sum(run.calls for run in runs)
        uses = tuple([run.tokens for run in runs if run.tokens is not None])
        yield upstream, SuccessfulRuns(seconds, len(runs), is_probe, calls, uses)


def apply_success(row: GateRow, now: float, runs: SuccessfulRuns) -> GateRow:
    """Return the row after runs that succeeded."""
    row = settle_tokens(row, runs.tokens, now)
    before = silence.after_answer(gates.gate_at(row.gate, row.limits, now), row.limits, now)
    after = gates.apply_success(
        before,
        row.limits,
        now,
        seconds=runs.seconds,
        successes=runs.successes,
        is_probe=runs.is_probe,
        calls=max(runs.calls, runs.successes),
    )
    if before.state is GateState.FLOWING and before.slow_start_at is None:
        after = replace(after, in_flight=_learn_in_flight(row, after, runs, now))
    return replace(row, gate=after)


def _learn_in_flight(row: GateRow, gate: Gate, runs: SuccessfulRuns, now: float) -> InFlightLearning:
    windows = [
        each for each in with_learned_rates(row.limits, gate, now).windows if each.seconds <= PACING_SECONDS
    ]
    allowed = min((calls_per_second(each, gate) for each in windows), default=math.inf)
    return in_flight_learning.count_runs(
        gate.in_flight, runs.successes, runs.seconds, now, allowed_per_second=allowed
    )


def can_wait_for_successes(gate: Gate, now: float) -> bool:
    """Whether a gate flows, has no failure to forget, and counted a success within the last second.

    Further successes are only counted, so it is enough to write them once a second.
    """
    refused = (*gate.overloaded_tasks, *gate.rate_limited_tasks)
    return (
        gate.state is GateState.FLOWING
        and gate.failures == 0
        and not gate.failed_task_ids
        and gate.slow_start_at is None
        and gate.rate_limited_since_at is None
        and gate.last_success_at is not None
        and all(task.at < gate.last_success_at for task in refused)
        and now - gate.last_success_at < SUCCESS_SECONDS
    )


def apply_call_success(row: GateRow, now: float) -> GateRow:
    """Return the row after a call that succeeded.

    The same row if the gate records no failure, and a success that is recent enough.
    """
    gate = row.gate
    is_old = gate.last_success_at is None or now - gate.last_success_at >= silence.SHARE_SECONDS
    has_failures = gate.failures or gate.failed_task_ids or gate.overloaded_tasks or gate.rate_limited_tasks
    if not is_old and not has_failures:
        return row
    gate = silence.after_answer(gates.gate_at(gate, row.limits, now), row.limits, now)
    return replace(row, gate=gates.apply_call_success(gate, now))


def apply_observed_limits(row: GateRow, observed: Sequence[ObservedLimit], now: float) -> GateRow:
    """Return the row after responses that showed limits; the same row if they show nothing new."""
    known = merge_observed(row.gate.learned_limits, observed, now)
    return (
        row
        if known == row.gate.learned_limits
        else replace(row, gate=replace(row.gate, learned_limits=known))
    )


def apply_unfinished_probe(row: GateRow, now: float, *, began_at: float) -> GateRow:
    """Return the row after a probe that ended without a result; the same row if nothing changes."""
    before = gates.gate_at(row.gate, row.limits, now)
    after = probes.apply_unfinished_probe(before, now, began_at=began_at)
    return row if after is before else replace(row, gate=after)


def with_limits(row: GateRow, limits: Limits, now: float) -> GateRow:
    """Return the row with new limits, and with its buckets rescaled to them."""
    windows = token_bucket.rescale_buckets(row.buckets, row.limits.windows, limits.windows, now)
    after = replace(row, limits=limits, buckets=windows)
    return replace(after, buckets=retry_budget.rescale_buckets(row, after, now))


def as_declared(row: GateRow | None, declared: LimitDeclaration, now: float) -> GateRow:
    """Return the row after a declaration; the same row if nothing changes.

    One rule for upstreams, functions and the system: the limits in the code apply, except where a person has
    set a limit.
    """
    if row is None:
        return GateRow(declared.kind, declared.name, declared.limits, Gate(since_at=now))
    limits = row.limits.merged_with(declared.limits)
    return row if limits == row.limits else with_limits(row, limits, now)


def _beyond_one_key(call_failure: CallFailure, keys: Sequence[GateRow], now: float) -> CallFailure | None:
    """Return what a failure of one key means for the upstream; None if another key still flows.

    If no key flows, the upstream waits until the first key flows again. If all keys flow, the call was made
    without a key of the ring, and the failure applies to the upstream unchanged.
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
