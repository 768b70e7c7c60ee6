"""The attainable ideal: one scheduler in memory that knows the quota and nothing else.

It paces calls evenly, tries once a second while the provider is down, and then raises its rate from a tenth
to the full quota. It has no store and no processes, and survives no crash.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

import httpx2


class IdealScheduler:
    """Makes calls at the quota's pace.

    Args:
        url: Of the provider.
        quota: Calls a second.
        slots: Calls at once at most.
        slow_start: Seconds from a tenth of the pace to all of it.
        call_seconds: The longest one call may take.
    """

    def __init__(self, url: str, *, quota: float, slots: int, slow_start: float, call_seconds: float) -> None:
        self._url = url
        self._quota = quota
        self._slots = asyncio.Semaphore(slots)
        self._slow_start = slow_start
        self._client = httpx2.AsyncClient(timeout=call_seconds)
        self._queue: deque[int] = deque()
        self._is_up = True
        self._failures = 0
        self._opened = float("-inf")
        self._next = 0.0
        self.done: set[int] = set()
        self.refused: set[int] = set()

    def add(self, task: int) -> None:
        self._queue.append(task)

    async def run(self) -> None:
        """Go on until cancelled."""
        calls: set[asyncio.Task[None]] = set()
        try:
            while True:
                if not self._queue:
                    await asyncio.sleep(0.005)
                    continue
                now = time.monotonic()
                if not self._is_up:
                    await asyncio.sleep(1.0)
                    await self._call(self._queue.popleft())
                    continue
                if now < self._next:
                    await asyncio.sleep(self._next - now)
                    continue
                await self._slots.acquire()
                if not self._is_up:
                    self._slots.release()
                    continue
                self._next = max(self._next, time.monotonic() - 0.1) + 1 / (self._quota * self._share())
                job = asyncio.create_task(self._in_slot(self._queue.popleft()))
                calls.add(job)
                job.add_done_callback(calls.discard)
        finally:
            for job in calls:
                job.cancel()
            await self._client.aclose()

    async def _in_slot(self, task: int) -> None:
        try:
            await self._call(task)
        finally:
            self._slots.release()

    async def _call(self, task: int) -> None:
        try:
            status = (await self._client.post(self._url, json={"task": task})).status_code
        except httpx2.HTTPError:
            status = 0
        if status == 200:
            self.done.add(task)
            if not self._is_up:
                self._is_up, self._opened = True, time.monotonic()
            self._failures = 0
        elif status == 400:
            self.refused.add(task)
        else:
            self._queue.appendleft(task)
            if status != 429:
                self._is_up = False

    def _share(self) -> float:
        part = (time.monotonic() - self._opened) / self._slow_start
        return min(1.0, 0.1 + 0.9 * part) if part >= 0 else 1.0
