"""How many tasks a pool process may run now, and when it may run more.

With `concurrency="auto"`, a process has two kinds of slots. `async def` functions with an upstream wait for
answers most of their time, so their slots grow while all are in use and the event loop keeps up. Where a
limit of the upstream binds, slots stay empty and do not grow. All other functions keep the slots that they
start with. With a number, all functions share that many slots.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Literal, NamedTuple

from tidegate.worker.application import Runnable
from tidegate.worker.children.process_tree import resident_bytes
from tidegate.worker.engine.task_run import TaskRun
from tidegate.worker.settings import AUTO_SLOTS, MOST_AUTO_SLOTS, Pool

CHECK_SECONDS = 0.25
"""Time between two checks while slots may grow or shrink."""
SAMPLES = 5
"""How often each check measures how late the event loop is."""
GROWTH = 0.5
"""Slots grow by at most this share, once a check. Without a rate limit of the upstream they grow by the
number of tasks that ended since the last growth. So they at most double in the time that a task takes, and
by then it shows whether the upstream is full."""
SLOW_SECONDS = 0.05
"""If the event loop is this late, the slots do not grow."""
OVERLOADED_SECONDS = 0.25
"""If the event loop is this late twice in a row, the slots shrink."""
MEMORY_OF_LATENESS = 0.5
"""This share of the last lateness still counts at the next check, because a busy loop is not late at each
check."""
SHRINK = 0.8
"""Slots shrink to this share."""
HOLD_SECONDS = 60.0
"""For this long after the slots shrank because the event loop was late, they do not grow again."""
UNUSED_SECONDS = 30.0
"""Slots that were not needed for this long are given up."""
SPARE = 1.25
"""This many times the number of slots that were in use are kept."""
AWAITING_SHARE = 0.75
"""The slots grow only if at least this share of the tasks in them wait for an answer."""

MEMORY_SHARE = 0.8
"""The slots grow only while the process uses less than this share of its memory limit."""


class SlotRoom(NamedTuple):
    """How many more tasks may start now."""

    growing: int
    """Tasks of the functions whose slots grow."""
    others: int
    """Tasks of all other functions."""


class Slots:
    """The slots of one pool process.

    Args:
        concurrency: The pool's own number, or `auto`.
        growing: The functions whose slots grow under `auto`.
        paced: Those functions of `growing` whose upstream has a rate limit. The limit bounds their slots.
        has_others: Whether the process also runs other functions.
        awaiting: Returns how many of the running tasks of these functions wait for an answer.
        has_memory: Returns whether the process has memory for more tasks.
        on_change: Called when slots became free.
    """

    def __init__(
        self,
        concurrency: int | Literal["auto"],
        *,
        growing: Iterable[str] = (),
        paced: Iterable[str] = (),
        has_others: bool = True,
        awaiting: Callable[[], int] = lambda: 0,
        has_memory: Callable[[], bool] = lambda: True,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._candidates = frozenset(growing)
        self._paced = frozenset(paced)
        self._has_others = has_others
        self._awaiting = awaiting
        self._has_memory = has_memory
        self._on_change = on_change
        self.concurrency = concurrency
        """The number in force, or `auto`."""
        self.is_quiet = False
        """Whether this process claims no more tasks. Running tasks continue."""
        self.limit = AUTO_SLOTS
        """How many tasks of the growing functions may run at once, under `auto`."""
        self._busy = 0
        self._busy_paced = 0
        self._ended = 0
        """How many tasks of growing functions have ended since the slots last grew."""
        self._held_until = 0.0
        """Until when the slots do not grow, by the loop's clock."""
        self._is_full = asyncio.Event()

    @property
    def growing(self) -> frozenset[str]:
        """The functions whose slots grow; none if a number is in force."""
        return self._candidates if self.concurrency == "auto" else frozenset()

    @property
    def total(self) -> int:
        """How many tasks may run at once now, of all functions together."""
        if self.concurrency != "auto":
            return self.concurrency
        if not self._candidates:
            return AUTO_SLOTS
        return self.limit + (AUTO_SLOTS if self._has_others else 0)

    def room(self, busy: int) -> SlotRoom:
        """Return how many more tasks may start.

        Args:
            busy: How many slots are in use, of both kinds.
        """
        if self.is_quiet:
            return SlotRoom(0, 0)
        if self.concurrency != "auto":
            return SlotRoom(0, max(0, self.concurrency - busy))
        growing = self.limit - self._busy if self._candidates else 0
        if growing <= 0 and self._candidates:
            self._is_full.set()
        return SlotRoom(max(0, growing), max(0, AUTO_SLOTS - (busy - self._busy)))

    def on_started(self, function: str) -> None:
        """Note that a task of this function takes a slot."""
        self._busy += function in self._candidates
        self._busy_paced += function in self._paced

    def on_finished(self, function: str) -> None:
        """Note that a task of this function frees its slot."""
        self._busy -= function in self._candidates
        self._busy_paced -= function in self._paced
        self._ended += function in self._candidates

    def apply(self, *, concurrency: int | Literal["auto"], is_quiet: bool) -> None:
        """Change concurrency and quiet.

        With fewer slots than running tasks, no task starts until enough have ended.
        """
        self.concurrency, self.is_quiet = concurrency, is_quiet
        self._on_change()

    async def run(self) -> None:
        """Let the slots grow and shrink, until cancelled. Does nothing while slots are free."""
        while True:
            await self._is_full.wait()
            self._is_full.clear()
            await self._follow_demand()

    async def _follow_demand(self) -> None:
        """Grow while the slots are full; return when the number of slots is that of the start again."""
        loop = asyncio.get_running_loop()
        most_busy, since = self._busy, loop.time()
        measured, late = 0.0, 0.0
        while self.limit > AUTO_SLOTS or self._busy >= self.limit:
            before, measured = measured, await _lateness()
            late = max(measured, late * MEMORY_OF_LATENESS)
            most_busy = max(most_busy, self._busy)
            if min(before, measured) > OVERLOADED_SECONDS:
                self._set_limit(int(min(self.limit, self._busy) * SHRINK))
                self._held_until = loop.time() + HOLD_SECONDS
            elif late <= SLOW_SECONDS and loop.time() >= self._held_until and self._may_grow():
                self._grow()
            elif loop.time() - since >= UNUSED_SECONDS:
                self._set_limit(min(self.limit, math.ceil(most_busy * SPARE)))
            if most_busy >= self.limit or loop.time() - since >= UNUSED_SECONDS:
                most_busy, since = self._busy, loop.time()

    def _may_grow(self) -> bool:
        """Whether more slots would be used: all are in use, nearly all wait for answers, memory is left."""
        return (
            self.concurrency == "auto"
            and self._busy >= self.limit
            and self.limit < MOST_AUTO_SLOTS
            and self._awaiting() >= AWAITING_SHARE * self._busy
            and self._has_memory()
        )

    def _grow(self) -> None:
        most = math.ceil(self.limit * GROWTH)
        self._set_limit(self.limit + (most if self._busy_paced == self._busy else min(most, self._ended)))
        self._ended = 0

    def _set_limit(self, wanted: int) -> None:
        before, self.limit = self.limit, max(AUTO_SLOTS, min(MOST_AUTO_SLOTS, wanted))
        if self.limit > before:
            self._on_change()


async def _lateness() -> float:
    """Return by how many seconds the event loop is late at most, measured for `CHECK_SECONDS`."""
    loop = asyncio.get_running_loop()
    part, late = CHECK_SECONDS / SAMPLES, 0.0
    for _ in range(SAMPLES):
        began = loop.time()
        await asyncio.sleep(part)
        late = max(late, loop.time() - began - part)
    return late


def new_slots(
    pool: Pool,
    functions: Mapping[str, Runnable],
    *,
    paced_upstreams: Container[str],
    running: Callable[[], Iterable[TaskRun]],
    on_change: Callable[[], None],
) -> Slots:
    """Return the slots of a process that serves this pool with these functions.

    Args:
        pool: The pool.
        functions: The functions that the process can run.
        paced_upstreams: The upstreams with a rate limit.
        running: Returns the runs of the process.
        on_change: Called when slots became free.
    """
    growing = frozenset(name for name, function in functions.items() if function.spec.slots_grow)
    paced = frozenset(name for name in growing if functions[name].spec.upstream in paced_upstreams)
    limit = min(filter(None, (pool.memory_soft_limit, pool.memory_limit)), default=None)

    def awaiting() -> int:
        return sum(
            task_run.control.calls.awaits_answer
            for task_run in running()
            if task_run.claimed.function in growing
        )

    def has_memory() -> bool:
        return limit is None or resident_bytes(os.getpid()) < MEMORY_SHARE * limit

    return Slots(
        pool.concurrency,
        growing=growing,
        paced=paced,
        has_others=len(growing) < len(functions),
        awaiting=awaiting,
        has_memory=has_memory,
        on_change=on_change,
    )
