"""Decides which tasks a claim may start, and when.

A `GateCheck` wraps a gate's row during one transaction. The check charges each admitted task at once, and the
claim writes the resulting row. `call_slots.py` does the same for one call that no claim has charged.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from tidegate.domain.spec import Window
from tidegate.domain.usage import NO_TOKENS, Tokens
from tidegate.limits import gate as gates
from tidegate.limits import in_flight_learning, learned_limits, probes, token_bucket, tokens
from tidegate.limits.charged_bucket import ChargedBucket
from tidegate.limits.pauses import NO_PAUSES, Pauses
from tidegate.limits.settings import GateKind
from tidegate.limits.values import Gate, GateRow, TokenBucket, is_key_gate

MAX_PROBE_CANDIDATES = 500
"""How many tasks at the head of a channel a claim searches for one that may probe its gate."""
HANDOUT_AHEAD_SECONDS = 0.25
"""A task is handed out up to this many seconds before its slot, so that no quota is lost between two
claims."""


class Admission(NamedTuple):
    """The permission for one task to start."""

    wait_seconds: float = 0.0
    """Seconds from now until the task may start."""
    is_probe: bool = False
    """Whether the task is sent to test whether its gate may open."""
    charged: Tokens | None = None
    """The tokens that were charged for the task's first call; None if no limit counts tokens."""


@dataclass(slots=True)
class _Changes:
    """The changes of a check so far. All views of the check share them."""

    gate: Gate
    room: int | None
    """How many more runs may be in flight; None for any number."""
    has_admitted_in_flight: bool = False
    """Whether a task was admitted while the runs in flight are limited."""
    next_at: dict[Tokens, float] = field(default_factory=dict)
    """When the next task with these tokens may start, as far as it was computed since the last charge."""


class GateCheck:
    """Admits tasks through one gate, charges its buckets, and computes when more tasks may start.

    The check takes each task for an average one. `for_function` returns a view for the tasks of one function.

    Args:
        row: The gate as stored.
        in_flight: How many runs and calls of this gate are in flight.
        now: The current time by the store's clock.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float) -> None:
        self._before = row
        self._now = now
        gate = gates.gate_at(row.gate, row.limits, now)
        self._limits = learned_limits.with_learned_rates(row.limits, gate, now)
        room = in_flight_learning.free_in_flight(gate, self._limits, in_flight)
        self._changes = _Changes(gate, room)
        self._opens_at = learned_limits.next_call_at(gate.learned_limits, now)
        self._found = self._without_bursts(row)
        self._stretch = 1.0 / gates.slow_start_share(self._gate, self._limits, now)
        self._charged_buckets = [
            ChargedBucket(window, self._bucket(window), self._stretch) for window in self._limits.windows
        ]
        self._counts_tokens = tokens.limits_tokens(self._limits)
        self.needed = tokens.average_tokens(gate.token_estimates) if self._counts_tokens else NO_TOKENS
        """The tokens that each task is charged."""
        self.admits_only_probes = probes.admits_only_probes(gate)
        """Whether the gate admits only probes."""

    def for_function(self, function: str) -> GateCheck:
        """Return a view of this check for the tasks of one function. Both charge the same buckets."""
        if not self._counts_tokens:
            return self
        return self.with_tokens(tokens.estimated_tokens(self._gate.token_estimates, function))

    def with_tokens(self, needed: Tokens) -> GateCheck:
        """Return a view of this check for calls that use these tokens."""
        view = copy.copy(self)
        view.needed = needed
        return view

    @property
    def _gate(self) -> Gate:
        return self._changes.gate

    @property
    def row(self) -> GateRow:
        """The gate's row after the admissions so far."""
        return replace(self._before, gate=self._gate, buckets=self.buckets)

    @property
    def buckets(self) -> dict[str, TokenBucket]:
        """The gate's buckets after the admissions so far."""
        charged = {
            charged.window.name: charged.bucket for charged in self._charged_buckets if charged.is_charged
        }
        return self._found | charged

    @property
    def is_changed(self) -> bool:
        """Whether the row must be written.

        A row with a limit of runs in flight is written for each admission, because claims compare the row.
        """
        return (
            self._changes.has_admitted_in_flight
            or self._gate is not self._before.gate
            or any(charged.is_charged for charged in self._charged_buckets)
        )

    def wait(self) -> float | None:
        """Return the seconds until the next task may start; None if only an event can open the gate."""
        if self._changes.room == 0:
            return None
        if self.admits_only_probes:
            if self._gate.probe_at is not None:
                return max(0.0, self._gate.probe_at - self._now)
            return None if self._gate.until_at is None else self._gate.until_at - self._now
        return self._slot_at() - self._now

    @property
    def is_free(self) -> bool:
        """Whether the gate admits any number of tasks now, and charges nothing."""
        is_charged = self._charged_buckets or self._changes.room is not None or self.admits_only_probes
        return not is_charged and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether the claim may hand out a task now."""
        wait = self.wait()
        return wait is not None and wait <= (0.0 if self.admits_only_probes else HANDOUT_AHEAD_SECONDS)

    def may_admit(self, *, on_last_attempt: bool) -> bool:
        """Whether this open gate may admit a task that is, or is not, on its last attempt."""
        if not self.admits_only_probes:
            return True
        return probes.may_probe(self._gate, self._now, on_last_attempt=on_last_attempt)

    def next_check_seconds(self) -> float | None:
        """Return the seconds until the next check is worthwhile; None if only an event changes the gate."""
        wait = self.wait()
        if wait is None or self.admits_only_probes:
            return wait
        return max(0.0, wait - HANDOUT_AHEAD_SECONDS / 2)

    def admit(self) -> Admission:
        """Admit one task and charge it. The gate must be open."""
        at, changes = self._slot_at(), self._changes
        for charged in self._charged_buckets:
            charged.charge(at, self._amount(charged.window))
        changes.next_at.clear()
        if changes.room is not None:
            changes.room -= 1
            changes.has_admitted_in_flight = True
        tokens_charged = self.needed if self._counts_tokens else None
        if self.admits_only_probes:
            changes.gate = probes.start_probe(self._gate, self._now)
            return Admission(0.0, is_probe=True, charged=tokens_charged)
        return Admission(at - self._now, charged=tokens_charged)

    def free_slots(self) -> int | None:
        """Return how many tasks the claim may hand out now; None for any number."""
        if not self.is_open:
            return 0
        if self.admits_only_probes:
            return 1
        start, until = max(self._now, self._opens_at), self._now + HANDOUT_AHEAD_SECONDS
        counts = [
            token_bucket.count_slots(
                charged.window,
                charged.bucket,
                start,
                until,
                stretch=self._stretch,
                amount=self._amount(charged.window),
            )
            for charged in self._charged_buckets
        ]
        if self._changes.room is not None:
            counts.append(self._changes.room)
        return min(counts, default=None)

    def seconds_until(self, tasks: int) -> tuple[float, Window] | None:
        """Return the seconds until the last of these tasks may start, and the rate limit that decides it.

        Returns None if the gate has no rate limit.
        """
        start = max(self._now, self._opens_at)
        waits = [
            (
                start
                - self._now
                + token_bucket.seconds_until_slot(
                    charged.window,
                    charged.bucket,
                    start,
                    tasks,
                    stretch=self._stretch,
                    amount=self._amount(charged.window),
                ),
                charged.window,
            )
            for charged in self._charged_buckets
        ]
        return max(waits, key=lambda wait: wait[0], default=None)

    def _bucket(self, window: Window) -> TokenBucket:
        return self._found.get(window.name, TokenBucket())

    def _amount(self, window: Window) -> int:
        return 1 if not self._counts_tokens else self.needed.of(window.dimension)

    def _without_bursts(self, row: GateRow) -> dict[str, TokenBucket]:
        """Return the buckets, leaving out slots from the time when no task could start.

        A learned rate grants no slots for the time before the response it came from: the provider has already
        counted them.
        """
        buckets = dict(row.buckets)
        shut_until = max(
            self._gate.last_opened_at or 0.0, learned_limits.exhausted_until(self._gate.learned_limits)
        )
        learned_since = max(shut_until, learned_limits.learned_rate_since(self._gate.learned_limits))
        for window in self._limits.windows:
            since = shut_until if window in row.limits.windows else learned_since
            if since:
                buckets[window.name] = token_bucket.drop_burst(
                    window, buckets.get(window.name, TokenBucket()), since
                )
        return buckets

    def _slot_at(self) -> float:
        """Return when the next task may start: after its slot, and after exhausted windows have opened."""
        known = self._changes.next_at.get(self.needed)
        if known is None:
            start = max(self._now, self._opens_at)
            known = max(
                [
                    charged.next_slot_at(start, self._amount(charged.window))
                    for charged in self._charged_buckets
                ],
                default=start,
            )
            self._changes.next_at[self.needed] = known
        return known


class Closed(NamedTuple):
    """The upstreams, functions and queues whose tasks a claim may not take."""

    upstreams: list[str]
    functions: list[str]
    queues: list[str]


class GateChecks:
    """The gate checks and pauses of one claim. A gate is read when the first task needs it.

    Args:
        gates_of: The gates in the store, and what is in flight.
        now: The current time by the store's clock.
        pauses: The paused queues and functions.
    """

    def __init__(self, gates_of: GateSource, now: float, pauses: Pauses = NO_PAUSES) -> None:
        self.pauses = pauses
        self._source = gates_of
        self._now = now
        self._checks: dict[tuple[GateKind, str], GateCheck | None] = {}
        self._by_channel: dict[tuple[str, str], tuple[GateCheck, ...]] = {}

    def of(self, upstream: str, function: str) -> tuple[GateCheck, ...]:
        """Return the checks that a task of this upstream and function must pass."""
        found = self._by_channel.get((upstream, function))
        if found is None:
            both = (self._check(GateKind.UPSTREAM, upstream), self._check(GateKind.FUNCTION, function))
            found = tuple([each.for_function(function) for each in both if each is not None])
            self._by_channel[upstream, function] = found
        return found

    def is_paused(self, queue: str, function: str) -> bool:
        """Whether a person paused this queue or this function."""
        return bool(self.pauses) and self.pauses.of(queue, function) is not None

    def closed(self) -> Closed:
        """Return the upstreams, functions and queues whose tasks may not be handed out now."""
        shut: dict[GateKind, list[str]] = {GateKind.UPSTREAM: [], GateKind.FUNCTION: []}
        for row in self._source.rows():
            gate_check = self._check(row.kind, row.name, row) if row.kind in shut else None
            if gate_check is not None and not gate_check.with_tokens(NO_TOKENS).is_open:
                shut[row.kind].append(row.name)
        functions = shut[GateKind.FUNCTION] + self.pauses.functions
        return Closed(shut[GateKind.UPSTREAM], functions, self.pauses.queues)

    def changed(self) -> list[GateRow]:
        """Return the rows that the claim must write."""
        return [each.row for each in self._checks.values() if each is not None and each.is_changed]

    def update(self, later: GateChecks) -> None:
        """Use the later checks of the gates that these checks know."""
        self._checks |= {key: each for key, each in later._checks.items() if each is not None}
        self._by_channel.clear()

    def _check(self, kind: GateKind, name: str, row: GateRow | None = None) -> GateCheck | None:
        key = (kind, name)
        if key not in self._checks:
            found = (row or self._source.row(kind, name)) if name else None
            if found is None:
                self._checks[key] = None
            else:
                in_flight = self._source.in_flight(name) if counts_in_flight(found, self._now) else 0
                self._checks[key] = GateCheck(found, in_flight, self._now)
        return self._checks[key]


class GateSource(Protocol):
    """Where a claim finds the gates of its tasks."""

    def row(self, kind: GateKind, name: str) -> GateRow | None:
        """Return a gate; None if there is none."""

    def rows(self) -> Iterable[GateRow]:
        """Return the gates of all tasks that the claim could take."""

    def in_flight(self, upstream: str) -> int:
        """Return the number of runs and calls of this upstream in flight."""


class ReadGates:
    """Gates that were read before.

    Args:
        rows: The gates of all tasks that the claim could take.
        in_flight: The number of runs and calls in flight, by upstream. Upstreams without any, and those that
            `upstreams_to_count` does not return, may be missing.
    """

    def __init__(self, rows: Iterable[GateRow], in_flight: Mapping[str, int]) -> None:
        self._rows = {(row.kind, row.name): row for row in rows}
        self._in_flight = in_flight

    def row(self, kind: GateKind, name: str) -> GateRow | None:
        """Return a gate; None if there is none."""
        return self._rows.get((kind, name))

    def rows(self) -> Iterable[GateRow]:
        """Return all gates."""
        return self._rows.values()

    def in_flight(self, upstream: str) -> int:
        """Return the number of runs and calls of this upstream in flight."""
        return self._in_flight.get(upstream, 0)


def admit(gate_checks: Sequence[GateCheck]) -> Admission:
    """Admit one task through all of these open gates."""
    if len(gate_checks) == 1:
        return gate_checks[0].admit()
    every = [gate_check.admit() for gate_check in gate_checks]
    return Admission(
        max((each.wait_seconds for each in every), default=0.0),
        any(each.is_probe for each in every),
        next((each.charged for each in every if each.charged is not None), None),
    )


def upstreams_to_count(rows: Iterable[GateRow], now: float) -> list[str]:
    """Return the upstreams whose runs and calls in flight a claim must count."""
    return [row.name for row in rows if counts_in_flight(row, now)]


def counts_in_flight(row: GateRow, now: float) -> bool:
    """Whether a claim must count the runs and calls in flight of this gate."""
    return (
        row.kind is GateKind.UPSTREAM
        and not is_key_gate(row.name)
        and in_flight_learning.limits_in_flight(gates.gate_at(row.gate, row.limits, now), row.limits)
    )
