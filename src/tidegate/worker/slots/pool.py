"""The slots of one pool process: made when needed, kept warm, replaced when they are spent."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tidegate.worker.slots.process import NoSlot, SlotDied, SlotProcess
from tidegate.worker.slots.vram import VramWatch

log = logging.getLogger("tidegate.worker")

MEMORY_LOOK_SECONDS = 0.2
CONFIRM_SECONDS = 0.03
START_PAUSE_SECONDS = 1.0


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
    """

    def __init__(self, application: str, rules: SlotRules) -> None:
        self._application = application
        self._rules = rules
        self._idle: list[SlotProcess] = []
        self._all: dict[SlotProcess, int | None] = {}
        """Every living slot, with the memory limit of the task it runs."""
        self._ending: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        # An import keeps a core busy: a pool whose children keep dying must not take all cores from the rest.
        self._starting = asyncio.Semaphore(max(1, (os.cpu_count() or 1) // 2))

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
        slot = await self._fresh() if alone else await self._any()
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
                self._idle.append(slot)
            else:
                log.warning("a slot could not be started: %s", slot)

    async def close(self) -> None:
        """End every slot with all it started."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.gather(*(slot.close() for slot in self._all), *self._ending)
        self._all.clear()
        self._idle.clear()

    async def _any(self) -> SlotProcess:
        """Return an idle slot, else a fresh one. Who had to wait for its turn to start one looks again."""
        if (slot := self._take_idle()) is not None:
            return slot
        async with self._starting:
            return self._take_idle() or await self._start()

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
        slot = SlotProcess(self._application, gpu=self._least_used_gpu() if gpus else None)
        self._all[slot] = None
        if self._watch is None:
            self._watch = asyncio.create_task(self._watch_memory(), name="tidegate slot memory")
        try:
            await slot.start()
        except (SlotDied, OSError) as error:
            self._end(slot)
            raise NoSlot(f"no child process can be started: {error}") from error
        except BaseException:
            self._end(slot)
            raise
        return slot

    def _take_back(self, slot: SlotProcess, *, alone: bool) -> None:
        self._all[slot] = None
        why = self._why_replace(slot, alone=alone)
        if not why:
            self._idle.append(slot)
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
