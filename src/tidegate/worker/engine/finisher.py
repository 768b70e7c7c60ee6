"""Writes outcomes in batches. An outcome is kept until the store has confirmed it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from itertools import islice

from tidegate.context import Progress
from tidegate.domain.outcome import Fence, FinishStatus, Outcome
from tidegate.store.protocol import Store
from tidegate.store.rows import ProgressUpdate
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay
from tidegate.worker.engine.fallback_outcome import unwritable_outcome

BATCH_SIZE = 500
"""At most this many outcomes in one write."""
MAX_REFUSALS = 3
"""How often the store may refuse the content of an outcome before a fallback outcome replaces it."""
CONTENT_ERRORS = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
"""Errors caused by a value that cannot be written. Other errors may be temporary."""
PROGRESS_SECONDS = 0.5
"""Time between writes of progress."""


class Finisher:
    """Takes outcomes and progress from the executor and writes them in order.

    The next batch gathers while one write is under way, so the batch size follows the load.

    Args:
        store: Where they are written.
        rng: For the pauses while the store is unreachable.
        on_lost: Called with each run that this worker no longer owns, so that its function is stopped.
        before_write: Awaited before each write of outcomes. This function writes data that the store refuses
            once the outcome is written, such as chunks.
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
        """How many outcomes the next write has; 1 after the store refused the content of one."""
        self._refusals: Counter[Fence] = Counter()
        """How often the store refused the outcome of each run."""
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
        """Queue one outcome to be written. Returns at once."""
        if not self._outcomes:
            self._empty.clear()
            self._woken.set()
        self._outcomes.append(outcome)

    def record_progress(self, fence: Fence, progress: Progress) -> None:
        """Queue a run's progress. Only the latest progress of each half second is written."""
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
            except Exception as error:  # kept and tried again: every outcome must be written
                pause = self._pause.next()
                report.will_retry(f"writing {self.pending} outcomes", error, pause)
                await asyncio.sleep(pause)

    async def wait_until_written(self) -> None:
        """Return when every outcome taken so far is confirmed."""
        await self._empty.wait()

    async def _write(self) -> None:
        await self._write_progress()
        while self._outcomes:
            batch = list(islice(self._outcomes, self._size))
            await self._write_progress()  # the fence would refuse progress after the outcome
            await self._run_before_write()
            try:
                statuses = await self._store.finish(batch)
            except CONTENT_ERRORS as fault:
                self._requeue_refused(batch, fault)
                continue
            for outcome, status in zip(batch, statuses, strict=True):
                self._outcomes.popleft()
                self._refusals.pop(outcome.fence, None)
                if status is FinishStatus.FENCED:
                    report.finish_refused(outcome.fence)
        self._size = BATCH_SIZE
        self._woken.clear()
        self._empty.set()

    def _requeue_refused(self, batch: list[Outcome], fault: Exception) -> None:
        """Make sure that an outcome which the store cannot write does not block the others.

        From now on outcomes are written one by one, and a refused one goes to the end of the queue. After
        `MAX_REFUSALS` refusals the run gets an outcome that can be written: dead, with the fault in its
        failure.

        Raises:
            Exception: The fault, if even that outcome was refused. The caller retries after a pause.
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
        except CONTENT_ERRORS as error:  # chunks that can never be written must not keep runs open
            report.will_retry("writing chunks", error, 0.0)

    async def _write_progress(self) -> None:
        if not self._progress:
            return
        pending, self._progress = self._progress, {}
        updates = [
            ProgressUpdate(fence, progress.done, progress.total, progress.note)
            for fence, progress in pending.items()
        ]
        try:
            lost = await self._store.save_progress(updates)
        except CONTENT_ERRORS as error:
            # progress that cannot be written is dropped; the next progress of these runs replaces it
            report.will_retry("writing progress", error, 0.0)
            return
        except Exception:
            self._progress = pending | self._progress
            raise
        for fence in lost:
            self._on_lost(fence)
