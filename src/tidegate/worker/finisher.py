"""Writes outcomes in batches, fenced. Whatever is handed over is kept until the store has answered."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable

from tidegate.context import Progress
from tidegate.domain.outcome import Answer, Fence, Outcome
from tidegate.store.protocol import Store
from tidegate.store.rows import ProgressNote
from tidegate.worker import report
from tidegate.worker.pause import Pause

BATCH = 500
"""Outcomes in one write at most."""
PROGRESS_SECONDS = 0.5
"""Between writes of progress."""


class Finisher:
    """Takes outcomes and progress from the executor and writes them, in the order taken.

    While one write is under way the next batch gathers, so the batch size follows the load by itself.

    Args:
        store: Where to.
        rng: For the pauses while the store is away.
        lost: Told of runs that are no longer ours, so that their bodies are stopped.
        first: Awaited before outcomes are written: whatever the fence would refuse after them.
    """

    def __init__(
        self,
        store: Store,
        rng: random.Random,
        lost: Callable[[Fence], None],
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._pause = Pause(rng)
        self._lost = lost
        self._first = first
        self._outcomes: deque[Outcome] = deque()
        self._progress: dict[Fence, Progress] = {}
        self._woken = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def pending(self) -> int:
        """Outcomes that the store has not confirmed yet."""
        return len(self._outcomes)

    def fences(self) -> set[Fence]:
        """Return the runs whose outcomes are not confirmed yet."""
        return {outcome.fence for outcome in self._outcomes}

    def finish(self, outcome: Outcome) -> None:
        """Take one outcome. Returns at once."""
        self._outcomes.append(outcome)
        self._empty.clear()
        self._woken.set()

    def note(self, fence: Fence, progress: Progress) -> None:
        """Take a run's progress; only the last one of each half second is written."""
        self._progress[fence] = progress

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        next_notes = loop.time() + PROGRESS_SECONDS
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_notes - loop.time())):
                    await self._woken.wait()
            except TimeoutError:
                next_notes = loop.time() + PROGRESS_SECONDS
            try:
                await self._write()
                self._pause.reset()
            except Exception as error:  # whatever it is, what was handed over is kept
                pause = self._pause.next()
                report.trouble(f"writing {self.pending} outcomes", error, pause)
                await asyncio.sleep(pause)

    async def flushed(self) -> None:
        """Return when every outcome taken so far is confirmed."""
        await self._empty.wait()

    async def _write(self) -> None:
        await self._write_progress()
        while self._outcomes:
            batch = [self._outcomes[place] for place in range(min(BATCH, len(self._outcomes)))]
            await self._write_progress()  # the last word of these runs, which the fence would refuse later
            if self._first is not None:
                await self._first()
            answers = await self._store.finish(batch)
            for outcome, answer in zip(batch, answers, strict=True):
                self._outcomes.popleft()
                if answer is Answer.FENCED:
                    report.fenced(outcome.fence)
        self._woken.clear()
        self._empty.set()

    async def _write_progress(self) -> None:
        if not self._progress:
            return
        taken, self._progress = self._progress, {}
        notes = [ProgressNote(fence, told.done, told.total, told.note) for fence, told in taken.items()]
        try:
            gone = await self._store.progress(notes)
        except Exception:
            self._progress = taken | self._progress
            raise
        for fence in gone:
            self._lost(fence)
