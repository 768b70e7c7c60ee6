"""Keeps one process of a pool running: starts it, sees its end, starts the next."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from tidegate.worker.pause import Pause
from tidegate.worker.process import EXIT_CONFIG, EXIT_REPLACE
from tidegate.worker.settings import Pool
from tidegate.worker.supervisor.child import Child
from tidegate.worker.supervisor.loops import CrashLoop

log = logging.getLogger("tidegate.supervisor")

HEALTHY_SECONDS = 30.0
"""A process that lived so long is restarted at once when it ends."""
SETTLED_SECONDS = 3.0
"""The same for one that asks to be replaced; one that asks for it sooner may do so for ever."""


class Office(Protocol):
    """What a keeper asks of its supervisor."""

    async def start(self, pool: Pool, keeper: Keeper) -> Child:
        """Start a child, have the keeper hold it, and register it.

        Raises:
            OSError: No process is to be had.
        """
        ...

    async def retire(self, child: Child, why: str) -> None:
        """Take the row of a dead process out of work; its tasks are taken up again."""
        ...

    @property
    def had_to_kill(self) -> Callable[[], None]:
        """Hears that, while the worker stops, a process had to be killed."""
        ...

    @property
    def set_up_is_wrong(self) -> Callable[[Pool], bool]:
        """Hears that a process says so; returns whether the whole worker stops for it."""
        ...


class Keeper:
    """One place for a pool process. When one ends, the next takes its place.

    Args:
        pool: What the next process serves; may be replaced at any time.
        office: Starts and retires.
        loop: Counts the deaths of the pool's processes.
        rng: For jitter.
    """

    def __init__(self, pool: Pool, *, office: Office, loop: CrashLoop, rng: random.Random) -> None:
        self.pool = pool
        self.loop = loop
        self.child: Child | None = None
        """The present process; None between two."""
        self._office = office
        self._pause = Pause(rng, first=0.5, cap=30.0)
        self._ending = False
        self._renewals = 0
        self._grace = 0.0
        self._hurry = asyncio.Event()
        self._is_fresh = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether its process works, or at least takes tasks."""
        return self.child is not None and self.child.is_ready and not self.child.leaving_for

    async def run(self) -> None:
        """Keep a process running until `stop`."""
        while not self._ending:
            self._hurry.clear()
            started_at, renewals = time.monotonic(), self._renewals
            try:
                child = await self._office.start(self.pool, self)
            except OSError as error:  # no memory or no process to be had: others go on, and it may pass
                wait = self._pause.next()
                log.error(
                    "pool %s: no process can be started (%s); again in %.1f s", self.pool.name, error, wait
                )
                await self._rest(wait)
                continue
            if self._ending:
                child.release()
            elif renewals != self._renewals:  # it may have imported the old code
                child.leave(self._grace, "it is out of date already")
            code = await child.ended()
            self.child = None
            await self._office.retire(child, child.how_it_ended(code))
            if self._ending:
                self._tell_of_a_kill(child, code)
            else:
                await self._rest(self._after(child, code, time.monotonic() - started_at))

    def hold(self, child: Child) -> None:
        """Take a child that was started."""
        self.child = child
        child.on_ready = self._heard_ready
        if child.is_ready:
            self._heard_ready(child)

    def stop(self, grace: float) -> None:
        """Let its process end within `grace` seconds; start none after it."""
        self._ending = True
        self._hurry.set()
        self._is_fresh.set()
        if self.child is not None:
            self.child.leave(grace, "the worker stops")

    async def renew(self, grace: float, why: str) -> None:
        """Have a new process take the place of the present one, and wait until it is ready.

        The present one ends first, so there are never more than configured. If the new one cannot start,
        this does not return: what runs elsewhere goes on as it is.

        Args:
            grace: Seconds running tasks may go on; then they are given back.
            why: For logs.
        """
        self._renewals += 1
        self._grace = grace
        self._pause.reset()
        self._is_fresh.clear()
        self._hurry.set()
        if self.child is not None:
            self.child.leave(grace, why)
        await self._is_fresh.wait()

    def _heard_ready(self, child: Child) -> None:
        if child is self.child and not child.leaving_for:
            self._is_fresh.set()

    def _tell_of_a_kill(self, child: Child, code: int) -> None:
        """Log, while the worker stops, which process did not end by itself or had to kill its children."""
        name, why = self.pool.name, child.how_it_ended(code)
        if code != 0:
            log.error("pool %s: process %d ended (%s); what it ran is taken up again", name, child.pid, why)
        if child.children_killed:
            log.warning(
                "pool %s: %d child processes were killed because their tasks did not stop",
                name,
                child.children_killed,
            )
        if child.killed_for or child.children_killed:
            self._office.had_to_kill()

    def _after(self, child: Child, code: int, lived: float) -> float:
        """Return the seconds until the next process starts, and tell of the end of this one."""
        name, why = self.pool.name, child.how_it_ended(code)
        if child.leaving_for and code == 0:
            log.info("pool %s: process %d has ended: %s", name, child.pid, child.leaving_for)
            if not child.is_too_large or lived > HEALTHY_SECONDS:
                return 0.0
            why = f"{child.leaving_for}, soon after its start: is memory_soft_limit too low?"
        if code == EXIT_CONFIG and self._office.set_up_is_wrong(self.pool):
            return 0.0
        self.loop.died(why)
        if lived > HEALTHY_SECONDS:
            self._pause.reset()
        wait = (
            0.0
            if lived > (SETTLED_SECONDS if code == EXIT_REPLACE else HEALTHY_SECONDS)
            else self._pause.next()
        )
        log.error("pool %s: process %d ended (%s); the next starts in %.1f s", name, child.pid, why, wait)
        return wait

    async def _rest(self, seconds: float) -> None:
        """Wait, unless it is to stop or to begin anew."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
