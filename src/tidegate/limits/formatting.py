"""Formats a gate, a block and a limit as text, the same on every screen."""

from __future__ import annotations

from typing import assert_never

from tidegate.domain.spec import Window
from tidegate.domain.text import format_duration
from tidegate.domain.usage import Dimension
from tidegate.limits import gate as gates
from tidegate.limits import probes, rate_learning, token_bucket
from tidegate.limits.blocks import Block
from tidegate.limits.learned_limits import with_learned_rates
from tidegate.limits.settings import Limits
from tidegate.limits.values import Gate, GateState, LearnedLimit, ParkedBy

UNTRIED_SECONDS = 5.0
"""If a probe is overdue by this many seconds, no task was able to make it."""


def format_gate(gate: Gate, limits: Limits, now: float) -> str:
    """Return the state of a gate with its reason and time: `parked for 12 s more: rate_limit: slow down`.

    Args:
        gate: The current gate, from `gate_at`.
        limits: The gate's limits.
        now: The current time by the store's clock.
    """
    cause = ": ".join(part for part in (gate.reason, gate.message) if part)
    if gate.parked_by is None:
        return _format_flowing(gate, limits, now)
    parked = _format_parked(gate, gate.parked_by, now)
    return f"{parked}: {cause}" if cause else parked


def format_block(block: Block, limits: Limits, now: float) -> str:
    """Return why tasks are blocked and until when: `requests_per_day used up; opens in 3 h`."""
    if block.spent is not None:
        return format_exhausted_limit(block.spent, now)
    if not block.window:
        return format_gate(block.gate, limits, now)
    until = "" if block.until_at is None else f"; opens in {format_duration(block.until_at - now)}"
    return f"{block.window} used up{until}"


def format_window(window: Window) -> str:
    """Return the size of a limit, such as `500 in 1 min` or `30000 input tokens in 1 min`."""
    unit = f" {format_dimension(window.dimension)}" if window.counts_tokens else ""
    return f"{window.amount}{unit} in {format_duration(window.seconds)}"


def format_exhausted_limit(limit: LearnedLimit, now: float) -> str:
    """Return a text such as `its limit of requests is used up; opens in 3 min`."""
    counted = format_dimension(limit.dimension)
    return f"its limit of {counted} is used up; opens in {_format_left(limit.opens_at, now)}"


def format_dimension(dimension: Dimension) -> str:
    """Return what a limit counts, such as `input tokens`."""
    return dimension.replace("_", " ")


def format_learned_limit(limit: LearnedLimit, now: float) -> str:
    """Return a limit from response headers as text, such as `limit 500 in 1 min, 423 left, seen 12 s ago`."""
    parts = []
    if limit.limit is not None:
        window = "" if limit.window_seconds is None else f" in {format_duration(limit.window_seconds)}"
        parts.append(f"limit {limit.limit:.10g}{window}")
    if limit.remaining is not None:
        parts.append(f"{limit.remaining:.10g} left")
    parts.append(f"seen {format_duration(max(0.0, now - limit.seen_at))} ago")
    return ", ".join(parts)


def _format_flowing(gate: Gate, limits: Limits, now: float) -> str:
    if probes.admits_only_probes(gate):
        return f"flowing, only probes start after {gate.failures} failures in a row ({gate.reason})"
    share = gates.slow_start_share(gate, limits, now)
    if share < 1:
        return f"flowing, slow start at {share:.0%} of its rate"
    if slowed := _format_slowed(gate, limits, now):
        return f"flowing, {slowed}"
    if gate.in_flight.has_met_limit and gate.in_flight.target is not None:
        return f"flowing, at most {gate.in_flight.target:.0f} in flight: more did not finish faster"
    return "flowing"


def _format_slowed(gate: Gate, limits: Limits, now: float) -> str:
    """Return the learned rate and its 429 as text; empty if another limit is lower."""
    windows = with_learned_rates(limits, gate, now).windows
    slowest = max(windows, key=token_bucket.slot_interval, default=None)
    if slowest is None or slowest.name != rate_learning.LEARNED_RATE:
        return ""
    learned = gate.learned_rate
    refused = "" if learned.refused_per_second is None else f" at {_format_rate(learned.refused_per_second)}"
    ago = format_duration(max(0.0, now - (learned.slowed_at or now)))
    return f"slowed to {_format_rate(1 / token_bucket.slot_interval(slowest))}: 429{refused} {ago} ago"


def _format_rate(per_second: float) -> str:
    return f"{float(f'{60 * per_second:.3g}'):.10g} a minute"


def _format_parked(gate: Gate, by: ParkedBy, now: float) -> str:
    match by:
        case ParkedBy.SERVER:
            return f"parked for {_format_left(gate.until_at, now)} more, as the server asked"
        case ParkedBy.ACCOUNT:
            return "parked until a person opens it"
        case ParkedBy.PERSON:
            until = (
                "until it is opened"
                if gate.until_at is None
                else f"for {_format_left(gate.until_at, now)} more"
            )
            return f"parked by a person {until}"
        case ParkedBy.FAILURES:
            since = f"since {format_duration(max(0.0, now - gate.since_at))}"
            if gate.state is GateState.PROBING:
                return f"probing, parked {since}"
            return f"parked {since}, {_format_next_probe(gate, now)}"
        case _:
            assert_never(by)


def _format_next_probe(gate: Gate, now: float) -> str:
    """Return when the gate is probed next. An overdue probe means that no task could be the probe."""
    if gate.probe_at is None or now - gate.probe_at < UNTRIED_SECONDS:
        return f"next probe in {_format_left(gate.probe_at, now)}"
    last_attempt_at = gate.probe_at + probes.last_attempt_delay(gate, now)
    return f"no task may probe it now; one on its last attempt may in {_format_left(last_attempt_at, now)}"


def _format_left(moment: float | None, now: float) -> str:
    return format_duration(max(0.0, (moment or now) - now))
