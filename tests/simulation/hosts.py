"""Places where processes live: started again whenever they end, each time on a new machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.event_log import EventLog
from simulation.faulty_store import StoreCondition
from simulation.machine import Condition, Machine, MachineLoop
from simulation.plan import FaultKind

SOON_SECONDS = 0.5
"""Until the next machine, once faults are over."""


class SimulatedHost:
    """One host. When its machine dies or its process ends, a new one starts after a while.

    Args:
        name: The prefix of its machines' names: `w1.3` is the third machine of `w1`.
        loop: The shared loop.
        event_log: Records the events of its machines.
        rng: Source of the time until the next machine.
        max_gap: Most seconds without a machine while faults go on.
        process: The process that runs on each machine.
        on_gone: Called with a machine whose process has ended.
    """

    def __init__(
        self,
        name: str,
        *,
        loop: MachineLoop,
        event_log: EventLog,
        rng: random.Random,
        max_gap: float,
        process: Callable[[Machine], Coroutine[Any, Any, None]],
        on_gone: Callable[[Machine], None],
    ) -> None:
        self.name = name
        self.store_condition = StoreCondition()
        self.machines: list[Machine] = []
        self.has_no_more_faults = False
        """Whether the faults are over, so that the next machine starts soon."""
        self._loop = loop
        self._event_log = event_log
        self._rng = rng
        self._max_gap = max_gap
        self._process = process
        self._on_gone = on_gone

    @property
    def machine(self) -> Machine | None:
        """The machine that is there now, running or frozen."""
        if self.machines and self.machines[-1].condition is not Condition.DEAD:
            return self.machines[-1]
        return None

    async def live(self) -> None:
        """Have one machine after another, until cancelled."""
        while True:
            machine = Machine(f"{self.name}.{len(self.machines) + 1}", self._loop, self._event_log)
            self.machines.append(machine)
            job = machine.spawn(self._process(machine), name=f"{machine.name} process")
            await asyncio.wait([job, machine.stopped], return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                self._event_log.crashes += 1
                self._event_log.record_fault(FaultKind.CRASH, machine.name)
            elif not job.cancelled() and (error := job.exception()) is not None:
                self._event_log.record_uncaught(f"a process of {self.name} ended with {error!r}")
            machine.die()  # a process that has ended takes with it all it started
            self._on_gone(machine)
            gap = SOON_SECONDS if self.has_no_more_faults else self._max_gap
            await asyncio.sleep(self._rng.uniform(0.0, gap))

    def crash(self, steps: int) -> None:
        """Let the present machine, if there is one, die after some more steps."""
        machine = self.machine
        if machine is not None:
            machine.die_after(steps)
