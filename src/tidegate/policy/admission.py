"""What one claim may take of an upstream or a function with limits: how many tasks, and when each may start.

A `Door` is made of one gate's row for the length of one transaction. Each admitted task is charged at once;
the row that results is written with the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegate.domain.failure import Reason
from tidegate.domain.upstream import Gate, GateKind, GateRow, Meter, Slot, Window, is_key_gate
from tidegate.domain.usage import LearnedLimit
from tidegate.policy import gate as gates
from tidegate.policy import learned, pacing

PROBERS = 500
"""First tasks of a lane among which one is looked for that may try its held gate."""
AHEAD_SECONDS = 0.25
"""Tasks are handed out so long before their slots, so that no quota is lost between two looks."""
PACED_SECONDS = 60.0
"""A spent limit that refills within this time is a pace. Tasks that wait for a longer one are blocked."""


class Admitted(NamedTuple):
    """One task may start."""

    wait_seconds: float = 0.0
    """From now."""
    is_probe: bool = False


class Door:
    """Lets tasks through one gate, charging its meters. Knows when it will let through more.

    Args:
        row: The gate as stored.
        in_flight: Runs and calls of it under way.
        now: By the store's clock.
        of_runs: Whether it lets runs through, or single calls that no claim has charged.
    """

    def __init__(self, row: GateRow, in_flight: int, now: float, *, of_runs: bool = True) -> None:
        self._before = row
        self._now = now
        self._gate = gates.as_of(row.gate, row.limits, now)
        self._limits = learned.paced(row.limits, self._gate, now, of_runs=of_runs)
        self._opens_at = learned.opens_at(self._gate.learned, now)
        self._found = self._without_bursts(row)
        self._meters = dict(self._found)
        self._room = gates.room(self._gate, self._limits, in_flight)
        self._stretch = 1.0 / gates.share(self._gate, self._limits, now)

    @property
    def row(self) -> GateRow:
        """The gate after what was let through so far."""
        return replace(self._before, gate=self._gate, meters=self._meters)

    @property
    def is_changed(self) -> bool:
        """Whether the row must be written."""
        return self._gate is not self._before.gate or self._meters != self._found

    def wait(self) -> float | None:
        """Return in how many seconds the next task may start; None: nobody knows, an event decides."""
        if self._room == 0:
            return None
        if gates.is_held(self._gate):
            if self._gate.probe_at is not None:
                return max(0.0, self._gate.probe_at - self._now)
            return None if self._gate.until_at is None else self._gate.until_at - self._now
        return self._slot_at() - self._now

    @property
    def is_open(self) -> bool:
        """Whether a task may be handed out now."""
        wait = self.wait()
        return wait is not None and wait <= (0.0 if gates.is_held(self._gate) else AHEAD_SECONDS)

    def lets_only(self, *, on_last_attempt: bool) -> bool:
        """Whether this open door may let such a task through: not each may try a held gate."""
        if not gates.is_held(self._gate):
            return True
        return gates.may_probe(self._gate, self._now, on_last_attempt=on_last_attempt)

    @property
    def is_held(self) -> bool:
        """Whether only a probe may go through."""
        return gates.is_held(self._gate)

    def again_seconds(self) -> float | None:
        """Return in how many seconds it is worth looking again; None: nothing but an event changes it."""
        wait = self.wait()
        if wait is None or gates.is_held(self._gate):
            return wait
        return max(0.0, wait - AHEAD_SECONDS / 2)

    def admit(self) -> Admitted:
        """Let one task through an open door."""
        is_probe = gates.is_held(self._gate)
        at = self._slot_at()
        self._meters |= pacing.charged_to_all(self._limits.windows, self._meters, at, stretch=self._stretch)
        if is_probe:
            self._gate = gates.probing(self._gate, self._now)
        if self._room is not None:
            self._room -= 1
        return Admitted(0.0 if is_probe else at - self._now, is_probe)

    def open_slots(self) -> int | None:
        """Return how many tasks may be handed out now; None: any number."""
        if not self.is_open:
            return 0
        if gates.is_held(self._gate):
            return 1
        start, until = max(self._now, self._opens_at), self._now + AHEAD_SECONDS
        counts = [
            pacing.slots_until(window, self._meter(window), start, until, stretch=self._stretch)
            for window in self._limits.windows
        ]
        if self._room is not None:
            counts.append(self._room)
        return min(counts, default=None)

    def seconds_for(self, tasks: int) -> tuple[float, Window] | None:
        """Return the seconds until the last of these tasks may start, and the rate limit that says so.

        None: it has no rate limit.
        """
        start = max(self._now, self._opens_at)
        waits = [
            (
                start
                - self._now
                + pacing.seconds_for(window, self._meter(window), start, tasks, stretch=self._stretch),
                window,
            )
            for window in self._limits.windows
        ]
        return max(waits, key=lambda wait: wait[0], default=None)

    def _meter(self, window: Window) -> Meter:
        return self._meters.get(window.name, Meter())

    def _without_bursts(self, row: GateRow) -> dict[str, Meter]:
        """Return the meters without slots from when nothing could start.

        Nor has a learned pace any from before the call that told it: what is left was counted then.
        """
        meters = dict(row.meters)
        shut_until = max(self._gate.reopened_at or 0.0, learned.shut_until(self._gate.learned))
        told_at = max(shut_until, learned.told_at(self._gate.learned))
        for window in self._limits.windows:
            since = shut_until if window in row.limits.windows else told_at
            if since:
                meters[window.name] = pacing.without_burst(window, meters.get(window.name, Meter()), since)
        return meters

    def _slot_at(self) -> float:
        """Return when the next may start: not before its slot, nor before a spent window opens."""
        return pacing.slot_of_all(self._limits.windows, self._meters, max(self._now, self._opens_at))


class Doors:
    """All doors of one claim.

    Args:
        rows: Every gate the store keeps.
        in_flight: Runs and calls under way by upstream; one without any may be left out, and so may those
            that `counted` does not name.
        now: By the store's clock.
    """

    def __init__(self, rows: Iterable[GateRow], in_flight: Mapping[str, int], now: float) -> None:
        self._upstreams: dict[str, Door] = {}
        self._functions: dict[str, Door] = {}
        for row in rows:
            if row.kind is GateKind.UPSTREAM:
                self._upstreams[row.name] = Door(row, in_flight.get(row.name, 0), now)
            elif row.kind is GateKind.FUNCTION:
                self._functions[row.name] = Door(row, 0, now)

    def of(self, upstream: str, function: str) -> tuple[Door, ...]:
        """Return the doors that a task of this upstream and function must pass."""
        found = (self._upstreams.get(upstream), self._functions.get(function))
        return tuple([door for door in found if door is not None])

    def shut(self) -> tuple[list[str], list[str]]:
        """Return the upstreams and the functions of which nothing may be handed out now."""
        upstreams = [name for name, door in self._upstreams.items() if not door.is_open]
        return upstreams, [name for name, door in self._functions.items() if not door.is_open]

    def changed(self) -> list[GateRow]:
        """Return the rows to be written."""
        every = (*self._upstreams.values(), *self._functions.values())
        return [door.row for door in every if door.is_changed]


def admit(doors: Iterable[Door]) -> Admitted:
    """Let one task through all of these open doors."""
    every = [door.admit() for door in doors]
    return Admitted(
        max((each.wait_seconds for each in every), default=0.0), any(each.is_probe for each in every)
    )


def counted(rows: Iterable[GateRow], now: float) -> list[str]:
    """Return the upstreams of which a claim must know how much is in flight."""
    return [
        row.name
        for row in rows
        if row.kind is GateKind.UPSTREAM
        and not is_key_gate(row.name)
        and gates.minds_flight(gates.as_of(row.gate, row.limits, now), row.limits)
    ]


def slot_for_call(
    row: GateRow,
    *,
    patience_seconds: float,
    now: float,
    in_flight: int = 0,
    on_last_attempt: bool = False,
) -> tuple[Slot, GateRow]:
    """Return the slot of one call that no claim has charged, and the gate after it.

    Nothing is charged where it is not granted: the gate does not flow and another tries it, the slot is
    further away than the caller can wait, or as many calls as may be are in flight.

    Args:
        row: The gate.
        patience_seconds: How long the caller can wait.
        now: By the store's clock.
        in_flight: Runs and calls under way; 0 where the call's own run stands for it.
        on_last_attempt: Whether a failure would cost the caller's task its last attempt: such a call tries
            a held gate as rarely as such a run does.
    """
    most = row.limits.max_in_flight
    gate = gates.as_of(row.gate, row.limits, now)
    door = Door(row, 0, now, of_runs=False)
    wait, flows = door.wait(), not gates.is_held(gate)
    may_go = flows or gates.may_probe(gate, now, on_last_attempt=on_last_attempt)
    if on_last_attempt and not flows and wait is not None and gate.probe_at is not None:
        wait = max(0.0, gate.probe_at + gates.last_attempt_seconds(gate, now) - now)
    if may_go and most is not None and in_flight >= most:
        return Slot(False, gate.typical_seconds, str(Reason.RATE_LIMIT), is_full=True), row
    if may_go and wait is not None and wait <= patience_seconds:
        admitted = door.admit()
        return Slot(True, admitted.wait_seconds, is_probe=admitted.is_probe), door.row
    reason = str(Reason.RATE_LIMIT) if flows else gate.reason
    opens_by_probe = not flows and gate.probe_at is not None
    message = "" if flows else gate.message
    return Slot(False, wait, reason, opens_by_probe=opens_by_probe, message=message), row


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


def blocked(row: GateRow, now: float) -> Block | None:
    """Return why tasks of a gate are blocked: at no pace may one start. None if they start, if slowly.

    A limit that refills evenly, or within a minute, is a pace: its tasks wait for their slots.
    """
    gate = gates.as_of(row.gate, row.limits, now)
    if gate.by is not None:
        return Block(gate, gate.until_at)
    spent = learned.spent((limit for limit in gate.learned if not _is_pace(limit, now)), now)
    if spent is not None:
        return Block(gate, spent.opens_at, spent=spent)
    for window in row.limits.windows:
        at = pacing.slot_at(window, row.meters.get(window.name, Meter()), now)
        if window.fixed and window.seconds > PACED_SECONDS and at - now > AHEAD_SECONDS:
            return Block(gate, at, window.name)
    return None


def _is_pace(limit: LearnedLimit, now: float) -> bool:
    if limit.is_refilled:
        return True
    if limit.window_seconds is not None:
        return limit.window_seconds <= PACED_SECONDS
    return (limit.opens_at or 0.0) - now <= PACED_SECONDS
