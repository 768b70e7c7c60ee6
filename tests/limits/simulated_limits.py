"""A provider with a limit and the workers that call it, simulated without HTTP, store or waiting.

The workers claim through `GateCheck`, as a store's claim does, and report each end of a call to the gate's row.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from tidegate.domain.failure import CallFailure, Reason
from tidegate.domain.usage import Dimension, HeaderLimit
from tidegate.limits import gate_rows
from tidegate.limits.admission import GateCheck
from tidegate.limits.gate_rows import SuccessfulRuns
from tidegate.limits.settings import GateKind, Limits
from tidegate.limits.values import GateRow, GateState, ObservedLimit

START = 1_800_000_000.0
STEP = 0.02
BETWEEN_HEADERS = 1.0


@dataclass
class EvenRefill:
    """A bucket that refills evenly and is full at first."""

    per_second: float
    burst: float
    level: float = field(init=False)
    read_at: float = START

    def __post_init__(self) -> None:
        self.level = self.burst

    def call(self, at: float) -> float | None:
        """Return None for an accepted call, or the seconds until the next call is accepted."""
        self.level = min(self.burst, self.level + max(0.0, at - self.read_at) * self.per_second)
        self.read_at = max(at, self.read_at)
        if self.level < 1:
            return (1 - self.level) / self.per_second
        self.level -= 1
        return None

    def shown(self, limit: float) -> HeaderLimit:
        """Return headers for this stated limit a minute, which may be larger than the bucket."""
        remaining = math.floor(self.level)
        return HeaderLimit(
            Dimension.REQUESTS, limit, remaining, reset_seconds=(limit - remaining) / self.per_second
        )


@dataclass
class FixedWindow:
    """A limit that is restored as a whole at the end of each window."""

    per_second: float
    window: float = 60.0
    used: float = 0
    number: int = -1
    now: float = START

    def call(self, at: float) -> float | None:
        """Return None for an accepted call, or the seconds until the next window."""
        number = math.floor((at - START) / self.window)
        if number > self.number:
            self.number, self.used = number, 0
        if self.used >= self.per_second * self.window:
            return self.window * (number + 1) - (at - START)
        self.used += 1
        self.now = at
        return None

    def shown(self, limit: float) -> HeaderLimit:
        """Return headers that show the current window."""
        left = self.per_second * self.window - self.used
        reset = self.window * (self.number + 1) - (self.now - START)
        return HeaderLimit(Dimension.REQUESTS, limit, left, reset_seconds=reset)


@dataclass(frozen=True)
class Case:
    """What is simulated."""

    limits: Limits = field(default_factory=Limits)
    slots: int = 24
    latency: float = 0.2
    waits: str = "exact"
    """What a 429 names: `exact`, `ceil` for whole seconds, or `none`."""
    shown_limit: float | None = None
    """The limit in headers; None for no headers."""
    seconds: float = 120.0


@dataclass
class Totals:
    """What came of a simulated time."""

    answered: int = 0
    refused: int = 0
    answered_by_second: dict[int, int] = field(default_factory=dict)
    refused_by_second: dict[int, int] = field(default_factory=dict)
    parked: float = 0.0
    """Seconds in which the gate did not flow."""


def simulate(
    provider: EvenRefill | FixedWindow,
    case: Case,
    seed: int = 0,
    *,
    raised: tuple[float, float] | None = None,
) -> Totals:
    """Return what workers that always have work get from this provider.

    Args:
        provider: The provider.
        case: What is simulated.
        seed: Of all random numbers.
        raised: After how many seconds the quota changes, and to how many calls a second.
    """
    rng, numbers, total = random.Random(seed), count(), Totals()
    row = GateRow(GateKind.UPSTREAM, "u", case.limits)
    now, ends = START, START + case.seconds
    sending: list[tuple[float, int, bool]] = []
    ending: list[tuple[float, int, float, float | None, bool, HeaderLimit | None]] = []
    unwritten: list[tuple[float, float, HeaderLimit]] = []
    written_at = -math.inf
    while now < ends:
        if raised is not None and now >= START + raised[0]:
            provider.per_second = raised[1]
        while sending and sending[0][0] <= now:
            at, _, is_probe = heapq.heappop(sending)
            wait = provider.call(at)
            second = int(at - START)
            header = None
            if case.shown_limit is not None and (wait is None):
                header = provider.shown(case.shown_limit)
            if wait is None:
                total.answered += 1
                total.answered_by_second[second] = total.answered_by_second.get(second, 0) + 1
                took = case.latency * rng.uniform(0.8, 1.2)
            else:
                total.refused += 1
                total.refused_by_second[second] = total.refused_by_second.get(second, 0) + 1
                took = 0.03
            heapq.heappush(ending, (at + took, next(numbers), at, wait, is_probe, header))
        successes = []
        while ending and ending[0][0] <= now:
            at, _, began_at, wait, is_probe, header = heapq.heappop(ending)
            if header is not None:
                unwritten.append((began_at, at, header))
            if wait is None:
                successes.append((at - began_at, is_probe))
                continue
            row = gate_rows.apply_failure(row, _failure(case, wait, now - began_at, rng), now)
        if successes:
            mean = sum(seconds for seconds, _ in successes) / len(successes)
            runs = SuccessfulRuns(mean, len(successes), any(probe for _, probe in successes))
            row = gate_rows.apply_success(row, now, runs)
        if unwritten and now - written_at >= BETWEEN_HEADERS:
            written_at = now
            row = _with_headers(row, unwritten, now)
            unwritten = []
        check = GateCheck(row, len(sending) + len(ending), now)
        total.parked += STEP * (row.gate.state is not GateState.FLOWING)
        while len(sending) + len(ending) < case.slots and check.is_open:
            admitted = check.admit()
            sent_at = now + admitted.wait_seconds + rng.expovariate(1 / 0.005)
            heapq.heappush(sending, (sent_at, next(numbers), admitted.is_probe))
        row = check.row
        now += STEP
    return total


def _failure(case: Case, wait: float, seconds_ago: float, rng: random.Random) -> CallFailure:
    named = {"exact": wait, "ceil": math.ceil(wait), "none": None}[case.waits]
    return CallFailure(
        Reason.RATE_LIMIT, wait_seconds=named, jitter=rng.random(), began_seconds_ago=seconds_ago
    )


def _with_headers(row: GateRow, seen: Sequence[tuple[float, float, HeaderLimit]], now: float) -> GateRow:
    sent_at, seen_at, header = max(seen, key=lambda each: each[0])
    observed = ObservedLimit(header, now - sent_at, now - seen_at)
    return gate_rows.apply_observed_limits(row, [observed], now)
