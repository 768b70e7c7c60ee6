"""The nemesis: does faults at random moments, several at a time, and undoes them all in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidegate.testing.simulation.faulty import Weather
from tidegate.testing.simulation.hosts import Host
from tidegate.testing.simulation.journal import Journal
from tidegate.testing.simulation.plan import FaultKind, Scene

_MOST_STEPS = (10, 50, 200)
"""Of the machine, until it dies."""
_STEP_SECONDS = (15.0, 60.0, 120.0, 300.0, 600.0)
"""Of the wall clock."""


class Drainable(Protocol):
    """A worker's process."""

    def drain(self, grace: float | None) -> None:
        """Tell it to stop."""
        ...


class Nemesis:
    """Brings trouble over hosts and the store.

    Args:
        scene: Which faults, how often.
        workers: Hosts of workers.
        clients: Hosts of clients: they crash and freeze, too.
        processes: The worker processes that live, by machine.
        sky: The weather for all.
        step_clock: Moves the wall clock by so many seconds.
        journal: Told of each fault.
        rng: For all of it.
    """

    def __init__(
        self,
        scene: Scene,
        *,
        workers: Sequence[Host],
        clients: Sequence[Host],
        processes: Mapping[str, Drainable],
        sky: Weather,
        step_clock: Callable[[float], None],
        journal: Journal,
        rng: random.Random,
    ) -> None:
        self._scene = scene
        self._workers = workers
        self._clients = clients
        self._processes = processes
        self._sky = sky
        self._step_clock = step_clock
        self._journal = journal
        self._rng = rng
        self._acts: dict[FaultKind, tuple[Callable[[], None], int]] = {
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
        kinds = [kind for kind in self._acts if kind in self._scene.faults]
        if not kinds:
            return
        weights = [self._acts[kind][1] for kind in kinds]
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._scene.mean_seconds_between_faults))
            act, _ = self._acts[self._rng.choices(kinds, weights)[0]]
            act()

    def calm(self) -> None:
        """End every fault under way."""
        for host in (*self._workers, *self._clients):
            host.is_calm = True
            self._clear(host.weather)
            if host.machine is not None:
                host.machine.die_after(None)
                host.machine.thaw()
        self._clear(self._sky)
        now = self._journal.now()
        for fault in self._journal.faults:
            if fault.kind is not FaultKind.CRASH:
                fault.ended_at = min(fault.ended_at, now)

    def _clear(self, weather: Weather) -> None:
        weather.away_until = weather.locked_until = weather.stormy_until = 0.0

    # --- faults ---

    def _crash(self) -> None:
        self._any_host().crash(self._rng.randint(0, self._rng.choice(_MOST_STEPS)))

    def _pause(self) -> None:
        host = self._any_host()
        machine = host.machine
        if machine is None:
            return
        seconds = (
            self._scene.lease * self._rng.choice((0.3, 0.9, 1.5, 2.0, 4.0)) * self._rng.uniform(0.9, 1.1)
        )
        fault = self._journal.fault(FaultKind.PAUSE, machine.name, seconds)
        machine.freeze()
        asyncio.get_running_loop().call_later(seconds, machine.thaw)
        fault.what = f"{seconds:.1f} s"

    def _cut_off(self) -> None:
        host = self._any_host()
        self._away(host.weather, host, self._scene.lease * self._rng.choice((0.2, 0.8, 1.5, 3.0)))

    def _outage(self) -> None:
        seconds = self._scene.lease * self._rng.choice((0.1, 0.5, 1.1, 2.2, 3.0))
        self._journal.fault(FaultKind.OUTAGE, "", seconds, f"{seconds:.1f} s")
        self._sky.away_until = max(self._sky.away_until, self._journal.now() + seconds)

    def _locked(self) -> None:
        seconds = self._scene.lease * self._rng.choice((0.1, 0.5, 1.5, 2.5))
        self._journal.fault(FaultKind.LOCKED, "", seconds, f"{seconds:.1f} s")
        self._sky.locked_until = max(self._sky.locked_until, self._journal.now() + seconds)

    def _away(self, weather: Weather, host: Host, seconds: float) -> None:
        if host.machine is not None:
            self._journal.fault(FaultKind.CUT_OFF, host.machine.name, seconds, f"{seconds:.1f} s")
            weather.away_until = max(weather.away_until, self._journal.now() + seconds)

    def _errors(self) -> None:
        weather = self._storm(FaultKind.ERRORS)
        if weather is not None:
            weather.errors, weather.lost_answers = self._rng.choice((0.1, 0.3, 0.6)), 0.0

    def _lost_answers(self) -> None:
        weather = self._storm(FaultKind.LOST_ANSWERS)
        if weather is not None:
            weather.errors, weather.lost_answers = 0.0, self._rng.choice((0.1, 0.3, 0.6))

    def _storm(self, kind: FaultKind) -> Weather | None:
        """Begin a storm over one host or all; return the weather to set."""
        seconds = self._scene.lease * self._rng.choice((0.2, 0.5, 1.0))
        if self._rng.random() < 0.3:
            weather, name = self._sky, ""
        else:
            host = self._any_host()
            if host.machine is None:
                return None
            weather, name = host.weather, host.machine.name
        self._journal.fault(kind, name, seconds, f"{seconds:.1f} s")
        weather.stormy_until = max(weather.stormy_until, self._journal.now() + seconds)
        return weather

    def _clock(self) -> None:
        seconds = self._rng.choice(_STEP_SECONDS) * self._rng.choice((1, 1, -1))
        self._journal.fault(FaultKind.CLOCK, "", 0.0, f"{seconds:+.0f} s")
        self._step_clock(seconds)

    def _drain(self) -> None:
        machine = self._rng.choice(self._workers).machine
        if machine is not None and machine.name in self._processes:
            grace = self._rng.choice((None, 0.0, self._scene.lease * self._rng.random()))
            self._journal.fault(FaultKind.DRAIN, machine.name, 0.0, f"grace {grace}")
            self._processes[machine.name].drain(grace)

    def _any_host(self) -> Host:
        """Return a host; workers more often than clients."""
        return self._rng.choice(self._workers if self._rng.random() < 0.85 else self._clients)
