"""Inject faults at random times, several at once, and end them all at the end of the run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.faults import Effect
from simulation.event_log import EventLog
from simulation.faulty_store import StoreCondition
from simulation.hosts import SimulatedHost
from simulation.machine import Condition
from simulation.plan import FaultKind, SimulationSetup

_MAX_STEPS = (10, 50, 200)
"""Of the machine, until it dies."""
Action = Callable[[], float]
"""Does a fault and returns for how many seconds it lasts; 0 for one that is over at once, or was not done."""

_PAUSE_LEASES = (0.3, 0.9, 1.2, 1.4, 1.7, 2.5, 4.0)
"""In leases: a worker is taken for dead after one lease and a little more."""
_WAIT_CHANCE = 0.5
"""Chance that the injector waits for a fault to end: some bugs show only while everything else goes on."""
_STEP_SECONDS = (15.0, 60.0, 120.0, 300.0, 600.0)
"""Of the wall clock."""


class Drainable(Protocol):
    """A worker's process."""

    def drain(self, grace: float | None) -> None:
        """Ask the worker to stop."""
        ...


@dataclass(eq=False, kw_only=True)
class FaultInjector:
    """Injects faults into hosts and the store."""

    setup: SimulationSetup
    """The kinds of faults and how often they happen."""
    workers: Sequence[SimulatedHost]
    clients: Sequence[SimulatedHost]
    """The hosts of the clients, which crash and freeze too."""
    processes: Mapping[str, Drainable]
    """The live worker processes, by machine."""
    shared_condition: StoreCondition
    """The condition of the store for all machines."""
    step_clock: Callable[[float], None]
    """Moves the wall clock by some seconds."""
    event_log: EventLog
    rng: random.Random
    """Source of all random choices."""

    def __post_init__(self) -> None:
        self._actions: dict[FaultKind, tuple[Action, int]] = {
            FaultKind.CRASH: (self._crash, 10),
            FaultKind.PAUSE: (self._pause, 6),
            FaultKind.CUT_OFF: (self._cut_off, 2),
            FaultKind.OUTAGE: (self._outage, 1),
            FaultKind.LOCKED: (self._locked, 1),
            FaultKind.ERRORS: (self._errors, 2),
            FaultKind.LOST_ANSWERS: (self._lost_answers, 3),
            FaultKind.CLOCK: (self._clock, 1),
            FaultKind.DRAIN: (self._drain, 3),
        }

    async def run(self) -> None:
        """Do one fault after another until cancelled."""
        kinds = [kind for kind in self._actions if kind in self.setup.faults]
        if not kinds:
            return
        weights = [self._actions[kind][1] for kind in kinds]
        if FaultKind.CRASH in kinds:
            weights[kinds.index(FaultKind.CRASH)] *= self.setup.crash_weight
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.setup.mean_seconds_between_faults))
            action, _ = self._actions[self.rng.choices(kinds, weights)[0]]
            seconds = action()
            if self.rng.random() < _WAIT_CHANCE:
                await asyncio.sleep(seconds)

    def end_all_faults(self) -> None:
        """End every fault under way."""
        for host in (*self.workers, *self.clients):
            host.has_no_more_faults = True
            self._clear(host.store_condition)
            if host.machine is not None:
                host.machine.die_after(None)
                host.machine.thaw()
        self._clear(self.shared_condition)
        now = self.event_log.now()
        for fault in self.event_log.fault_log.faults:
            if not fault.has(Effect.ENDS_MAINTENANCE):
                fault.ended_at = min(fault.ended_at, now)

    def _clear(self, store_condition: StoreCondition) -> None:
        store_condition.away_until = store_condition.locked_until = store_condition.burst_until = 0.0

    # --- faults ---

    def _crash(self) -> float:
        self._any_host().crash(self.rng.randint(0, self.rng.choice(_MAX_STEPS)))
        return 0.0

    def _pause(self) -> float:
        machine = self._any_host().machine
        if machine is None or machine.condition is not Condition.RUNNING:
            return 0.0
        seconds = self.setup.lease * self.rng.choice(_PAUSE_LEASES) * self.rng.uniform(0.9, 1.1)
        self.event_log.record_fault(FaultKind.PAUSE, machine.name, seconds)
        machine.freeze()
        asyncio.get_running_loop().call_later(seconds, machine.thaw)
        return seconds

    def _cut_off(self) -> float:
        host = self._any_host()
        if host.machine is None:
            return 0.0
        seconds = self._leases(0.2, 0.8, 1.5, 3.0)
        self.event_log.record_fault(FaultKind.CUT_OFF, host.machine.name, seconds)
        host.store_condition.away_until = max(host.store_condition.away_until, self._after(seconds))
        return seconds

    def _outage(self) -> float:
        seconds = self._leases(0.2, 0.8, 1.2, 2.2, 3.0)
        self.event_log.record_fault(FaultKind.OUTAGE, "", seconds)
        self.shared_condition.away_until = max(self.shared_condition.away_until, self._after(seconds))
        return seconds

    def _locked(self) -> float:
        seconds = self._leases(0.2, 0.8, 1.5, 2.5)
        self.event_log.record_fault(FaultKind.LOCKED, "", seconds)
        self.shared_condition.locked_until = max(self.shared_condition.locked_until, self._after(seconds))
        return seconds

    def _after(self, seconds: float) -> float:
        return self.event_log.now() + seconds

    def _errors(self) -> float:
        return self._fault_burst(FaultKind.ERRORS, errors=self.rng.choice((0.1, 0.3, 0.6)))

    def _lost_answers(self) -> float:
        return self._fault_burst(FaultKind.LOST_ANSWERS, lost_answers=self.rng.choice((0.1, 0.3, 0.6)))

    def _fault_burst(self, kind: FaultKind, *, errors: float = 0.0, lost_answers: float = 0.0) -> float:
        """Start a period of failing calls for one host or all."""
        seconds = self._leases(0.2, 0.5, 1.0)
        store_condition, name = self.shared_condition, ""
        if self.rng.random() < 0.7:
            host = self._any_host()
            if host.machine is None:
                return 0.0
            store_condition, name = host.store_condition, host.machine.name
        self.event_log.record_fault(kind, name, seconds)
        store_condition.burst_until = max(store_condition.burst_until, self._after(seconds))
        store_condition.errors, store_condition.lost_answers = errors, lost_answers
        return seconds

    def _clock(self) -> float:
        seconds = self.rng.choice(_STEP_SECONDS) * self.rng.choice((1, 1, -1))
        self.event_log.record_fault(FaultKind.CLOCK, "", 0.0, f"{seconds:+.0f} s")
        self.step_clock(seconds)
        return 0.0

    def _drain(self) -> float:
        machine = self.rng.choice(self.workers).machine
        if machine is not None and machine.name in self.processes:
            grace = self.rng.choice((None, 0.0, self.setup.lease * self.rng.random()))
            self.event_log.injected[str(FaultKind.DRAIN)] += 1  # the worker records when it stops
            self.processes[machine.name].drain(grace)
        return 0.0

    def _leases(self, *choices: float) -> float:
        """Return one of some durations, given in leases, in seconds."""
        return self.setup.lease * self.rng.choice(choices)

    def _any_host(self) -> SimulatedHost:
        """Return a host: mostly a worker's, half of the time the one that claimed last, for it is at work."""
        draw = self.rng.random()
        if draw < 0.5:
            for host in self.workers:
                if host.machine is not None and host.machine.name == self.event_log.last_claimer:
                    return host
        return self.rng.choice(self.workers if draw < 0.85 else self.clients)
