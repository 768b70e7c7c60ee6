"""Writes outcomes in batches, fenced. Whatever is handed over is kept until the store has answered."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from tidegate.context import Progress
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.store.protocol import Store
from tidegate.store.rows import ProgressUpdate
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.fallback_outcome import unwritable_outcome

BATCH_SIZE = 500
"""Outcomes in one write at most."""
MAX_REFUSALS = 3
"""How often an outcome is tried whose content the store cannot take."""
CONTENT_ERRORS = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
"""What a value that cannot be written makes of a write; everything else may pass by itself."""
PROGRESS_SECONDS = 0.5
"""Between writes of progress."""


class Finisher:
    """Takes outcomes and progress from the executor and writes them, in the order taken.

    While one write is under way the next batch gathers, so the batch size follows the load by itself.

    Args:
        store: Where to.
        rng: For the pauses while the store is away.
        on_lost: Told of runs that are no longer ours, so that their bodies are stopped.
        before_write: Awaited before outcomes are written: whatever the fence would refuse after them.
    """

    def __init__(
        self,
        store: Store,
        rng: random.Random,
        on_lost: Callable[[Fence], None],
        before_write: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._pause = BackoffDelay(rng)
        self._on_lost = on_lost
        self._before_write = before_write
        self._outcomes: deque[Outcome] = deque()
        self._size = BATCH_SIZE
        """Outcomes in the next write; 1 once the store could not take one of them."""
        self._refusals: Counter[Fence] = Counter()
        """By run whose outcome the store could not take: how often."""
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

    def record_progress(self, fence: Fence, progress: Progress) -> None:
        """Take a run's progress; only the last one of each half second is written."""
        self._progress[fence] = progress

    async def run(self) -> None:
        """Write until cancelled."""
        loop = asyncio.get_running_loop()
        next_progress_at = loop.time() + PROGRESS_SECONDS
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_progress_at - loop.time())):
                    await self._woken.wait()
            except TimeoutError:
                next_progress_at = loop.time() + PROGRESS_SECONDS
            try:
                await self._write()
                self._pause.reset()
            except Exception as error:  # whatever it is, what was handed over is kept
                pause = self._pause.next()
                report.will_retry(f"writing {self.pending} outcomes", error, pause)
                await asyncio.sleep(pause)

    async def wait_until_written(self) -> None:
        """Return when every outcome taken so far is confirmed."""
        await self._empty.wait()

    async def _write(self) -> None:
        await self._write_progress()
        while self._outcomes:
            batch = [self._outcomes[position] for position in range(min(self._size, len(self._outcomes)))]
            await self._write_progress()  # the last word of these runs, which the fence would refuse later
            await self._run_before_write()
            try:
                answers = await self._store.finish(batch)
            except CONTENT_ERRORS as fault:
                self._requeue_refused(batch, fault)
                continue
            for outcome, answer in zip(batch, answers, strict=True):
                self._outcomes.popleft()
                self._refusals.pop(outcome.fence, None)
                if answer is FinishStatus.FENCED:
                    report.finish_refused(outcome.fence)
        self._size = BATCH_SIZE
        self._woken.clear()
        self._empty.set()

    def _requeue_refused(self, batch: list[Outcome], fault: Exception) -> None:
        """See to it that outcomes which no store can write keep no other from being written.

        They go one by one then, and the one at fault last. After `MAX_REFUSALS` times its run gets
        an end that can be written: dead, with the fault in its failure.

        Raises:
            Exception: The fault, where there is nothing to do but to try again after a pause.
        """
        self._size = 1
        if len(batch) > 1:
            return
        outcome = self._outcomes.popleft()
        self._refusals[outcome.fence] += 1
        is_final = self._refusals[outcome.fence] >= MAX_REFUSALS
        self._outcomes.append(unwritable_outcome(outcome, fault) if is_final else outcome)
        if is_final:
            report.outcome_unwritable(outcome, fault)
        if self._refusals[outcome.fence] > MAX_REFUSALS:
            raise fault

    async def _run_before_write(self) -> None:
        if self._before_write is None:
            return
        try:
            await self._before_write()
        except CONTENT_ERRORS as error:  # what can never be written must not keep runs open
            report.will_retry("writing what tasks emitted", error, 0.0)

    async def _write_progress(self) -> None:
        if not self._progress:
            return
        taken, self._progress = self._progress, {}
        notes = [
            ProgressUpdate(fence, progress.done, progress.total, progress.note)
            for fence, progress in taken.items()
        ]
        try:
            gone = await self._store.save_progress(notes)
        except CONTENT_ERRORS as error:  # as above; the next progress of these runs replaces it
            report.will_retry("writing progress", error, 0.0)
            return
        except Exception:
            self._progress = taken | self._progress
            raise
        for fence in gone:
            self._on_lost(fence)
