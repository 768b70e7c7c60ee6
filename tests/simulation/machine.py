"""Simulated machines on one virtual clock. Each can freeze or die between any two steps of its loop.

A step is one callback of the event loop: the part of a coroutine between two awaits. A context variable holds
the machine of a step, so everything that code on a machine starts belongs to the same machine.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, TypeVar

from simulation.event_log import EventLog
from tidegate.store.protocol import Store
from tidegate.testing.virtual_time import VirtualLoop

T = TypeVar("T")


class Condition(Enum):
    """How a machine is."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class Machine:
    """Something that runs code on the shared loop and can be stopped without asking that code.

    Args:
        name: For histories.
        loop: The shared loop.
        event_log: Where its code writes what it does.
    """

    def __init__(self, name: str, loop: MachineLoop, event_log: EventLog) -> None:
        self.name = name
        self.event_log = event_log
        self.condition = Condition.RUNNING
        self.steps = 0
        self.stopped: asyncio.Future[None] = loop.create_future()
        """Done when it is dead."""
        self.died_at: float | None = None
        self.store: Store | None = None
        """The store as the process on it sees it."""
        self._loop = loop
        self._steps_left: int | None = None
        self._deferred: list[_Step] = []

    def __repr__(self) -> str:
        return f"<Machine {self.name} {self.condition.value}>"

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a coroutine on this machine."""
        context = contextvars.copy_context()
        context.run(_current.set, self)
        return self._loop.create_task(work, name=name, context=context)

    def freeze(self) -> None:
        """Let nothing run here until `thaw`, like SIGSTOP or a suspended virtual machine."""
        if self.condition is Condition.RUNNING:
            self.condition = Condition.FROZEN

    def thaw(self) -> None:
        """Continue where everything stopped; what fell due meanwhile happens now, in its order."""
        if self.condition is Condition.FROZEN:
            self._resume()

    def die(self) -> None:
        """Die as by kill -9: no `finally` block runs."""
        if self.condition is not Condition.DEAD:
            self.condition = Condition.DEAD
            self.died_at = self._loop.time()
            if not self.stopped.done():
                self.stopped.set_result(None)

    def die_after(self, steps: int | None) -> None:
        """Die after this many more steps; None cancels it."""
        if steps is not None and self._steps_left is not None:
            steps = min(steps, self._steps_left)
        self._steps_left = steps

    def revive(self) -> None:
        """Let a dead machine run again, so that every coroutine can be ended when the run is over."""
        self._steps_left = None
        self._resume()

    def may_run(self, step: _Step) -> bool:
        """Return whether a step may run now; otherwise keep it for later."""
        if self.condition is Condition.RUNNING:
            self.steps += 1
            if self._steps_left is None:
                return True
            self._steps_left -= 1
            if self._steps_left >= 0:
                return True
            self.die()
        self._deferred.append(step)
        return False

    def _resume(self) -> None:
        self.condition = Condition.RUNNING
        deferred, self._deferred = self._deferred, []
        for step in deferred:
            self._loop.call_soon(step.resume, context=step.context)


_current: contextvars.ContextVar[Machine | None] = contextvars.ContextVar("tidegate_machine", default=None)


def current_machine() -> Machine | None:
    """Return the machine of the calling code; None outside of any machine."""
    return _current.get()


class _Step:
    """One callback, taken only if its machine runs."""

    __slots__ = ("args", "callback", "context", "handle", "machine")

    def __init__(
        self,
        machine: Machine,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self.machine = machine
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        if self.machine.may_run(self):
            self.callback(*self.args)

    def resume(self) -> None:
        """Take a step that was kept, unless it was cancelled since."""
        if self.handle is None or not self.handle.cancelled():
            self()


class MachineLoop(VirtualLoop):
    """A virtual-time loop whose callbacks belong to machines."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        """Callbacks that were asked for, on any machine or none."""

    def create_task(  # type: ignore[override]
        self,
        work: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a coroutine on the machine that asks, also where it gets a context of its own."""
        machine = _current.get()
        if machine is not None and context is not None and _current not in context:
            context.run(_current.set, machine)
        return super().create_task(work, name=name, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call back at the next turn, if the machine then runs."""
        self.steps += 1
        step = _step_of(callback, args, context)
        if step is None:
            return super().call_soon(callback, *args, context=context)
        step.handle = super().call_soon(step, context=step.context)
        return step.handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Same as `call_soon`: there are no threads here."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at a time, or later when the machine runs again."""
        self.steps += 1
        step = _step_of(callback, args, context)
        if step is None:
            return super().call_at(when, callback, *args, context=context)
        handle = super().call_at(when, step, context=step.context)
        step.handle = handle
        return handle


def _step_of(
    callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
) -> _Step | None:
    machine = _current.get() if context is None else context.get(_current)
    if machine is None:
        return None
    return _Step(machine, callback, args, contextvars.copy_context() if context is None else context)
