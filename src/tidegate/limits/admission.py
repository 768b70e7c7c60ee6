"""What one claim may take of an upstream or a function with limits: how many tasks, and when each may start.

A `GateCheck` is made of a gate's row for the length of a transaction. Each admitted task is charged at once;
the row that results is written with the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegate.domain.failure import Reason
from tidegate.domain.spec import Window
from tidegate.limits import gate as gates
from tidegate.limits import learned_limits, token_bucket
from tidegate.limits.settings import GateKind
from tidegate.limits.values import CallSlot, Gate, GateRow, LearnedLimit, TokenBucket, is_key_gate

MAX_PROBE_CANDIDATES = 500
"""First tasks of a lane among which one is looked for that may try its held gate."""
HANDOUT_AHEAD_SECONDS = 0.25
"""Tasks are handed out so long before their slots, so that no quota is lost between two looks."""
PACED_SECONDS = 60.0
"""A spent limit that refills within this time is a pace. Tasks that wait for a longer one are blocked."""


class Admission(NamedTuple):
    """One task may start."""

    wait_seconds: float = 0.0
    """From now."""
    is_probe: bool = False


class GateCheck:
    """Lets tasks through one gate, charging its buckets. Knows when it will let through more.

    Args:
        row: The gate as stored.
        in_flight: Runs and calls of it under way.
        now: By the store's clock.
        of_runs: Whether it lets runs through, or single calls that no claim has charged.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float, *, of_runs: bool = True) -> None:
        self._before = row
        self._now = now
        self._gate = gates.gate_at(row.gate, row.limits, now)
        self._limits = learned_limits.with_learned_rates(row.limits, self._gate, now, of_runs=of_runs)
        self._opens_at = learned_limits.next_call_at(self._gate.learned_limits, now)
        self._found = self._without_bursts(row)
        self._buckets = dict(self._found)
        self._room = gates.free_in_flight(self._gate, self._limits, in_flight)
        self._stretch = 1.0 / gates.slow_start_share(self._gate, self._limits, now)

    @property
    def row(self) -> GateRow:
        """The gate after what was let through so far."""
        return replace(self._before, gate=self._gate, buckets=self._buckets)

    @property
    def is_changed(self) -> bool:
        """Whether the row must be written."""
        return self._gate is not self._before.gate or self._buckets != self._found

    def wait(self) -> float | None:
        """Return in how many seconds the next task may start; None: nobody knows, an event decides."""
        if self._room == 0:
            return None
        if gates.admits_only_probes(self._gate):
            if self._gate.probe_at is not None:
                return max(0.0, self._gate.probe_at - self._now)
            return None if self._gate.until_at is None else self._gate.until_at - self._now
        return self._slot_at() - self._now

    @property
    def is_open(self) -> bool:
        """Whether a task may be handed out now."""
        wait = self.wait()
        return wait is not None and wait <= (
            0.0 if gates.admits_only_probes(self._gate) else HANDOUT_AHEAD_SECONDS
        )

    def may_admit(self, *, on_last_attempt: bool) -> bool:
        """Whether this open door may let such a task through: not each may try a held gate."""
        if not gates.admits_only_probes(self._gate):
            return True
        return gates.may_probe(self._gate, self._now, on_last_attempt=on_last_attempt)

    @property
    def admits_only_probes(self) -> bool:
        """Whether only a probe may go through."""
        return gates.admits_only_probes(self._gate)

    def next_check_seconds(self) -> float | None:
        """Return in how many seconds it is worth looking again; None: nothing but an event changes it."""
        wait = self.wait()
        if wait is None or gates.admits_only_probes(self._gate):
            return wait
        return max(0.0, wait - HANDOUT_AHEAD_SECONDS / 2)

    def admit(self) -> Admission:
        """Let one task through an open door."""
        is_probe = gates.admits_only_probes(self._gate)
        at = self._slot_at()
        self._buckets |= token_bucket.charge_all(
            self._limits.windows, self._buckets, at, stretch=self._stretch
        )
        if is_probe:
            self._gate = gates.start_probe(self._gate, self._now)
        if self._room is not None:
            self._room -= 1
        return Admission(0.0 if is_probe else at - self._now, is_probe)

    def free_slots(self) -> int | None:
        """Return how many tasks may be handed out now; None: any number."""
        if not self.is_open:
            return 0
        if gates.admits_only_probes(self._gate):
            return 1
        start, until = max(self._now, self._opens_at), self._now + HANDOUT_AHEAD_SECONDS
        counts = [
            token_bucket.count_slots(window, self._bucket(window), start, until, stretch=self._stretch)
            for window in self._limits.windows
        ]
        if self._room is not None:
            counts.append(self._room)
        return min(counts, default=None)

    def seconds_until(self, tasks: int) -> tuple[float, Window] | None:
        """Return the seconds until the last of these tasks may start, and the rate limit that says so.

        None: it has no rate limit.
        """
        start = max(self._now, self._opens_at)
        waits = [
            (
                start
                - self._now
                + token_bucket.seconds_until_slot(
                    window, self._bucket(window), start, tasks, stretch=self._stretch
                ),
                window,
            )
            for window in self._limits.windows
        ]
        return max(waits, key=lambda wait: wait[0], default=None)

    def _bucket(self, window: Window) -> TokenBucket:
        return self._buckets.get(window.name, TokenBucket())

    def _without_bursts(self, row: GateRow) -> dict[str, TokenBucket]:
        """Return the buckets without slots from when nothing could start.

        Nor has a learned pace any from before the call that told it: what is left was counted then.
        """
        buckets = dict(row.buckets)
        shut_until = max(
            self._gate.last_opened_at or 0.0, learned_limits.exhausted_until(self._gate.learned_limits)
        )
        told_at = max(shut_until, learned_limits.learned_rate_since(self._gate.learned_limits))
        for window in self._limits.windows:
            since = shut_until if window in row.limits.windows else told_at
            if since:
                buckets[window.name] = token_bucket.drop_burst(
                    window, buckets.get(window.name, TokenBucket()), since
                )
        return buckets

    def _slot_at(self) -> float:
        """Return when the next may start: not before its slot, nor before a spent window opens."""
        return token_bucket.next_slot_in_all(
            self._limits.windows, self._buckets, max(self._now, self._opens_at)
        )


class GateChecks:
    """All doors of one claim.

    Args:
        rows: Every gate the store keeps.
        in_flight: Runs and calls under way by upstream; one without any may be left out, and so may those
            that `counted` does not name.
        now: By the store's clock.
    """

    def __init__(self, rows: Iterable[GateRow], in_flight: Mapping[str, int], now: float) -> None:
        self._upstreams: dict[str, GateCheck] = {}
        self._functions: dict[str, GateCheck] = {}
        for row in rows:
            if row.kind is GateKind.UPSTREAM:
                self._upstreams[row.name] = GateCheck(row, in_flight.get(row.name, 0), now)
            elif row.kind is GateKind.FUNCTION:
                self._functions[row.name] = GateCheck(row, 0, now)

    def of(self, upstream: str, function: str) -> tuple[GateCheck, ...]:
        """Return the doors that a task of this upstream and function must pass."""
        found = (self._upstreams.get(upstream), self._functions.get(function))
        return tuple([gate_check for gate_check in found if gate_check is not None])

    def closed(self) -> tuple[list[str], list[str]]:
        """Return the upstreams and the functions of which nothing may be handed out now."""
        upstreams = [name for name, gate_check in self._upstreams.items() if not gate_check.is_open]
        return upstreams, [name for name, gate_check in self._functions.items() if not gate_check.is_open]

    def changed(self) -> list[GateRow]:
        """Return the rows to be written."""
        every = (*self._upstreams.values(), *self._functions.values())
        return [gate_check.row for gate_check in every if gate_check.is_changed]


def admit(gate_checks: Iterable[GateCheck]) -> Admission:
    """Let one task through all of these open doors."""
    every = [gate_check.admit() for gate_check in gate_checks]
    return Admission(
        max((each.wait_seconds for each in every), default=0.0), any(each.is_probe for each in every)
    )


def upstreams_to_count(rows: Iterable[GateRow], now: float) -> list[str]:
    """Return the upstreams of which a claim must know how much is in flight."""
    return [
        row.name
        for row in rows
        if row.kind is GateKind.UPSTREAM
        and not is_key_gate(row.name)
        and gates.limits_in_flight(gates.gate_at(row.gate, row.limits, now), row.limits)
    ]


def take_call_slot(
    row: GateRow,
    *,
    max_wait_seconds: float,
    now: float,
    in_flight: int = 0,
    on_last_attempt: bool = False,
) -> tuple[CallSlot, GateRow]:
    """Return the slot of one call that no claim has charged, and the gate after it.

    Nothing is charged where it is not granted: the gate does not flow and another tries it, the slot is
    further away than the caller can wait, or as many calls as may be are in flight.

    Args:
        row: The gate.
        max_wait_seconds: How long the caller can wait.
        now: By the store's clock.
        in_flight: Runs and calls under way; 0 where the call's own run stands for it.
        on_last_attempt: Whether a failure would cost the caller's task its last attempt: such a call tries
            a held gate as rarely as such a run does.
    """
    most = row.limits.max_in_flight
    gate = gates.gate_at(row.gate, row.limits, now)
    gate_check = GateCheck(row, 0, now, of_runs=False)
    wait, flows = gate_check.wait(), not gates.admits_only_probes(gate)
    may_go = flows or gates.may_probe(gate, now, on_last_attempt=on_last_attempt)
    if on_last_attempt and not flows and wait is not None and gate.probe_at is not None:
        wait = max(0.0, gate.probe_at + gates.last_attempt_delay(gate, now) - now)
    if may_go and most is not None and in_flight >= most:
        return CallSlot(False, gate.typical_seconds, str(Reason.RATE_LIMIT), is_at_capacity=True), row
    if may_go and wait is not None and wait <= max_wait_seconds:
        admitted = gate_check.admit()
        return CallSlot(True, admitted.wait_seconds, is_probe=admitted.is_probe), gate_check.row
    reason = str(Reason.RATE_LIMIT) if flows else gate.reason
    opens_by_probe = not flows and gate.probe_at is not None
    message = "" if flows else gate.message
    return CallSlot(False, wait, reason, opens_by_probe=opens_by_probe, message=message), row


@dataclass(frozen=True, slots=True)
class Block:
    """Why tasks of a gate do not start, as facts."""

    gate: Gate
    until_at: float | None
    """When they may; None: nobody knows."""
    window: str = ""
    """The exhausted window; empty if it is not that."""
    spent: LearnedLimit | None = None
    """The limit of which, by the provider's own word, too little is left."""


def find_block(row: GateRow, now: float) -> Block | None:
    """Return why tasks of a gate are blocked: at no pace may one start. None if they start, if slowly.

    A limit that refills evenly, or within a minute, is a pace: its tasks wait for their slots.
    """
    gate = gates.gate_at(row.gate, row.limits, now)
    if gate.parked_by is not None:
        return Block(gate, gate.until_at)
    spent = learned_limits.exhausted_limit(
        (limit for limit in gate.learned_limits if not _is_pace(limit, now)), now
    )
    if spent is not None:
        return Block(gate, spent.opens_at, spent=spent)
    for window in row.limits.windows:
        at = token_bucket.next_slot_at(window, row.buckets.get(window.name, TokenBucket()), now)
        if window.is_fixed and window.seconds > PACED_SECONDS and at - now > HANDOUT_AHEAD_SECONDS:
            return Block(gate, at, window.name)
    return None


def _is_pace(limit: LearnedLimit, now: float) -> bool:
    if limit.refills_evenly:
        return True
    if limit.window_seconds is not None:
        return limit.window_seconds <= PACED_SECONDS
    return (limit.opens_at or 0.0) - now <= PACED_SECONDS
