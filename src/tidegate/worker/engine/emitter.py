"""Writes the chunks that running tasks emit: in order, in batches, at most twenty writes a second."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from tidegate.domain.outcome import Fence
from tidegate.store.protocol import Store
from tidegate.store.streams import NewChunk
from tidegate.worker import report
from tidegate.worker.backoff_delay import BackoffDelay

WRITE_SECONDS = 0.05
"""Shortest time between two writes of chunks."""
BATCH_CHUNKS = 500
BATCH_BYTES = 2**20
"""Most bytes in one write, so that no other writer waits long."""
BACKPRESSURE_BYTES = 2**20
"""While more bytes than this wait to be written, functions that emit have to wait."""


class Emitter:
    """Takes chunks from functions on the loop and in threads, and writes them in order.

    Args:
        store: Where the chunks are written.
        rng: For the pauses while the store is unreachable.
        on_lost: Called with each run that this worker no longer owns, so that its function is stopped.
    """

    def __init__(self, store: Store, rng: random.Random, on_lost: Callable[[Fence], None]) -> None:
        self._store = store
        self._pause = BackoffDelay(rng)
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[NewChunk] = deque()
        self._bytes = 0
        self._positions: dict[Fence, int] = {}
        self._lock = threading.Lock()
        self._write_lock = asyncio.Lock()
        self._woken = asyncio.Event()

    def emit(self, fence: Fence, data: bytes) -> bool:
        """Take one chunk, or nothing if it is empty; return whether there is room for more."""
        if data:
            with self._lock:
                position = self._positions[fence] = self._positions.get(fence, 0) + 1
                is_first = not self._chunks
                self._chunks.append(NewChunk(fence, position, data))
                self._bytes += len(data)
            if is_first:
                self._loop.call_soon_threadsafe(self._woken.set)
        return self._bytes <= BACKPRESSURE_BYTES

    def forget(self, fence: Fence) -> None:
        """Drop the state of a run that has ended."""
        self._positions.pop(fence, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._woken.wait()
            try:
                await self.write()
                self._pause.reset()
                await asyncio.sleep(WRITE_SECONDS)
            except Exception as error:  # kept and tried again: every chunk must be written
                pause = self._pause.next()
                report.will_retry(f"writing {len(self._chunks)} chunks", error, pause)
                await asyncio.sleep(pause)

    async def write(self) -> None:
        """Write all chunks taken so far.

        Call it before a run's outcome is written, which closes the stream.
        """
        async with self._write_lock:
            self._woken.clear()
            try:
                left = len(self._chunks)  # chunks that come meanwhile are written by the next call
                while left > 0:
                    batch = self._batch(left)
                    await self._write_batch(batch)
                    left -= len(batch)
            finally:
                if self._chunks:
                    self._woken.set()

    async def _write_batch(self, batch: Sequence[NewChunk]) -> None:
        gone = await self._store.append_chunks(batch)
        with self._lock:
            for chunk in batch:
                self._chunks.popleft()
                self._bytes -= len(chunk.data)
        for fence in gone:
            self._on_lost(fence)

    def _batch(self, most: int) -> list[NewChunk]:
        batch: list[NewChunk] = []
        size = 0
        with self._lock:
            for chunk in islice(self._chunks, min(most, BATCH_CHUNKS)):
                size += len(chunk.data)
                if batch and size > BATCH_BYTES:
                    break
                batch.append(chunk)
        return batch
