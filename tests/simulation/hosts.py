"""Places where processes live: started again whenever they end, each time on a new machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from simulation.event_log import EventLog
from simulation.faulty_store import StoreCondition
from simulation.machine import Condition, Machine, MachineLoop
from simulation.plan import FaultKind

SOON_SECONDS = 0.5
"""Until the next machine, once faults are over."""


@dataclass(eq=False, kw_only=True)
class SimulatedHost:
    """One host. When its machine dies or its process ends, a new one starts after a while."""

    name: str
    """The prefix of its machines' names: `w1.3` is the third machine of `w1`."""
    loop: MachineLoop
    event_log: EventLog
    rng: random.Random
    """Source of the time until the next machine."""
    max_gap: float
    """Most seconds without a machine while faults go on."""
    process: Callable[[Machine], Coroutine[Any, Any, None]]
    """Runs on each machine."""
    on_gone: Callable[[Machine], None]
    """Called with a machine whose process has ended."""
    store_condition: StoreCondition = field(default_factory=StoreCondition)
    machines: list[Machine] = field(default_factory=list)
    has_no_more_faults: bool = False
    """Whether the faults are over, so that the next machine starts soon."""

    @property
    def machine(self) -> Machine | None:
        """The machine that is there now, running or frozen."""
        if self.machines and self.machines[-1].condition is not Condition.DEAD:
            return self.machines[-1]
        return None

    async def live(self) -> None:
        """Have one machine after another, until cancelled."""
        while True:
            machine = Machine(f"{self.name}.{len(self.machines) + 1}", self.loop, self.event_log)
            self.machines.append(machine)
            job = machine.spawn(self.process(machine), name=f"{machine.name} process")
            await asyncio.wait([job, machine.stopped], return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                self.event_log.crashes += 1
                self.event_log.record_fault(FaultKind.CRASH, machine.name)
            elif not job.cancelled() and (error := job.exception()) is not None:
                self.event_log.record_uncaught(f"a process of {self.name} ended with {error!r}")
            machine.die()  # a process that has ended takes with it all it started
            self.on_gone(machine)
            gap = SOON_SECONDS if self.has_no_more_faults else self.max_gap
            await asyncio.sleep(self.rng.uniform(0.0, gap))

    def crash(self, steps: int) -> None:
        """Let the present machine, if there is one, die after some more steps."""
        machine = self.machine
        if machine is not None:
            machine.die_after(steps)
