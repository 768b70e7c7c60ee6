"""The slots of one pool process: made when needed, kept warm, replaced when they are spent."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidegate.worker.pause import Pause
from tidegate.worker.slots.process import NoSlot, SlotDied, SlotProcess
from tidegate.worker.slots.vram import VramWatch
from tidegate.worker.surroundings import Surroundings

log = logging.getLogger("tidegate.worker")

MEMORY_LOOK_SECONDS = 0.2
CONFIRM_SECONDS = 0.03
AHEAD = 2
"""Bodies that may wait for a child, for each that can be started at once."""
FIRST_RESTART_SECONDS = 1.0
"""Upper bound of the first pause before a child process is tried again, after one could not be started."""


@dataclass(frozen=True, slots=True)
class SlotRules:
    """When a slot is replaced or killed."""

    runs: int = 1_000
    """Bodies one process runs before it is replaced, so that small leaks stay small."""
    soft_bytes: int | None = None
    """Replaced after its present body when it holds more."""
    hard_bytes: int | None = None
    """Killed when it and what it started hold more."""
    gpus: tuple[int | str, ...] = ()
    """Devices, given out in turn; each process sees one."""
    vram: VramWatch | None = None
    """Replaced after its present body when it and what it started hold more GPU memory."""


class SlotPool:
    """Lends slots. Belongs to one event loop.

    Args:
        application: `module:attribute` that slots import.
        rules: When they are replaced.
        on_room: Told when there may be `room` again.
        surroundings: What slots start with; None: what this process has by then.
    """

    def __init__(
        self,
        application: str,
        rules: SlotRules,
        on_room: Callable[[], None] = lambda: None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.broken = ""
        """Why no process can be started; empty while they can. Nothing more is claimed for them then."""
        self._mending: asyncio.Task[None] | None = None
        self._application = application
        self._surroundings = surroundings
        self._rules = rules
        self._on_room = on_room
        self._idle: list[SlotProcess] = []
        self._all: dict[SlotProcess, int | None] = {}
        """Every living slot, with the memory limit of the task it runs."""
        self._ending: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        # An import keeps a core busy: a pool whose children keep dying must not take all cores from the rest.
        self._starts_at_once = max(1, (os.cpu_count() or 1) // 2)
        self._starting = asyncio.Semaphore(self._starts_at_once)
        self._waiting: deque[asyncio.Future[SlotProcess]] = deque()
        """Bodies without a slot, first come first served: a slot goes to the first, returned or fresh."""
        self._starts: set[asyncio.Task[None]] = set()
        self._unserved = 0
        """Bodies that are to get a slot and have none yet."""

    @property
    def room(self) -> int:
        """How many bodies more can be lent a slot soon; while none can be started, as many as are idle."""
        if self.broken:
            return len(self._idle)
        return max(0, len(self._idle) + AHEAD * self._starts_at_once - self._unserved)

    @property
    def processes(self) -> Sequence[SlotProcess]:
        """The living slots, idle and busy."""
        return tuple(self._all)

    @asynccontextmanager
    async def lend(
        self, *, alone: bool = False, memory_limit: int | None = None
    ) -> AsyncIterator[SlotProcess]:
        """Lend a slot for one body; afterwards it is kept or replaced.

        Args:
            alone: A fresh process that runs nothing else afterwards.
            memory_limit: Bytes for this body, if it has a limit of its own.

        Raises:
            NoSlot: None can be started.
        """
        self._unserved += 1
        try:
            slot = await self._fresh() if alone else self._take_idle() or await self._next()
        finally:
            self._unserved -= 1
            self._on_room()
        self._all[slot] = memory_limit
        try:
            yield slot
        finally:
            self._take_back(slot, alone=alone)

    async def warm(self, count: int) -> None:
        """Start slots until `count` are there, so that the first tasks need not wait for an import."""
        missing = count - len(self._all)
        started = await asyncio.gather(*(self._fresh() for _ in range(missing)), return_exceptions=True)
        for slot in started:
            if isinstance(slot, SlotProcess):
                self._hand(slot)
            else:
                log.warning("a slot could not be started: %s", slot)

    async def close(self) -> None:
        """End every slot with all it started."""
        jobs = [*self._starts, *filter(None, (self._watch, self._mending))]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await asyncio.gather(*(slot.close() for slot in self._all), *self._ending)
        self._all.clear()
        self._idle.clear()

    async def _next(self) -> SlotProcess:
        """Return the next slot that is given back or started."""
        turn: asyncio.Future[SlotProcess] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if sum(not start.done() for start in self._starts) < len(self._waiting):
            start = asyncio.create_task(self._start_for_the_first(), name="tidegate slot start")
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._hand(turn.result())
            raise

    async def _start_for_the_first(self) -> None:
        """Start a slot for whoever waits then; nobody may, when others have given theirs back."""
        async with self._starting:
            if self._first() is None:
                return
            try:
                slot = await self._start()
            except Exception as error:  # whatever it is, nobody else would tell who waits
                if (turn := self._first()) is not None:
                    self._waiting.popleft()
                    turn.set_exception(error)
            else:
                self._hand(slot)

    def _first(self) -> asyncio.Future[SlotProcess] | None:
        """Return the turn of the first that still waits."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def _hand(self, slot: SlotProcess) -> None:
        """Give a slot to whoever waits first, or keep it warm."""
        if (turn := self._first()) is None:
            self._idle.append(slot)
        else:
            self._waiting.popleft()
            turn.set_result(slot)

    async def _fresh(self) -> SlotProcess:
        async with self._starting:
            return await self._start()

    def _take_idle(self) -> SlotProcess | None:
        while self._idle:
            slot = self._idle.pop()
            if slot.is_alive:
                return slot
            self._end(slot)
        return None

    async def _start(self) -> SlotProcess:
        gpus = self._rules.gpus
        slot = SlotProcess(
            self._application,
            gpu=self._least_used_gpu() if gpus else None,
            surroundings=self._surroundings,
        )
        self._all[slot] = None
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_memory(), name="tidegate slot memory")
        try:
            await slot.start()
        except (SlotDied, OSError) as error:
            self._end(slot)
            self._break(f"no child process can be started: {error}")
            raise NoSlot(self.broken) from error
        except BaseException:
            self._end(slot)
            raise
        if self.broken:
            log.warning("child processes can be started again")
            self.broken = ""
            self._on_room()
        return slot

    def _break(self, why: str) -> None:
        """Take it that no process can be started, until one is: a task must not be claimed for nothing."""
        self.broken = why
        if self._mending is None or self._mending.done():
            log.error("%s; no task is claimed for one until that is mended", why)
            self._mending = asyncio.create_task(self._start_until_one_lives(), name="tidegate slot restart")

    async def _start_until_one_lives(self) -> None:
        pause = Pause(random.Random(), first=FIRST_RESTART_SECONDS, cap=30.0)
        while self.broken:
            await asyncio.sleep(pause.next())
            with contextlib.suppress(NoSlot):
                self._hand(await self._fresh())

    def _take_back(self, slot: SlotProcess, *, alone: bool) -> None:
        self._all[slot] = None
        why = self._why_replace(slot, alone=alone)
        if not why:
            self._hand(slot)
            return
        if slot.is_alive:
            log.info("slot %d is replaced: %s", slot.pid, why)
        self._end(slot)

    def _why_replace(self, slot: SlotProcess, *, alone: bool) -> str:
        if not slot.is_alive:
            return "it is dead"
        if slot.condemned:
            return slot.condemned
        if alone:
            return "it ran a suspect alone"
        if slot.runs >= self._rules.runs:
            return f"it has run {slot.runs} bodies"
        soft = self._rules.soft_bytes
        if soft is not None and (held := slot.excess(soft)) is not None:
            return f"it holds {held >> 20} MiB, more than {soft >> 20}"
        vram = self._rules.vram
        if vram is not None and (held := vram.excess(slot.pid)) is not None:
            return f"it holds {held >> 20} MiB of GPU memory"
        return ""

    def _end(self, slot: SlotProcess) -> None:
        self._all.pop(slot, None)
        ending = asyncio.create_task(slot.close(), name=f"tidegate end of slot {slot.pid}")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _least_used_gpu(self) -> int | str:
        used = [slot.gpu for slot in self._all]
        return min(self._rules.gpus, key=used.count)

    async def _watch_memory(self) -> None:
        while True:
            await asyncio.sleep(MEMORY_LOOK_SECONDS)
            for slot, own_limit in list(self._all.items()):
                limits = [limit for limit in (own_limit, self._rules.hard_bytes) if limit is not None]
                if limits and slot.is_alive and slot.excess(min(limits)) is not None:
                    await self._kill_if_still_over(slot, min(limits))

    async def _kill_if_still_over(self, slot: SlotProcess, limit: int) -> None:
        """Look again before a kill: what a body started this very moment counts twice."""
        runs = slot.runs
        await asyncio.sleep(CONFIRM_SECONDS)
        if slot.is_alive and slot.runs == runs and (held := slot.excess(limit)) is not None:
            slot.kill(f"memory limit {limit >> 20} MiB passed: {held >> 20} MiB in use")


__all__ = ["NoSlot", "SlotDied", "SlotPool", "SlotProcess", "SlotRules"]
